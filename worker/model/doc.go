// Package model describes models and computes their gradients.
//
// A Description says what a model is: its layers, the shapes of its tensors, how they are initialised.
// A Model computes: the gradient of a batch, and how good parameters are. New executes a description
// with Gorgonia; package worker/engine executes the same description natively, and modeltest.Check holds all engines
// to one contract, whose oracle is a slow forward pass in float64.
//
// # Contract
//
// A gradient is a pure function of the parameters and the batch: the same bits in give the same bits
// out, whatever was computed before. That is what lets a worker that died and came back, or a second
// worker in its slot, send the very gradient that was expected. Dropout masks and the noise of a
// quadratic are therefore drawn from Batch.Seed, by counting, and never from a generator with a state.
//
// # Memory
//
// The caller owns parameters and gradients, two flat vectors in the order of Tensors. A model reads and
// writes them where they are, without copying, and may be given another slice on each call: a worker
// pulls the next parameters into one buffer while it computes on the other. A model keeps no reference
// that it would use after a call has returned.
package model
