// Package blas finds a BLAS at run time.
//
// Gradients on the host are mostly matrix products, and a tuned library computes them several times
// faster than portable Go. Which library is installed is a property of the machine and not of the
// binary, so it is loaded when the process starts and never linked: a binary built anywhere runs
// everywhere.
//
// Where there is none, or one that does not know the processor, "builtin" computes: blocked
// products of our own in C, with AVX-512, AVX2 or NEON; without a C compiler in Go's assembler
// (package tile) on amd64 with AVX2, else in plain Go. For the products of small models it is
// faster than OpenBLAS, since it reads operands where they lie.
//
// # Bits
//
// "gonum" with one thread is the reference: on one architecture the same inputs give the same bits in
// every run, whatever GOMAXPROCS is. OpenBLAS and MKL choose their kernels by processor model, so their
// results are bounded (within rounding of the reference) and not equal between machines; on one machine
// with one thread they repeat.
//
// "builtin" has the same bits on every processor with SIMD and for any number of threads: they are written
// down at its type and tested against a slow product that rounds as they say. Plain Go has bits of its own,
// the same everywhere. The two are within rounding of one another.
//
// Gonum skips products whose left factor is zero, so a NaN or Inf in the right one can vanish there; a
// library multiplies. Checks for non-finite values therefore look at inputs and results, not at this.
package blas
