package stream_test

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels/stream"
)

// For all sizes and parts, everything that is to be written is written to the last byte, and
// nothing else is touched.
func TestMoveWritesAllOfWhatItIsGiven(t *testing.T) {
	const guard = 0xa5
	for _, n := range []int{0, 1, 63, 64, 65, 1000, 4096 + 17} {
		for _, parts := range []int{1, 2, 7, 100} {
			for offset := range 17 {
				for way := range stream.Past | stream.Ahead + 1 {
					memory := make([]byte, n+128)
					for i := range memory {
						memory[i] = guard
					}
					source := make([]byte, n+3)
					for i := range source {
						source[i] = 0x5a
					}
					// One byte of the sum differs from the guard wherever it is written.
					stream.Move(parts, [][]byte{source[:1:1], source[:n/3]}, [][]byte{memory[offset:][:n:n]}, way)
					for i, v := range memory {
						inside := i >= offset && i < offset+n
						if !inside && v != guard {
							t.Fatalf("%d bytes in %d parts at offset %d: byte %d was written", n, parts, offset, i-offset)
						}
						if inside && v == guard {
							t.Fatalf("%d bytes in %d parts at offset %d: byte %d was not written", n, parts, offset, i-offset)
						}
					}
				}
			}
		}
	}
}
