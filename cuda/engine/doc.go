// Package engine executes a model.Description on a GPU.
//
// Parameters and examples are copied to the GPU for each gradient, and the gradient back; all
// between stays there. Layers are those of package worker/engine, composed of the kernels of
// cuda/kernel: matrix products with the bias and the ReLU behind them, and the rest value by value
// or row by row.
//
// # Bits
//
// A gradient has the same bits in every run, on any number of multiprocessors: no kernel depends on
// the order in which blocks run. With cuBLAS, where [Products] says so, that holds for one version
// of it on one kind of GPU: it has a stream and memory to itself, and no atomics. In TF32 and BF16
// it holds for one kind of GPU in any case: in what order a matrix unit adds a few products is its
// own affair.
//
// A gradient does not have the bits of another engine: sums are in other orders, and the
// exponential is the GPU's. Tests hold it to within 2e-5 of the host's gradient, by norm; with
// products in TF32, whose factors have 11 bits, to 5e-3, and in BF16, with 8 bits, to 4e-2.
package engine
