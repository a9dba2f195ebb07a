package blas

import (
	"fmt"

	gonumblas "gonum.org/v1/gonum/blas"
)

// The checks below keep a wrong dimension from C code, which would read past a slice.

func checkGemm(tA, tB gonumblas.Transpose, m, n, k, lenA, lda, lenB, ldb, lenC, ldc int) {
	checkMatrix("A", tA, m, k, lenA, lda)
	checkMatrix("B", tB, k, n, lenB, ldb)
	checkMatrix("C", gonumblas.NoTrans, m, n, lenC, ldc)
}

// checkMatrix panics unless length values hold a row-major matrix whose op is rows×cols.
func checkMatrix(name string, t gonumblas.Transpose, rows, cols, length, ld int) {
	switch t {
	case gonumblas.NoTrans:
	case gonumblas.Trans, gonumblas.ConjTrans:
		rows, cols = cols, rows
	default:
		panic(fmt.Sprintf("blas: transpose of %s is %q", name, byte(t)))
	}
	if rows < 0 || cols < 0 || ld < max(1, cols) {
		panic(fmt.Sprintf("blas: %s is %d×%d with row stride %d", name, rows, cols, ld))
	}
	if rows > 0 && cols > 0 && length < (rows-1)*ld+cols {
		panic(fmt.Sprintf("blas: %s is %d×%d with row stride %d but holds only %d values", name, rows, cols, ld, length))
	}
}

// checkVector panics unless length values hold n values with the given increment.
func checkVector(name string, n, inc, length int) {
	if n < 0 || inc == 0 {
		panic(fmt.Sprintf("blas: vector %s has %d values with increment %d", name, n, inc))
	}
	if n > 0 && length < (n-1)*max(inc, -inc)+1 {
		panic(fmt.Sprintf("blas: vector %s has %d values with increment %d but holds only %d", name, n, inc, length))
	}
}

// checkGemv panics unless the operands of y = op(A)·x fit an m×n matrix A.
func checkGemv(t gonumblas.Transpose, m, n, lenA, lda, lenX, incX, lenY, incY int) {
	checkMatrix("A", gonumblas.NoTrans, m, n, lenA, lda)
	rows, cols := m, n
	if t != gonumblas.NoTrans {
		rows, cols = n, m
	}
	checkVector("x", cols, incX, lenX)
	checkVector("y", rows, incY, lenY)
}
