//go:build !amd64

package tile

// Have reports whether this processor can run the functions below.
const Have = false

// Chains panics.
func Chains(int, []float32, []float32, *[96]float32) { panic("tile: not on this processor") }

// Lanes panics.
func Lanes([]float32, []float32, *[16]float32) int { panic("tile: not on this processor") }
