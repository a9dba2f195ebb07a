package virtual

import "math/rand/v2"

// Problem is the optimisation problem of a Training. It must be safe for concurrent use.
type Problem interface {
	// Values returns the number of parameters.
	Values() int

	// Init writes the initial parameters (version 0).
	Init(params []float32)

	// Gradient sets grads to the gradient of a batch drawn from source, and returns the batch's
	// loss.
	Gradient(params, grads []float32, source *rand.Rand) float64

	// Loss returns the loss that training minimises.
	Loss(params []float32) float64
}

// Divisible is a Problem that can compute a part of a batch.
type Divisible interface {
	Problem

	// Part is Gradient for the first examples of a batch: the given share of them, rounded down. It
	// sets grads to their mean gradient and returns their actual share, 0 if there are none.
	Part(params, grads []float32, source *rand.Rand, share float64) float64
}

// Noisy is the quadratic ½·Σ λ·x². Its gradients have noise with the same standard deviation in
// each coordinate. It is so cheap that ten thousand workers can have gradients of their own.
type Noisy struct {
	Lambda []float32 // curvature of each coordinate
	Sigma  float32
}

// NewNoisy returns a quadratic with the given number of coordinates. Their curvatures grow
// geometrically from 0.02 to 1.
func NewNoisy(values int, sigma float32) Noisy {
	n := Noisy{Lambda: make([]float32, values), Sigma: sigma}
	lambda := float32(1)
	for i := range n.Lambda {
		n.Lambda[i] = lambda
		lambda = max(0.02, 0.8*lambda)
	}
	return n
}

// Values implements Problem.
func (n Noisy) Values() int { return len(n.Lambda) }

// Init implements Problem.
func (n Noisy) Init(params []float32) {
	for i := range params {
		params[i] = 1
	}
}

// Gradient implements Problem.
func (n Noisy) Gradient(params, grads []float32, source *rand.Rand) float64 {
	for i, l := range n.Lambda {
		grads[i] = float32(l*params[i]) + n.Sigma*float32(source.NormFloat64())
	}
	return n.Loss(params)
}

// Loss implements Problem.
func (n Noisy) Loss(params []float32) float64 {
	loss := 0.0
	for i, l := range n.Lambda {
		loss += float64(l) * float64(params[i]) * float64(params[i]) / 2
	}
	return loss
}
