// Package blas finds a BLAS at run time.
//
// Gradients on the host are mostly matrix products, and a tuned library computes them several times
// faster than portable Go. Which library is installed is a property of the machine and not of the
// binary, so it is loaded when the process starts and never linked: a binary built anywhere runs
// everywhere, and with CGO_ENABLED=0 only gonum's Go and assembly code remains.
//
// # Bits
//
// "gonum" with one thread is the reference: on one architecture the same inputs give the same bits in
// every run, whatever GOMAXPROCS is. OpenBLAS and MKL choose their kernels by processor model, so their
// results are bounded (within rounding of the reference) and not equal between machines; on one machine
// with one thread they repeat.
//
// Gonum skips products whose left factor is zero, so a NaN or Inf in the right one can vanish there; a
// library multiplies. Checks for non-finite values therefore look at inputs and results, not at this.
package blas
