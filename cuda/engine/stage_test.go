//go:build gpu && cgo && linux

package engine_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/cuda/engine"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

// bigrams is a model whose batches have several pieces if they have more than 292 examples. The
// emulation computes it quickly.
func bigrams(t *testing.T) *model.Description {
	t.Helper()
	d, err := model.Describe("test", tokens, model.Defaults{}, models["bigrams"].layers...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Whatever was staged, and whatever is computed meanwhile, a gradient is that of its own batch.
// Work is done at once, and as late as possible.
func TestAStagedBatchHasItsGradient(t *testing.T) {
	d := bigrams(t)
	params := initial(t, d)
	batches := []model.Batch{}
	for i, n := range []int{5, 3, 300, 5, 1} {
		b := modeltest.RandomBatch(tokens, n, uint64(i))
		b.Seed = uint64(i)
		batches = append(batches, b)
	}
	plain := open(t, d, engine.Options{})
	want := make([][]float32, len(batches))
	for i, b := range batches {
		want[i] = make([]float32, len(params))
		if _, err := plain.Gradient(params, want[i], b); err != nil {
			t.Fatal(err)
		}
	}
	for _, schedule := range []string{"1", "3"} {
		t.Run(schedule, func(t *testing.T) {
			t.Setenv(emulate.Schedule, schedule)
			e := open(t, d, engine.Options{})
			staged := 0
			for _, step := range []struct {
				stage   []int // one after the other; the last two are kept
				compute int
				staged  bool
			}{
				{[]int{0}, 0, true}, {[]int{1}, 1, true}, {nil, 1, true}, // again, since its push was lost
				{[]int{2}, 2, true}, {[]int{3}, 4, false}, {nil, 3, true}, {[]int{0, 1, 2}, 0, false}, {nil, 1, true}, {nil, 2, true},
			} {
				for _, i := range step.stage {
					e.Stage(batches[i])
				}
				if step.staged {
					staged++
				}
				got := make([]float32, len(params))
				if _, err := e.Gradient(params, got, batches[step.compute]); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, want[step.compute]) {
					t.Fatalf("%+v: the gradient has other bits", step)
				}
				if e.Staged() != staged {
					t.Fatalf("%+v: %d batches were there when they were asked for, want %d", step, e.Staged(), staged)
				}
			}
		})
	}
}

// If another batch is written to the memory of a staged one, it has another seed and is not taken
// for it.
func TestABatchInTheMemoryOfAnotherIsNotTakenForIt(t *testing.T) {
	d := bigrams(t)
	params, e := initial(t, d), open(t, d, engine.Options{})
	b, other := modeltest.RandomBatch(tokens, 4, 1), modeltest.RandomBatch(tokens, 4, 2)
	want, got := make([]float32, len(params)), make([]float32, len(params))
	if _, err := e.Gradient(params, want, other); err != nil {
		t.Fatal(err)
	}
	b.Seed = 1
	e.Stage(b)
	copy(b.X, other.X)
	copy(b.Y, other.Y)
	b.Seed = 2
	if _, err := e.Gradient(params, got, b); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Error("the gradient is of the batch that was there before")
	}
}

// A goroutine stages batches while gradients are computed, and after the engine is closed.
func TestBatchesAreStagedBesideGradients(t *testing.T) {
	d := bigrams(t)
	params, e := initial(t, d), open(t, d, engine.Options{})
	batches := make([]model.Batch, 6)
	for i := range batches {
		batches[i] = modeltest.RandomBatch(tokens, 3, uint64(i))
		batches[i].Seed = uint64(i)
	}
	e.Stage(batches[0])
	got := make([]float32, len(params))
	staged := make(chan struct{})
	for i, b := range batches {
		go func() {
			e.Stage(batches[(i+1)%len(batches)])
			staged <- struct{}{}
		}()
		if _, err := e.Gradient(params, got, b); err != nil {
			t.Fatal(err)
		}
		<-staged
	}
	if n := e.Staged(); n != len(batches) {
		t.Errorf("%d of %d batches were there when they were asked for", n, len(batches))
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e.Stage(batches[0])
}

// endsAt is a context that ends after it was asked a number of times.
type endsAt struct {
	context.Context
	asked *int
	last  int
}

func (c endsAt) Err() error {
	if *c.asked++; *c.asked > c.last {
		return context.Canceled
	}
	return nil
}

// A gradient that is no longer waited for ends with its present piece. It leaves nothing behind,
// neither in later gradients nor in the residual.
func TestAGradientIsGivenUpBetweenPieces(t *testing.T) {
	d := bigrams(t)
	params, b := initial(t, d), modeltest.RandomBatch(tokens, 600, 1) // three pieces
	l, err := kintsugi.NewLayout(d.Tensors())
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range []string{"int8", "topk:0.1"} {
		t.Run(spec, func(t *testing.T) {
			codec, err := compress.Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			plain, host := open(t, d, engine.Options{}), compress.NewFeedback(codec, l, 7)
			c, err := engine.NewCompressed(open(t, d, engine.Options{}), l, codec, 7)
			if err != nil {
				t.Fatal(err)
			}
			grads := make([]float32, len(params))
			for n := range 3 {
				id := kintsugi.PushID{Line: 1, Version: kintsugi.Step(n)}
				asked := 0
				ctx := endsAt{t.Context(), &asked, n + 1}
				_, err := c.Gradient(ctx, params, id, b)
				if n < 2 {
					if !errors.Is(err, context.Canceled) || asked != n+2 {
						t.Fatalf("gradient %d: error %v after %d questions, want context.Canceled after %d", n, err, asked, n+2)
					}
					id.Sequence++
					if _, err = c.Gradient(t.Context(), params, id, b); err != nil {
						t.Fatal(err)
					}
				} else if err != nil {
					t.Fatalf("a gradient of three pieces, which is not given up: %v", err)
				}
				if _, err := plain.Gradient(params, grads, b); err != nil {
					t.Fatal(err)
				}
				same(t, c, host, codec, id, l, grads)
				c.Counted(id)
				host.Counted(id)
			}
			if got, want := c.Drop(), host.Drop(); !(math.Abs(got-want) <= 1e-6*want) {
				t.Errorf("a residual of norm %v is left, want %v", got, want)
			}
		})
	}
}
