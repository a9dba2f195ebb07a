// Package engine executes a model.Description natively on the CPU. It is the default engine of
// workers. Begin reading at Engine, then layer and pass (layer.go).
//
// Gorgonia derives the gradients of any graph. The price is memory that it allocates anew in every
// step, and operations that each pass over a batch separately. This package composes the layers of
// a description by hand instead. A convolution is computed together with the ReLU and the pooling
// that follow it. A BLAS computes the products of dense layers, and package kernels/nn the rest.
//
// # Structure
//
// A layer computes its result and its gradient for all examples of a piece of the batch at once. A
// chain runs the layers forward one after the other, and then backward. A layer divides its work
// into parts, whose number depends only on shapes, and a pool runs the parts on threads. The
// gradient of a parameter is summed by one part, or by several parts into separate arrays that are
// then added in order. So the bits of a gradient do not depend on the number of threads. Between
// two layers the context is checked: a gradient that is no longer needed ends within milliseconds.
//
// # Memory
//
// Layers keep their results, which take a few times the memory of the examples of a piece. A piece
// has at most 256 examples, or 1024 positions of sequences; a larger batch is computed in several
// pieces. Arrays grow when a piece is larger than any before. Otherwise a step allocates nothing.
package engine
