package driver

import (
	"slices"
	"testing"
)

// The errors of which cuda.h of CUDA 13.0 says that they leave the process in an inconsistent
// state, or that it must be started anew, and what it says as much of in other words: memory that
// cannot be corrected, an assertion, a context that is gone.
func TestErrorsThatLoseTheGPU(t *testing.T) {
	lost := []int{214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999}
	// Out of memory, no such function, a launch of too much, what is registered already, captures
	// that failed, and the limits of MPS.
	kept := []int{1, 2, 201, 222, 500, 600, 701, 704, 705, 708, 711, 712, 713, 720, 805, 808, 809, 900, 901, 904, 905, 908}
	for _, code := range slices.Concat(lost, kept) {
		if got, want := (&Error{Code: code}).Fatal(), slices.Contains(lost, code); got != want {
			t.Errorf("error %d loses the GPU: %v, want %v", code, got, want)
		}
	}
}
