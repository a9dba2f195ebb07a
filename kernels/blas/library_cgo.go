//go:build cgo && linux

package blas

// #cgo LDFLAGS: -ldl
// #cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
// #cgo noescape kin_blas_sgemm
// #cgo nocallback kin_blas_sgemm
// #cgo noescape kin_blas_dgemm
// #cgo nocallback kin_blas_dgemm
// #cgo noescape kin_blas_sgemv
// #cgo nocallback kin_blas_sgemv
// #cgo noescape kin_blas_dgemv
// #cgo nocallback kin_blas_dgemv
// #cgo noescape kin_blas_sger
// #cgo nocallback kin_blas_sger
// #cgo noescape kin_blas_dger
// #cgo nocallback kin_blas_dger
// #cgo noescape kin_blas_sdot
// #cgo nocallback kin_blas_sdot
// #cgo noescape kin_blas_ddot
// #cgo nocallback kin_blas_ddot
// #cgo noescape kin_blas_saxpy
// #cgo nocallback kin_blas_saxpy
// #cgo noescape kin_blas_daxpy
// #cgo nocallback kin_blas_daxpy
// #include <stdlib.h>
// #include "dlopen.h"
import "C"

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"unsafe"

	gonumblas "gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// loaded is a library in this process. It is never unloaded: OpenBLAS leaves threads behind, which
// would run in unmapped code. Operations that are not overridden below stay gonum's; no gradient
// uses them.
type loaded struct {
	gonum.Implementation
	functions *C.struct_kin_blas // in C memory, read-only after openLibrary
	name      string
}

func (l *loaded) String() string { return l.name }

func openLibrary(lib library, threads int) (Implementation, error) {
	functions := (*C.struct_kin_blas)(C.calloc(1, C.sizeof_struct_kin_blas))
	const size = 512
	text := (*C.char)(C.calloc(1, size))
	defer C.free(unsafe.Pointer(text))
	for _, file := range lib.files {
		cfile := C.CString(file)
		status := C.kin_blas_load(functions, cfile, text, size)
		C.free(unsafe.Pointer(cfile))
		switch status {
		case 1:
			continue
		case 2:
			C.free(unsafe.Pointer(functions))
			return nil, fmt.Errorf("load: %s", C.GoString(text))
		}
		threads = min(threads, runtime.GOMAXPROCS(0)) // more threads would only take turns
		if lib.kind == kindMKL {
			C.kin_blas_mkl(functions, C.int(threads), text, size)
		} else {
			C.kin_blas_openblas(functions, C.int(threads), text, size)
		}
		return &loaded{functions: functions, name: C.GoString(text) + ", " + plural(threads)}, nil
	}
	C.free(unsafe.Pointer(functions))
	return nil, fmt.Errorf("%w: %w: the loader knows none of %s; %s",
		kintsugi.ErrUsage, errNotFound, strings.Join(lib.files, ", "), lib.install)
}

// transpose returns CBLAS's number for t. Real matrices have no conjugate.
func transpose(t gonumblas.Transpose) C.int {
	if t == gonumblas.NoTrans {
		return 111
	}
	return 112
}

func f32(s []float32) *C.float  { return (*C.float)(unsafe.Pointer(unsafe.SliceData(s))) }
func f64(s []float64) *C.double { return (*C.double)(unsafe.Pointer(unsafe.SliceData(s))) }

// fits reports whether every dimension fits in the 32-bit integers of the library. Gonum computes
// the others.
func fits(dims ...int) bool {
	for _, d := range dims {
		if d > math.MaxInt32 || d < math.MinInt32 {
			return false
		}
	}
	return true
}

// Sgemm computes C = alpha·op(A)·op(B) + beta·C. It is bounded: each element is a sum in some
// order, within rounding of a sum in any other order.
func (l *loaded) Sgemm(tA, tB gonumblas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	checkGemm(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	if m == 0 || n == 0 || k == 0 || !fits(m, n, k, lda, ldb, ldc) {
		l.Implementation.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	C.kin_blas_sgemm(l.functions, transpose(tA), transpose(tB), C.int(m), C.int(n), C.int(k), C.float(alpha),
		f32(a), C.int(lda), f32(b), C.int(ldb), C.float(beta), f32(c), C.int(ldc))
}

// Dgemm is Sgemm in float64.
func (l *loaded) Dgemm(tA, tB gonumblas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	checkGemm(tA, tB, m, n, k, len(a), lda, len(b), ldb, len(c), ldc)
	if m == 0 || n == 0 || k == 0 || !fits(m, n, k, lda, ldb, ldc) {
		l.Implementation.Dgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	C.kin_blas_dgemm(l.functions, transpose(tA), transpose(tB), C.int(m), C.int(n), C.int(k), C.double(alpha),
		f64(a), C.int(lda), f64(b), C.int(ldb), C.double(beta), f64(c), C.int(ldc))
}

// Sgemv computes y = alpha·op(A)·x + beta·y for an m×n matrix A.
func (l *loaded) Sgemv(tA gonumblas.Transpose, m, n int, alpha float32, a []float32, lda int, x []float32, incX int, beta float32, y []float32, incY int) {
	checkGemv(tA, m, n, len(a), lda, len(x), incX, len(y), incY)
	if m == 0 || n == 0 || !fits(m, n, lda, incX, incY) {
		l.Implementation.Sgemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY)
		return
	}
	C.kin_blas_sgemv(l.functions, transpose(tA), C.int(m), C.int(n), C.float(alpha), f32(a), C.int(lda), f32(x), C.int(incX), C.float(beta), f32(y), C.int(incY))
}

// Dgemv is Sgemv in float64.
func (l *loaded) Dgemv(tA gonumblas.Transpose, m, n int, alpha float64, a []float64, lda int, x []float64, incX int, beta float64, y []float64, incY int) {
	checkGemv(tA, m, n, len(a), lda, len(x), incX, len(y), incY)
	if m == 0 || n == 0 || !fits(m, n, lda, incX, incY) {
		l.Implementation.Dgemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY)
		return
	}
	C.kin_blas_dgemv(l.functions, transpose(tA), C.int(m), C.int(n), C.double(alpha), f64(a), C.int(lda), f64(x), C.int(incX), C.double(beta), f64(y), C.int(incY))
}

// Sger computes A += alpha·x·yᵀ for an m×n matrix A.
func (l *loaded) Sger(m, n int, alpha float32, x []float32, incX int, y []float32, incY int, a []float32, lda int) {
	checkMatrix("A", gonumblas.NoTrans, m, n, len(a), lda)
	checkVector("x", m, incX, len(x))
	checkVector("y", n, incY, len(y))
	if m == 0 || n == 0 || !fits(m, n, lda, incX, incY) {
		l.Implementation.Sger(m, n, alpha, x, incX, y, incY, a, lda)
		return
	}
	C.kin_blas_sger(l.functions, C.int(m), C.int(n), C.float(alpha), f32(x), C.int(incX), f32(y), C.int(incY), f32(a), C.int(lda))
}

// Dger is Sger in float64.
func (l *loaded) Dger(m, n int, alpha float64, x []float64, incX int, y []float64, incY int, a []float64, lda int) {
	checkMatrix("A", gonumblas.NoTrans, m, n, len(a), lda)
	checkVector("x", m, incX, len(x))
	checkVector("y", n, incY, len(y))
	if m == 0 || n == 0 || !fits(m, n, lda, incX, incY) {
		l.Implementation.Dger(m, n, alpha, x, incX, y, incY, a, lda)
		return
	}
	C.kin_blas_dger(l.functions, C.int(m), C.int(n), C.double(alpha), f64(x), C.int(incX), f64(y), C.int(incY), f64(a), C.int(lda))
}

// Sdot returns xᵀy.
func (l *loaded) Sdot(n int, x []float32, incX int, y []float32, incY int) float32 {
	checkVector("x", n, incX, len(x))
	checkVector("y", n, incY, len(y))
	if n == 0 || !fits(n, incX, incY) {
		return l.Implementation.Sdot(n, x, incX, y, incY)
	}
	return float32(C.kin_blas_sdot(l.functions, C.int(n), f32(x), C.int(incX), f32(y), C.int(incY)))
}

// Ddot is Sdot in float64.
func (l *loaded) Ddot(n int, x []float64, incX int, y []float64, incY int) float64 {
	checkVector("x", n, incX, len(x))
	checkVector("y", n, incY, len(y))
	if n == 0 || !fits(n, incX, incY) {
		return l.Implementation.Ddot(n, x, incX, y, incY)
	}
	return float64(C.kin_blas_ddot(l.functions, C.int(n), f64(x), C.int(incX), f64(y), C.int(incY)))
}

// Saxpy computes y += alpha·x.
func (l *loaded) Saxpy(n int, alpha float32, x []float32, incX int, y []float32, incY int) {
	checkVector("x", n, incX, len(x))
	checkVector("y", n, incY, len(y))
	if n == 0 || !fits(n, incX, incY) {
		l.Implementation.Saxpy(n, alpha, x, incX, y, incY)
		return
	}
	C.kin_blas_saxpy(l.functions, C.int(n), C.float(alpha), f32(x), C.int(incX), f32(y), C.int(incY))
}

// Daxpy is Saxpy in float64.
func (l *loaded) Daxpy(n int, alpha float64, x []float64, incX int, y []float64, incY int) {
	checkVector("x", n, incX, len(x))
	checkVector("y", n, incY, len(y))
	if n == 0 || !fits(n, incX, incY) {
		l.Implementation.Daxpy(n, alpha, x, incX, y, incY)
		return
	}
	C.kin_blas_daxpy(l.functions, C.int(n), C.double(alpha), f64(x), C.int(incX), f64(y), C.int(incY))
}
