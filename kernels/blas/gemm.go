package blas

import gonumblas "gonum.org/v1/gonum/blas"

// Gemm is the matrix product, the one operation of BLAS that engines need.
//
// Sgemm computes C = alpha·op(A)·op(B) + beta·C of row-major matrices. op(A) is m×k, op(B) is k×n,
// C is m×n; op transposes if its flag says so. lda, ldb and ldc are the distances, in values, from
// one stored row to the next. With beta = 0 it does not read C; with alpha = 0 it reads neither A
// nor B. C must not overlap A or B. It keeps no reference to the slices. It panics on dimensions
// that do not fit their slices.
//
// Any number of goroutines may call Sgemm at once. If the library has one thread, each call
// computes on its caller's thread alone. Its bits then depend on the arguments alone, not on
// addresses or on what else runs.
type Gemm interface {
	Sgemm(transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int)
	String() string
}

// GemmOf returns the product of an opened BLAS, which uses as many threads as that BLAS. An engine
// with threads of its own opens the BLAS with one thread.
func GemmOf(impl Implementation) Gemm { return product{impl} }

type product struct{ impl Implementation }

func (p product) String() string { return p.impl.String() }

func (p product) Sgemm(transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	p.impl.Sgemm(flag(transA), flag(transB), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

func flag(trans bool) gonumblas.Transpose {
	if trans {
		return gonumblas.Trans
	}
	return gonumblas.NoTrans
}
