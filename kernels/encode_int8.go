package kernels

import (
	"encoding/binary"
	"math"
)

// Int8: q = y/scale, rounded to nearest even or at random, with scale = max|y|/127 of the block.
// The quotient is computed as y·(1/scale), so 1/scale must be finite. A block whose scale is below
// the smallest normal float32 is therefore sent as zeros with the scale 0, and its residual is all
// of y: an error of at most 2⁻¹¹⁹ for each value. A scale whose product with 127 would overflow is
// replaced by the next smaller float32.

// key determines the random numbers of one payload: see noise.
type key struct{ a, b uint32 }

// keyOf spreads the seed over both words (splitmix64), so that neighbouring seeds give unrelated
// numbers.
func keyOf(seed uint64) key {
	z := seed + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return key{uint32(z), uint32(z >> 32)}
}

// noise returns random bits for element i. It is a pure function of counter and key, so that a
// payload can be made again and elements may be processed in any order. Stochastic rounding needs
// only that the elements' bits are unrelated.
func (k key) noise(i uint32) uint32 {
	z := i*0x9e3779b9 + k.a
	z = (z ^ z>>16) * 0x7feb352d
	z ^= k.b
	z = (z ^ z>>15) * 0x846ca68b
	return z ^ z>>16
}

// blockScale returns the scale of a block and its inverse; codes go up to levels. Both are 0 for a
// block that is sent as zeros. No scale exceeds limit.
func blockScale(y []float32, levels, limit float32) (scale, inverse float32) {
	most := uint32(0)
	for _, v := range y {
		most = max(most, math.Float32bits(v)&0x7fffffff)
	}
	scale = min(math.Float32frombits(most)/levels, limit)
	if scale < 0x1p-126 {
		return 0, 0
	}
	return scale, 1 / scale
}

// encodeInt8 encodes the values from lo on; lo is the start of a block. With a key, it rounds at
// random.
func encodeInt8(dst []byte, x, carry, residual []float32, k *key, lo int) {
	codes := dst[4*blocks(len(x)):]
	var sum, value [block]float32
	for ; lo < len(x); lo += block {
		y := feed(&sum, x, carry, lo)
		scale, inverse := blockScale(y, 127, maxInt8Scale)
		binary.LittleEndian.PutUint32(dst[lo/block*4:], math.Float32bits(scale))
		q, d := codes[lo:][:len(y)], value[:len(y)]
		for i, v := range y {
			v = float32(v * inverse)
			if k != nil {
				v = roundAtRandom(v, k.noise(uint32(lo+i)))
			}
			// The last bits of 1.5·2²³ + v are v, rounded to nearest even; it is at most 127 away
			// from 0.
			n := int8(math.Float32bits(v + 0x1.8p23))
			q[i] = byte(n)
			d[i] = float32(scale * float32(n))
		}
		lost(residual, lo, y, d)
	}
}

// roundAtRandom rounds v up with a probability equal to its distance from the integer below, to
// within 2⁻²⁴, so that the mean of many roundings is v. The clamp catches a v whose product was
// rounded to just beyond ±127.
func roundAtRandom(v float32, noise uint32) float32 {
	below := float32(math.Floor(float64(v)))
	if float32(noise>>8)*0x1p-24 < v-below {
		below++
	}
	return max(-127, min(127, below))
}

func (host) EncodeInt8(dst []byte, x, carry, residual []float32) error {
	checkEncode("Int8", dst, Int8Bytes(len(x)), x, carry, residual)
	encodeInt8(dst, x, carry, residual, nil, 0)
	return nil
}

func (host) EncodeInt8Stochastic(dst []byte, x, carry, residual []float32, seed uint64) error {
	checkEncode("Int8", dst, Int8Bytes(len(x)), x, carry, residual)
	k := keyOf(seed)
	encodeInt8(dst, x, carry, residual, &k, 0)
	return nil
}
