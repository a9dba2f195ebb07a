package kernels

import (
	"encoding/binary"
	"math"
)

// Int4 is Int8 with 15 levels instead of 255: q = y/scale, rounded to nearest even, with scale =
// max|y|/7 of the block. The largest float32 divided by 7 is exact, so no scale has to be made
// smaller.

// encodeInt4 encodes the values from lo on; lo is the start of a block.
func encodeInt4(dst []byte, x, carry, residual []float32, lo int) {
	codes := dst[4*blocks(len(x)):]
	var sum, value [block]float32
	for ; lo < len(x); lo += block {
		y := feed(&sum, x, carry, lo)
		scale, inverse := blockScale(y, 7, maxInt4Scale)
		binary.LittleEndian.PutUint32(dst[lo/block*4:], math.Float32bits(scale))
		q, d := codes[lo/2:][:(len(y)+1)/2], value[:len(y)]
		clear(q)
		for i, v := range y {
			n := int8(math.Float32bits(float32(v*inverse) + 0x1.8p23)) // as in encodeInt8
			q[i/2] |= byte(n) & 15 << (4 * (i % 2))
			d[i] = float32(scale * float32(n))
		}
		lost(residual, lo, y, d)
	}
}

// int4At returns code i of the codes in q.
func int4At(q []byte, i int) int8 { return int8(q[i/2]<<(4*(1-i%2))) >> 4 }

func (host) EncodeInt4(dst []byte, x, carry, residual []float32) error {
	checkEncode("Int4", dst, Int4Bytes(len(x)), x, carry, residual)
	encodeInt4(dst, x, carry, residual, 0)
	return nil
}
