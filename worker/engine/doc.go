// Package engine executes a model.Description natively on the processor.
//
// Gorgonia derives gradients of any graph, and pays for it with memory it allocates anew in every step and with
// operations that each pass over a batch once more. Here the layers of a description are composed by hand: a
// convolution with the ReLU and the pooling behind it is one, the products of dense layers go to a BLAS, and the
// rest to package kernels/nn.
//
// # Structure
//
// A layer computes its result and its gradient for all examples of a piece of the batch at once; chain runs
// layers one after the other and back. Inside, a layer cuts its work into parts whose number depends on
// shapes alone, and pool runs parts on threads. A parameter's gradient is summed by one part, or by several into arrays
// of their own that are added in order afterwards. So the bits of a gradient do not depend on the number of threads.
// Between two computations of a layer a context is looked at: a gradient that nobody waits for ends within
// milliseconds.
//
// # Memory
//
// Layers keep their results, a few times what the examples of a piece occupy; a piece has at most
// 256 examples, of sequences 1024 positions, and a larger batch is computed in several. Arrays grow
// when a piece is larger than any before; otherwise a step allocates nothing.
package engine
