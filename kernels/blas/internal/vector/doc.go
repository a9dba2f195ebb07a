// Package vector has the built-in matrix product in vector instructions, in C, once for each
// instruction set. All of them give the same bits: see the type builtin of package blas. Without C, or
// on other processors, there are no instruction sets, and Product must not be called.
//
// It is a package of its own because one with tests inside, like package blas, is compiled twice, and
// its C code with it.
package vector

// The instruction sets.
const (
	AVX2   = 1
	AVX512 = 2
	NEON   = 3
)

// Scratch is the number of values that Product needs for copies of its operands.
const Scratch = 256*(288+512) + 16
