package blas

import (
	"sync"

	gonumblas "gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// serial is the reference: gonum on the calling goroutine alone, with bits that do not depend on
// the addresses of the operands.
//
// Gonum's dot product is its only operation whose bits depend on addresses: it starts with single
// values up to an address that is a multiple of 16, and so groups the rest differently. serial
// computes in other ways what gonum computes with dot products: A·Bᵀ, matrix times vector, and the
// dot product itself. This holds for float32, in which models compute, and for products in float64.
type serial struct{ gonum.Implementation }

func (serial) String() string { return "gonum, 1 thread" }

// Gonum starts goroutines for a product of four or more blocks of 64×64. Panels of three blocks
// stay below that. They are also faster on one core: each row of A reuses a panel of B from the
// cache.
const (
	panelRows  = 64
	panelCols  = 192
	panelDepth = 256 // rows of B that are transposed at a time: 192 KiB, which a second-level cache holds
)

type gemm[T float32 | float64] func(tA, tB gonumblas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)

// Sgemm computes C = alpha·op(A)·op(B) + beta·C. It is ordered: each element is a sum over k in
// ascending order, without the terms whose factor from A is 0.
func (s serial) Sgemm(tA, tB gonumblas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	byPanels(s.Implementation.Sgemm, &scratch32, tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dgemm is Sgemm in float64.
func (s serial) Dgemm(tA, tB gonumblas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	byPanels(s.Implementation.Dgemm, &scratch64, tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

var (
	scratch32 = sync.Pool{New: func() any { return new([panelDepth * panelCols]float32) }}
	scratch64 = sync.Pool{New: func() any { return new([panelDepth * panelCols]float64) }}
)

func byPanels[T float32 | float64](product gemm[T], pool *sync.Pool, tA, tB gonumblas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	checkGemm(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	if k == 0 { // the operands may be empty, and only beta counts
		product(tA, tB, m, n, 0, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	var scratch *[panelDepth * panelCols]T
	depth := k
	if tB != gonumblas.NoTrans {
		scratch = pool.Get().(*[panelDepth * panelCols]T)
		defer pool.Put(scratch)
		depth = panelDepth
	}
	for j := 0; j < n; j += panelCols {
		cols := min(panelCols, n-j)
		for l := 0; l < k; l += depth {
			rows := min(depth, k-l)
			panel, ld := b, ldb
			if scratch != nil {
				panel, ld = scratch[:], cols
				transposeInto(panel, b[j*ldb+l:], rows, cols, ldb)
			} else {
				panel = b[l*ldb+j:]
			}
			scale := beta
			if l > 0 {
				scale = 1
			}
			for i := 0; i < m; i += panelRows {
				product(tA, gonumblas.NoTrans, min(panelRows, m-i), cols, rows, alpha, a[at(tA, i, l, lda):], lda, panel, ld, scale, c[i*ldc+j:], ldc)
			}
		}
	}
}

// transposeInto writes the transpose of b to dst, without gaps. b has cols rows of rows values
// each.
func transposeInto[T float32 | float64](dst, b []T, rows, cols, ldb int) {
	for j := range cols {
		column := b[j*ldb:][:rows]
		at := j
		for _, v := range column {
			dst[at] = v
			at += cols
		}
	}
}

// Sdot returns xᵀy, as the sum of four sums over every fourth value.
func (s serial) Sdot(n int, x []float32, incX int, y []float32, incY int) float32 {
	checkVector("x", n, incX, len(x))
	checkVector("y", n, incY, len(y))
	var sum [4]float32
	ix, iy := start(n, incX), start(n, incY)
	for i := range n {
		sum[i&3] += float32(x[ix] * y[iy])
		ix, iy = ix+incX, iy+incY
	}
	return (sum[0] + sum[1]) + (sum[2] + sum[3])
}

// start returns the index at which a vector with the given increment begins.
func start(n, inc int) int {
	if inc < 0 {
		return (1 - n) * inc
	}
	return 0
}

// Sgemv computes y = alpha·op(A)·x + beta·y for an m×n matrix A.
func (s serial) Sgemv(tA gonumblas.Transpose, m, n int, alpha float32, a []float32, lda int, x []float32, incX int, beta float32, y []float32, incY int) {
	checkGemv(tA, m, n, len(a), lda, len(x), incX, len(y), incY)
	rows, cols := m, n
	if tA != gonumblas.NoTrans {
		rows, cols = n, m
	}
	if rows == 0 || cols == 0 {
		return
	}
	iy := start(rows, incY)
	for i := range rows {
		v := y[iy+i*incY] * beta
		if beta == 0 {
			v = 0 // y may hold anything, NaN too
		}
		y[iy+i*incY] = v
	}
	ix := start(cols, incX)
	if tA == gonumblas.NoTrans {
		for i := range rows {
			from := x
			if incX < 0 { // the row runs forwards
				from = x[:ix+1]
			}
			y[iy+i*incY] += alpha * s.Sdot(cols, a[i*lda:i*lda+cols], 1, from, incX)
		}
		return
	}
	for j := range cols {
		s.Implementation.Saxpy(rows, alpha*x[ix+j*incX], a[j*lda:j*lda+rows], 1, y, incY)
	}
}

// at returns the index in A of element (i, j) of op(A).
func at(t gonumblas.Transpose, i, j, ld int) int {
	if t == gonumblas.NoTrans {
		return i*ld + j
	}
	return j*ld + i
}
