//go:build cgo && (amd64 || arm64) && !windows

package vector

// #cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
// #cgo asan CFLAGS: -O1
// #cgo noescape kin_sgemm
// #cgo nocallback kin_sgemm
// #include "gemm.h"
import "C"

import (
	"sync"
	"unsafe"
)

// The compiler rejects these lines if the numbers of gemm.h differ from those of doc.go.
var (
	_ = [1]struct{}{}[C.kin_gemm_arena-Scratch]
	_ = [1]struct{}{}[C.kin_gemm_avx2-AVX2]
	_ = [1]struct{}{}[C.kin_gemm_avx512-AVX512]
	_ = [1]struct{}{}[C.kin_gemm_neon-NEON]
)

var detected = sync.OnceValue(func() int { return int(C.kin_gemm_detect()) })

// Sets returns the instruction sets that this machine can run, the fastest last.
func Sets() (sets []int) {
	for _, set := range []int{AVX2, AVX512, NEON} {
		if detected()&(1<<set) != 0 {
			sets = append(sets, set)
		}
	}
	return sets
}

// Product computes C = alpha·op(A)·op(B) + beta·C of row-major matrices, op(A) m×k and op(B) k×n. m, n
// and k are positive, alpha is not 0, and the arrays hold what the numbers say. With dots, each element
// is the dot product of two rows; that requires transB, and that transA is false.
func Product(set int, transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int, scratch *[Scratch]float32, dots bool) {
	C.kin_sgemm(C.int(set), flag(transA), flag(transB), C.size_t(m), C.size_t(n), C.size_t(k),
		C.float(alpha), floats(a), C.size_t(lda), floats(b), C.size_t(ldb), C.float(beta), floats(c), C.size_t(ldc), floats(scratch[:]), flag(dots))
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func floats(s []float32) *C.float { return (*C.float)(unsafe.Pointer(unsafe.SliceData(s))) }
