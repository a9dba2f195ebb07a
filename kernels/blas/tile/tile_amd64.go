package tile

import "golang.org/x/sys/cpu"

// Have reports whether this processor can run the functions below.
var Have = cpu.X86.HasAVX2 && cpu.X86.HasFMA

// Chains sets sum, 6 × 16, to the sums of a[6·l + r]·b[16·l + s] over l below depth, which is
// positive: each is one chain of fused multiply-adds, upwards from +0.
func Chains(depth int, a, b []float32, sum *[96]float32) {
	_, _ = a[6*depth-1], b[16*depth-1]
	chains(depth, &a[0], &b[0], sum)
}

// Lanes adds a[16·l + u]·b[16·l + u] to lane u, fused, for l upwards while 16 values are left, and
// returns how many values it took. b must be as long as a.
func Lanes(a, b []float32, lane *[16]float32) int {
	blocks := len(a) / 16
	if blocks > 0 {
		_ = b[16*blocks-1]
		lanes(blocks, &a[0], &b[0], lane)
	}
	return 16 * blocks
}

//go:noescape
func chains(depth int, a, b *float32, sum *[96]float32)

//go:noescape
func lanes(blocks int, a, b *float32, lane *[16]float32)
