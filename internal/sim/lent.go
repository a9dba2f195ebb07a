package sim

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// lent is a worker's gradient that is computed elsewhere, on memory that the worker lends: as by a
// program, it returns when its context ends, and the parameters are read for a while longer.
type lent struct {
	inner  worker.Gradient
	params []float32
	idle   chan struct{} // closed when nothing reads params
	torn   error         // once idle: params were written while they were read
}

var errTorn = errors.New("parameters were written while an earlier gradient read them")

// lend returns a gradient that computes what inner does, and the memory that it reads.
func lend(inner worker.Gradient, values int) (worker.Gradient, *worker.InPlace) {
	l := &lent{inner: inner, params: make([]float32, values), idle: make(chan struct{})}
	close(l.idle)
	return l.gradient, &worker.InPlace{Params: l.params, Settle: l.settle}
}

func (l *lent) settle(ctx context.Context) error {
	select {
	case <-l.idle:
		return l.torn
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lent) gradient(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
	if &params[0] != &l.params[0] {
		return 0, 0, fmt.Errorf("the gradient of %v is to be computed on parameters elsewhere", id)
	}
	if err := l.settle(ctx); err != nil {
		return 0, 0, err
	}
	done := make(chan struct{})
	l.idle = done
	found := struct {
		grads    []float32
		loss     float64
		examples int
		err      error
	}{grads: make([]float32, len(grads))} // grads belong to the worker again when the gradient is given up
	go func() {
		defer close(done)
		before := l.sum()
		found.loss, found.examples, found.err = l.inner(ctx, l.params, found.grads, id)
		for i := 0; i < 50 && ctx.Err() != nil; i++ {
			if l.sum() != before {
				l.torn = fmt.Errorf("%w: %v", errTorn, id)
			}
		}
	}()
	select {
	case <-done:
		copy(grads, found.grads)
		return found.loss, found.examples, found.err
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

// sum returns a checksum of the parameters.
func (l *lent) sum() (sum uint64) {
	for _, p := range l.params {
		sum = sum*31 + uint64(math.Float32bits(p))
	}
	return sum
}
