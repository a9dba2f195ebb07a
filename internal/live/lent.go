package live

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// lent is a worker's gradient that is computed elsewhere, on memory that the worker uses too: as by a
// program, it returns when its context ends, and for a while longer the parameters are read and the
// gradient is written.
type lent struct {
	inner         worker.Gradient
	params, grads []float32
	touched       []byte
	idle          chan struct{} // closed when nothing uses them
	torn          error         // once idle: params were written while they were read
}

var errTorn = errors.New("parameters were written while an earlier gradient read them")

// lend returns a gradient that computes what inner does, and the memory that it uses.
func lend(inner worker.Gradient, values int) (worker.Gradient, *worker.InPlace) {
	l := &lent{inner: inner, params: make([]float32, values), grads: make([]float32, values), idle: make(chan struct{})}
	l.touched = make([]byte, kernels.Spots(values))
	close(l.idle)
	return l.gradient, &worker.InPlace{Params: l.params, Grads: l.grads, Touched: l.touched, Settle: l.settle}
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
	var found struct {
		loss     float64
		examples int
		err      error
	}
	go func() {
		defer close(done)
		before := l.sum()
		found.loss, found.examples, found.err = l.inner(ctx, l.params, l.grads, id)
		clear(l.touched)
		for i, g := range l.grads {
			if math.Float32bits(g) != 0 {
				l.touched[i/kernels.Spot] = 1
			}
		}
		for i := 0; i < 50 && ctx.Err() != nil; i++ {
			if l.sum() != before {
				l.torn = fmt.Errorf("%w: %v", errTorn, id)
			}
		}
	}()
	select {
	case <-done:
		if &grads[0] != &l.grads[0] {
			copy(grads, l.grads)
		}
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
