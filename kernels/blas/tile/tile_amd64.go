package tile

import "golang.org/x/sys/cpu"

// Have reports whether this processor can run the functions below.
var Have = cpu.X86.HasAVX2 && cpu.X86.HasFMA

// Chains sets sum, 6 × 16 row-major, to sum[16·r + s] = Σ a[6·l + r]·b[16·l + s] over l < depth.
// depth is positive. Each sum is one chain of fused multiply-adds, from +0 in ascending order of l.
// a has at least 6·depth values, b at least 16·depth.
func Chains(depth int, a, b []float32, sum *[96]float32) {
	_, _ = a[6*depth-1], b[16*depth-1]
	chains(depth, &a[0], &b[0], sum)
}

// Lanes adds a[16·l + u]·b[16·l + u] to lane u, with fused multiply-adds and in ascending order of
// l, for all whole groups of 16 values. It returns the number of values that it has taken. b must
// be as long as a.
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
