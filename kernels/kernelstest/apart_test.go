package kernelstest

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// The fastest device of the host behind the obvious accelerator: the test of accelerators, tested.
func TestTheObviousAcceleratorKeepsTheContract(t *testing.T) {
	RunArrays(t, Apart(kernels.Best()))
}
