package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Int8Bytes returns the size in bytes of a payload of n values in Int8.
func Int8Bytes(n int) int { return 4*blocks(n) + n }

// Int4Bytes returns the size in bytes of a payload of n values in Int4.
func Int4Bytes(n int) int { return 4*blocks(n) + (n+1)/2 }

// SignBytes returns the size in bytes of a payload of n values in Sign.
func SignBytes(n int) int { return 4*blocks(n) + (n+7)/8 }

// feed returns y for up to block values from lo on. It computes y in sum; if carry is nil, y is x
// itself.
func feed(sum *[block]float32, x, carry []float32, lo int) []float32 {
	hi := min(lo+block, len(x))
	if carry == nil {
		return x[lo:hi]
	}
	y, x, carry := sum[:hi-lo], x[lo:hi], carry[lo:hi]
	for i := range y {
		y[i] = x[i] + carry[i]
	}
	return y
}

// lost sets residual from lo on to y − d. residual may be the same memory as y.
func lost(residual []float32, lo int, y, d []float32) {
	if residual == nil {
		return
	}
	r := residual[lo:][:len(y)]
	for i := range r {
		r[i] = y[i] - d[i]
	}
}

// encodeBF16 encodes the values from lo on.
func encodeBF16(dst []byte, x, carry, residual []float32, lo int) {
	var sum, value [block]float32
	for ; lo < len(x); lo += block {
		y := feed(&sum, x, carry, lo)
		to, d := dst[2*lo:][:2*len(y)], value[:len(y)]
		for i, v := range y {
			b := roundBF16(v)
			binary.LittleEndian.PutUint16(to[2*i:], b)
			d[i] = math.Float32frombits(uint32(b) << 16)
		}
		lost(residual, lo, y, d)
	}
}

// roundBF16 rounds to nearest even. A value beyond the largest finite BF16 becomes that number,
// with its sign.
func roundBF16(v float32) uint16 {
	b := math.Float32bits(v)
	m := min(b&0x7fffffff, 0x7f7f0000)
	m += 0x7fff + m>>16&1
	return uint16(b>>16&0x8000 | m>>16)
}

// encodeFP16 encodes the values from lo on.
func encodeFP16(dst []byte, x, carry, residual []float32, lo int) {
	var sum, value [block]float32
	for ; lo < len(x); lo += block {
		y := feed(&sum, x, carry, lo)
		to, d := dst[2*lo:][:2*len(y)], value[:len(y)]
		for i, v := range y {
			b := roundFP16(v)
			binary.LittleEndian.PutUint16(to[2*i:], b)
			d[i] = fromFP16(b)
		}
		lost(residual, lo, y, d)
	}
}

// roundFP16 rounds to nearest even. A value beyond 65504, the largest finite FP16, becomes that
// number, with its sign.
func roundFP16(v float32) uint16 {
	b := math.Float32bits(v)
	m := min(b&0x7fffffff, 0x477fe000)
	if m < 0x38800000 { // below 2⁻¹⁴: a multiple of 2⁻²⁴, the spacing of floats in [0.5, 1)
		m = math.Float32bits(math.Float32frombits(m)+0.5) - 0x3f000000
	} else {
		m += 0xfff + m>>13&1
		m = (m - 0x38000000) >> 13
	}
	return uint16(b>>16&0x8000 | m)
}

// encodeSign encodes the values from lo on; lo is the start of a block. The mean magnitude of a
// block is summed in float64 in 16 lanes, as the by-products of a step are.
func encodeSign(dst []byte, x, carry, residual []float32, lo int) {
	bits := dst[4*blocks(len(x)):]
	var sum, value [block]float32
	for ; lo < len(x); lo += block {
		y := feed(&sum, x, carry, lo)
		scale := meanMagnitude(y)
		binary.LittleEndian.PutUint32(dst[lo/block*4:], math.Float32bits(scale))
		clear(bits[lo/8 : (lo+len(y)+7)/8])
		d := value[:len(y)]
		for i, v := range y {
			sign := math.Float32bits(v) >> 31
			bits[(lo+i)/8] |= byte(sign << (i % 8))
			d[i] = math.Float32frombits(math.Float32bits(scale) | sign<<31)
		}
		lost(residual, lo, y, d)
	}
}

// meanMagnitude returns the mean of |y|. y has at least one value.
func meanMagnitude(y []float32) float32 {
	var lane [lanes]float64
	for i, v := range y {
		lane[i%lanes] += math.Abs(float64(v))
	}
	return float32(fold(&lane) / float64(len(y)))
}

// Streaming returns d for models that do not fit in the caches. Its encoders return the same bits,
// but store a residual past the caches, unless residual is the same array as x or carry: the
// residual would be evicted before it is needed anyway. For models that fit in the caches, such
// stores would be slower.
func Streaming(d Device) Device {
	if s, ok := d.(interface{ streaming() Device }); ok {
		return s.streaming()
	}
	return d
}

func (host) EncodeBF16(dst []byte, x, carry, residual []float32) error {
	checkEncode("BF16", dst, 2*len(x), x, carry, residual)
	encodeBF16(dst, x, carry, residual, 0)
	return nil
}

func (host) EncodeFP16(dst []byte, x, carry, residual []float32) error {
	checkEncode("FP16", dst, 2*len(x), x, carry, residual)
	encodeFP16(dst, x, carry, residual, 0)
	return nil
}

func (host) EncodeSign(dst []byte, x, carry, residual []float32) error {
	checkEncode("Sign", dst, SignBytes(len(x)), x, carry, residual)
	encodeSign(dst, x, carry, residual, 0)
	return nil
}

// checkEncode panics, with the values, if an encoder would write out of bounds or overwrite what it
// reads.
func checkEncode(name string, dst []byte, want int, x, carry, residual []float32) {
	if len(dst) != want {
		panic(fmt.Sprintf("kernels: %s payload of %d values into %d bytes, want %d", name, len(x), len(dst), want))
	}
	checkFed(name, x, carry, residual)
	for _, f := range [][]float32{x, carry, residual} {
		if overlap(dst, f) {
			panic(fmt.Sprintf("kernels: %s payload overlaps an array of the encoder", name))
		}
	}
}

// checkFed panics on arrays of values whose lengths differ or that overlap against the rules.
func checkFed(name string, x, carry, residual []float32) {
	if carry != nil && len(carry) != len(x) || residual != nil && len(residual) != len(x) {
		panic(fmt.Sprintf("kernels: %s of %d values with carry of %d and residual of %d", name, len(x), len(carry), len(residual)))
	}
	for _, f := range [][]float32{x, carry} {
		if overlap(residual, f) && !same(residual, f) {
			panic(fmt.Sprintf("kernels: %s: residual overlaps what is read", name))
		}
	}
}
