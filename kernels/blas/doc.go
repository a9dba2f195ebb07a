// Package blas computes matrix products for gradients on the host. It finds the BLAS of the machine
// at run time, or computes products itself. Begin with [Open], and with [Gemm], the one operation
// that engines use.
//
// Gradients on the host are mostly matrix products, and a tuned library computes those several
// times faster than portable Go. Which library is installed is a property of the machine, not of
// the binary. So the library is loaded when the process starts and is never linked: a binary built
// anywhere runs everywhere.
//
// If there is no library, or only one that does not know the processor, "builtin" computes the
// products. It is blocked C code with AVX-512, AVX2 or NEON. Without a C compiler it is in Go's
// assembler (package tile) on amd64 with AVX2, otherwise in plain Go. For the products of small
// models it is faster than OpenBLAS, since it reads operands in place.
//
// # Bits
//
// "gonum" with one thread is the reference: on one architecture the same inputs give the same bits
// in every run, whatever GOMAXPROCS is. OpenBLAS and MKL choose their kernels by processor model.
// So their results are bounded (within rounding of the reference), and not equal between machines;
// on one machine with one thread they repeat.
//
// "builtin" has the same bits on every processor with SIMD and for any number of threads. The
// comment of its type specifies them, and tests compare them with a slow product that rounds in
// that way. Plain Go has other bits, the same everywhere. The two agree within rounding.
//
// Gonum skips products whose left factor is zero, so a NaN or Inf in the right factor can vanish
// there; the libraries multiply. Checks for non-finite values therefore look at inputs and results,
// and do not rely on the product.
package blas
