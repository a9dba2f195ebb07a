package kernelstest

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// The test of accelerators is tested with the host's fastest device behind the obvious accelerator.
func TestTheObviousAcceleratorKeepsTheContract(t *testing.T) {
	RunArrays(t, Apart(kernels.Best()))
}
