//go:build !cgo || windows

package stream

import "encoding/binary"

const grain = 64 // bytes: a part of an array ends at a multiple of this

// read keeps the compiler from removing the loop that only reads.
var read uint64

func move(parts int, reads, writes [][]byte, _ Way) {
	var sum uint64
	for part := range parts {
		for _, x := range reads {
			for x = cut(x, part, parts); len(x) >= 8; x = x[8:] {
				sum ^= binary.LittleEndian.Uint64(x)
			}
		}
		for _, x := range writes {
			x = cut(x, part, parts)
			for ; len(x) >= 8; x = x[8:] {
				binary.LittleEndian.PutUint64(x, sum)
			}
			clear(x)
		}
	}
	if sum == 1 {
		read = sum
	}
}

func cut(x []byte, part, parts int) []byte {
	border := func(part int) int {
		if part == parts {
			return len(x)
		}
		return len(x) / parts * part / grain * grain
	}
	return x[border(part):border(part+1)]
}
