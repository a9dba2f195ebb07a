//go:build !asan && !race

// These tests are not built with AddressSanitizer, which allocates at each call of C, nor with the
// race detector, under which a sync.Pool drops items at random.

package kernels_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

func TestStepsDoNotAllocate(t *testing.T) {
	for _, d := range kernels.Devices() {
		for _, k := range []int{4, 64} {
			s := newStep(kernels.AdamW, 1000, k, rand.New(rand.NewPCG(1, 1)), false)
			if n := testing.AllocsPerRun(100, func() { d.Step(s) }); n > 0 {
				t.Errorf("%s: a step of %d operands allocates %v times", d.Name(), k, n)
			}
		}
	}
}

func TestEncodersDoNotAllocate(t *testing.T) {
	const n = 5000
	x, residual := values(rand.New(rand.NewPCG(1, 1)), n, false), make([]float32, n)
	dst, index, value := make([]byte, 4*n), make([]int32, 50), make([]float32, 50)
	for _, d := range kernels.Devices() {
		for name, f := range map[string]func(){
			"EncodeBF16":           func() { d.EncodeBF16(dst[:2*n], x, residual, residual) },
			"EncodeInt8Stochastic": func() { d.EncodeInt8Stochastic(dst[:kernels.Int8Bytes(n)], x, residual, residual, 1) },
			"EncodeInt4":           func() { d.EncodeInt4(dst[:kernels.Int4Bytes(n)], x, residual, residual) },
			"EncodeSign":           func() { d.EncodeSign(dst[:kernels.SignBytes(n)], x, residual, residual) },
			"Select":               func() { d.Select(index, value, x, residual, residual) },
			"Select without":       func() { d.Select(index, value, x, residual, nil) },
			"AppendSparse":         func() { kernels.AppendSparse(d, dst[:0], kernels.Sparse16, 50, x, residual, residual) },
		} {
			if count := testing.AllocsPerRun(100, f); count > 0 {
				t.Errorf("%s: %s allocates %v times", d.Name(), name, count)
			}
		}
	}
}
