package driver

import (
	"slices"
	"testing"
)

// According to cuda.h of CUDA 13.0, these errors leave the process in an inconsistent state, or
// mean that it must be restarted. Some say it in other words: memory that cannot be corrected, an
// assertion, a context that is gone.
func TestErrorsThatLoseTheGPU(t *testing.T) {
	lost := []int{214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999}
	// Out of memory, missing functions, launches that are too large, memory that is registered
	// already, failed captures, and limits of MPS.
	kept := []int{1, 2, 201, 222, 500, 600, 701, 704, 705, 708, 711, 712, 713, 720, 805, 808, 809, 900, 901, 904, 905, 908}
	for _, code := range slices.Concat(lost, kept) {
		if got, want := (&Error{Code: code}).Fatal(), slices.Contains(lost, code); got != want {
			t.Errorf("error %d loses the GPU: %v, want %v", code, got, want)
		}
	}
}
