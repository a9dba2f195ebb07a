// Command ownmodel trains two models of its own on a cluster inside one process, and kills the
// server during training. It is an example to copy from: programs outside this module can import
// everything that it imports. Begin reading at regression.go:
//
//	regression.go   a regression in plain Go: a model only needs a function from parameters to a gradient
//	rings.go        a classifier written as a Gorgonia graph, which derives the gradient
//	cluster.go      one server and three workers: what each of them needs to know
//
// Each model is trained twice, once without a failure and once with a server that dies and comes
// back. Both runs end with the same parameters, to the last bit. Run it with
//
//	go run ./examples/ownmodel
package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ownmodel:", err)
		os.Exit(1)
	}
}

// run trains both models and writes the results to w.
func run(ctx context.Context, w io.Writer) error {
	for _, describe := range []func() (job, error){regression, rings} {
		j, err := describe()
		if err != nil {
			return err
		}
		if err := compare(ctx, w, j); err != nil {
			return fmt.Errorf("%s: %w", j.name, err)
		}
	}
	return nil
}

// compare trains j without and with a death of the server. Kintsugi promises that both runs end
// with the same bits, so it is an error if they do not.
func compare(ctx context.Context, w io.Writer, j job) error {
	fmt.Fprintf(w, "%s: %d parameters, %d steps, %d workers\n", j.name, j.layout.Values, j.steps, workers)
	start := time.Now()
	calm, err := train(ctx, j, 0)
	if err != nil {
		return err
	}
	said, err := j.judge(calm.params)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "  in peace              %s (%v)\n", said, time.Since(start).Round(time.Millisecond))

	start = time.Now()
	struck, err := train(ctx, j, j.steps/2)
	if err != nil {
		return err
	}
	if said, err = j.judge(struck.params); err != nil {
		return err
	}
	fmt.Fprintf(w, "  the server dies once  %s (%v)\n", said, time.Since(start).Round(time.Millisecond))
	if !slices.EqualFunc(calm.params, struck.params, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
		return fmt.Errorf("the death of the server has changed the model")
	}
	fmt.Fprintf(w, "  lives of the server: %d and %d; the parameters are equal to the last bit\n", calm.lives, struck.lives)
	return nil
}
