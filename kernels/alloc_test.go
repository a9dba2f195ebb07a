//go:build !asan

// Not under AddressSanitizer, which allocates at each call of C.

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
