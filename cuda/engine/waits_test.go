//go:build gpu && cgo && linux

package engine_test

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/cuda/engine"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

// From the second gradient of a shape on, all of it is one launch, with the bits of a gradient that
// is queued step by step. The same holds for evaluations.
func TestWhatIsOneLaunchHasTheBitsOfWhatIsQueued(t *testing.T) {
	for name, c := range map[string]struct {
		model    string
		examples int
		pieces   int
		cuBLAS   bool
	}{
		"images":   {model: "convolutions", examples: 2, pieces: 1},
		"noise":    {model: "pool and noise", examples: 2, pieces: 1},
		"branches": {model: "nested branches", examples: 1, pieces: 1},
		"pieces":   {model: "bigrams", examples: 300, pieces: 2},
		"library":  {model: "dense", examples: 2, pieces: 1, cuBLAS: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.cuBLAS && !hasCuBLAS(t) {
				t.Skip("there is no cuBLAS; install it, or run without -real")
			}
			m := models[c.model]
			d, err := model.Describe("test", m.in, model.Defaults{}, m.layers...)
			if err != nil {
				t.Fatal(err)
			}
			const times = 3
			params, batches := initial(t, d), [times]model.Batch{}
			want, wantLoss := [times][]float32{}, [times]float64{}
			emulate.Calm(t, func() {
				for i := range batches {
					batches[i], want[i] = modeltest.RandomBatch(m.in, c.examples, uint64(i)), make([]float32, len(params))
					batches[i].Seed = uint64(i)
					wantLoss[i] = both(t, newEngine(t, d, c.cuBLAS), params, want[i], batches[i])
				}
			})
			e, got := newEngine(t, d, c.cuBLAS), make([]float32, len(params))
			for i, b := range batches {
				if loss := both(t, e, params, got, b); !slices.Equal(got, want[i]) || loss != wantLoss[i] {
					t.Errorf("gradient %d, or the losses of %v and %v, have other bits than those of an engine that queues them", i, loss, wantLoss[i])
				}
			}
			if n := 2 * c.pieces * (times - 1); e.Replayed() != n {
				t.Errorf("%d pieces were computed in one launch, want %d: all but the first of each shape: %v", e.Replayed(), n, e.Eager())
			}
		})
	}
}

func newEngine(t *testing.T, d *model.Description, cuBLAS bool) *engine.Engine {
	t.Helper()
	if cuBLAS {
		return open(t, d, withCuBLAS(t))
	}
	return open(t, d, engine.Options{})
}

// both computes a gradient and evaluates its batch, and returns the sum of the two losses.
func both(t *testing.T, e *engine.Engine, params, grads []float32, b model.Batch) float64 {
	t.Helper()
	loss, err := e.Gradient(params, grads, b)
	if err != nil {
		t.Fatal(err)
	}
	evaluated, _, err := e.Evaluate(params, b)
	if err != nil {
		t.Fatal(err)
	}
	return loss + evaluated
}

// Each wait of a queue for another, except for some that are listed, orders works that touch the
// same bytes, both when they are queued and in programs. So the emulation would find a missing one.
func TestEveryWaitIsNeeded(t *testing.T) {
	const tests, compressed, steps = "WhatIsOneLaunchHasTheBits", "CompressedGradients", "LocalStepsAreEncoded"
	patterns := []string{
		compressed + "/^sparse$", tests + "/images", tests + "/noise", tests + "/branches", tests + "/pieces", tests + "/library", compressed + "/^int8$", compressed + "/^topk:0.2$", steps + "/^int8$",
	}
	if testing.Short() {
		patterns = patterns[:1] // a test runs once for each wait
	}
	emulate.EveryWaitIsNeeded(t, patterns, map[string][]int{
		// The end of a gradient waits for what was computed beside it. link, which takes that away
		// and for which it waits too, has waited for it already.
		compressed + "/^sparse$": {5, 12, 18, 25}, compressed + "/^int8$": {8, 18, 27, 37}, compressed + "/^topk:0.2$": {5, 12, 18, 25},
		tests + "/images": {11, 29}, tests + "/noise": {8, 22}, tests + "/pieces": {9, 25}, tests + "/library": {11, 29},
		tests + "/branches": {22, 52, 18, 48}, // a branch in which nothing is computed beside it still waits for what was before
	})
}
