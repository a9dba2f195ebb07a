package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// The plane that the regression has to find, and the number of examples.
var plane = [3]float32{3, -2, 0.5} // y = 3·x₀ − 2·x₁ + 0.5

const planeExamples = 1024

// regression is a linear regression in plain Go: y = w₀·x₀ + w₁·x₁ + b.
func regression() (job, error) {
	// The parameters of a model are one flat vector. The layout says which tensors are in it: here
	// values 0 and 1 are w, and value 2 is b.
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{2}}, {Name: "b", Shape: []int{1}}})
	if err != nil {
		return job{}, err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	xs, ys := make([][2]float32, planeExamples), make([]float32, planeExamples)
	for i := range xs {
		x := [2]float32{2*rng.Float32() - 1, 2*rng.Float32() - 1}
		xs[i], ys[i] = x, plane[0]*x[0]+plane[1]*x[1]+plane[2]+0.1*float32(rng.NormFloat64())
	}
	return job{
		name:     "a plane",
		layout:   layout,
		start:    func([]float32) {}, // start from zeros
		gradient: func() (worker.Gradient, func() error, error) { return planeGradient(xs, ys), nothing, nil },
		rate:     0.1,
		steps:    100,
		judge: func(p []float32) (string, error) {
			return fmt.Sprintf("y = %.2f·x₀ %+.2f·x₁ %+.2f; the points were drawn about %.2f %+.2f %+.2f",
				p[0], p[1], p[2], plane[0], plane[1], plane[2]), nil
		},
	}, nil
}

func nothing() error { return nil }

// planeGradient returns a function that computes the gradient of ½·(w·x + b − y)², averaged over a
// batch.
//
// A gradient must depend on the parameters and the push id, and on nothing else. The Sampler does
// this for the choice of examples: it has no random generator with a state, and no position in the
// data. So a worker that dies and comes back computes exactly the gradient that the others wait
// for.
func planeGradient(xs [][2]float32, ys []float32) worker.Gradient {
	sampler := data.Sampler{N: len(xs), Batch: 16, Slots: workers, Seed: 1}
	var batch []int // reused between calls to save garbage: Indices overwrites it
	return func(_ context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		batch = sampler.Indices(batch, id.Slot, id.Version, id.Sequence)
		clear(grads) // grads still holds an earlier gradient
		loss, n := 0.0, float32(len(batch))
		for _, i := range batch {
			x := xs[i]
			d := params[0]*x[0] + params[1]*x[1] + params[2] - ys[i]
			loss += float64(d*d) / 2
			grads[0] += d * x[0] / n
			grads[1] += d * x[1] / n
			grads[2] += d / n
		}
		return loss / float64(n), len(batch), nil
	}
}
