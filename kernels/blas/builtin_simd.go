//go:build cgo && (amd64 || arm64) && !windows

package blas

// #cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
// #cgo noescape kin_sgemm
// #cgo nocallback kin_sgemm
// #include "gemm.h"
import "C"

import (
	"sync"
	"unsafe"

	gonumblas "gonum.org/v1/gonum/blas"
)

var detected = sync.OnceValue(func() int { return int(C.kin_gemm_detect()) })

// builtinLevels returns the levels that this machine can run, the fastest last.
func builtinLevels() []int {
	levels := goLevels()
	for _, level := range []int{C.kin_gemm_avx2, C.kin_gemm_avx512, C.kin_gemm_neon} {
		if detected()&(1<<level) != 0 {
			levels = append(levels, level)
		}
	}
	return levels
}

func levelName(level int) string {
	return [...]string{plainGo: "Go", assembly: "AVX2 without C", C.kin_gemm_avx2: "AVX2", C.kin_gemm_avx512: "AVX-512", C.kin_gemm_neon: "NEON"}[level]
}

// The compiler rejects this line if the two sizes differ.
var _ = [1]struct{}{}[C.kin_gemm_arena-arenaSize]

func simdGemm(level int, tA, tB gonumblas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int, dots bool) {
	arena := builtinArenas.get()
	C.kin_sgemm(C.int(level), cbool(tA != gonumblas.NoTrans), cbool(tB != gonumblas.NoTrans), C.size_t(m), C.size_t(n), C.size_t(k),
		C.float(alpha), cfloats(a), C.size_t(lda), cfloats(b), C.size_t(ldb), C.float(beta), cfloats(c), C.size_t(ldc), cfloats(arena[:]), cbool(dots))
	builtinArenas.put(arena)
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func cfloats(s []float32) *C.float { return (*C.float)(unsafe.Pointer(unsafe.SliceData(s))) }
