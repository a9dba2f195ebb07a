//go:build !cgo || !(amd64 || arm64) || windows

package blas

import gonumblas "gonum.org/v1/gonum/blas"

// builtinLevels returns the levels that this machine can run, the fastest last.
func builtinLevels() []int { return goLevels() }

func levelName(level int) string {
	if level == assembly {
		return "AVX2 without C"
	}
	return "Go"
}

func simdGemm(int, gonumblas.Transpose, gonumblas.Transpose, int, int, int, float32, []float32, int, []float32, int, float32, []float32, int, bool) {
	panic("blas: this binary has no SIMD")
}
