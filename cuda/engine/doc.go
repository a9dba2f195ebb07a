// Package engine executes a model.Description on a GPU. Begin with [New] and [Engine]. [Compressed]
// also encodes the gradients on the GPU.
//
// For each gradient, parameters and examples are copied to the GPU, and the gradient is copied
// back; everything in between stays on the GPU. Layers are those of package worker/engine, composed
// of the kernels of cuda/kernel: matrix products with bias and ReLU, and kernels that work value by
// value or row by row.
//
// # Bits
//
// A gradient has the same bits in every run and on any number of multiprocessors: no kernel depends
// on the order in which blocks run. With cuBLAS (see [Products]) that holds for one version of it
// on one kind of GPU, since it has a stream and memory of its own and no atomics. In TF32 and BF16
// it holds for one kind of GPU in any case: the order in which a matrix unit adds a few products is
// its own.
//
// A gradient does not have the bits of another engine: sums run in other orders, and the
// exponential is the GPU's. Tests bound the distance to the host's gradient, relative to its norm:
// 2e-5 in FP32; 5e-3 with products in TF32, whose factors have 11 bits; 4e-2 in BF16, with 8 bits.
package engine
