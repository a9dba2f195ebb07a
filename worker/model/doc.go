// Package model describes models and computes their gradients. A Description says what a model is:
// its layers, the shapes of its tensors, and how they are initialised. A Model computes the
// gradient of a batch, and evaluates parameters. Begin reading at Description, Lookup (the built-in
// models) and Model.
//
// New executes a description with Gorgonia. Package worker/engine executes the same description
// natively. All engines must fulfil the contract below; modeltest.Check compares them with a slow
// forward pass in float64.
//
// # Contract
//
// A gradient is a pure function of the parameters and the batch: the same input bits give the same
// output bits, whatever was computed before. So a worker that died and came back, or a second
// worker in its slot, sends exactly the gradient that was expected. Dropout masks and the noise of
// a quadratic are therefore drawn from Batch.Seed with counter-based random numbers, and never from
// a generator with a state.
//
// # Memory
//
// The caller owns parameters and gradients: two flat vectors of float32 in the order of Tensors. A
// model reads and writes them in place, without copying. Each call may pass other slices: a worker
// reads the next parameters into one buffer while it computes on the other. A model must not use
// these slices after the call has returned.
package model
