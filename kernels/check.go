package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Check verifies the payload of a chunk of n ≥ 0 values at the start of data and returns its length
// in bytes. It checks everything that [Device].Decode and [Device].Step rely on: lengths, indices,
// and that every number and every decoded value is finite. Errors wrap [ErrPayload]. It allocates
// nothing except an error.
func Check(e Encoding, n int, data []byte) (size int, err error) {
	size, err = e.measure(n, data)
	if err != nil {
		return 0, err
	}
	data = data[:size]
	switch e {
	case FP32:
		err = checkFloats(e, data)
	case BF16, FP16:
		err = checkHalves(e, data)
	case Int8:
		err = checkInt8(n, data)
	case Int4:
		err = checkInt4(n, data)
	case Sign:
		err = checkSigns(n, data)
	case Sparse16, Sparse32:
		err = checkSparse(e, n, data)
	case LowRank:
		err = checkLowRank(n, data)
	}
	if err != nil {
		return 0, err
	}
	return size, nil
}

func notFinite(e Encoding) error {
	return fmt.Errorf("kernels: %v payload holds a number that is not finite: %w", e, ErrPayload)
}

// The checks below look at eight bytes at a time. They mask out the exponents and add one in the
// lowest place of each; only an exponent of all ones carries into the place of the sign.

func checkFloats(e Encoding, data []byte) error {
	const exponent, one, sign = 0x7f800000_7f800000, 0x00800000_00800000, 0x80000000_80000000
	var bad uint64
	for ; len(data) >= 8; data = data[8:] {
		bad |= binary.LittleEndian.Uint64(data)&exponent + one
	}
	if len(data) == 4 {
		bad |= uint64(binary.LittleEndian.Uint32(data))&exponent + one
	}
	if bad&sign != 0 {
		return notFinite(e)
	}
	return nil
}

// checkHalves checks numbers of two bytes: BF16 (also the values of Sparse16) or FP16.
func checkHalves(e Encoding, data []byte) error {
	exponent, one := uint64(0x7f80_7f80_7f80_7f80), uint64(0x0080_0080_0080_0080)
	if e == FP16 {
		exponent, one = 0x7c00_7c00_7c00_7c00, 0x0400_0400_0400_0400
	}
	const sign = 0x8000_8000_8000_8000
	var bad uint64
	for ; len(data) >= 8; data = data[8:] {
		bad |= binary.LittleEndian.Uint64(data)&exponent + one
	}
	for ; len(data) >= 2; data = data[2:] {
		bad |= uint64(binary.LittleEndian.Uint16(data))&exponent + one
	}
	if bad&sign != 0 {
		return notFinite(e)
	}
	return nil
}

// checkScales checks the scales of n values: none is negative or −0, and none exceeds the limit.
func checkScales(e Encoding, n int, data []byte, limit float32) error {
	for b := range blocks(n) {
		if binary.LittleEndian.Uint32(data[4*b:]) > math.Float32bits(limit) { // bits are ordered like the numbers; negative numbers and NaN are above all others
			return fmt.Errorf("kernels: %v payload has a scale of %v: %w", e, float32At(data, b), ErrPayload)
		}
	}
	return nil
}

// maxInt8Scale is the largest scale whose product with 127 is finite.
var maxInt8Scale = math.Nextafter32(math.MaxFloat32/127, 0)

// maxInt4Scale is the same for 7: the division is exact, so it needs no smaller float32.
const maxInt4Scale = math.MaxFloat32 / 7

func checkInt8(n int, data []byte) error {
	if err := checkScales(Int8, n, data, maxInt8Scale); err != nil {
		return err
	}
	if holds(data[4*blocks(n):], 0x01010101_01010101, 0x80808080_80808080) {
		return fmt.Errorf("kernels: int8 payload holds −128: %w", ErrPayload)
	}
	return nil
}

func checkInt4(n int, data []byte) error {
	if err := checkScales(Int4, n, data, maxInt4Scale); err != nil {
		return err
	}
	if holds(data[4*blocks(n):], 0x11111111_11111111, 0x88888888_88888888) {
		return fmt.Errorf("kernels: int4 payload holds −8: %w", ErrPayload)
	}
	if n%2 != 0 && data[len(data)-1]>>4 != 0 {
		return fmt.Errorf("kernels: int4 payload has bits past its %d values: %w", n, ErrPayload)
	}
	return nil
}

// holds reports whether one of the codes at q is the lowest number of its width. one and lowest
// hold the number 1 and that lowest number in the place of each code.
func holds(q []byte, one, lowest uint64) bool {
	var found uint64
	look := func(x uint64) {
		x ^= lowest // makes a code 0 that was the lowest number
		found |= (x - one) &^ x & lowest
	}
	for ; len(q) >= 8; q = q[8:] {
		look(binary.LittleEndian.Uint64(q))
	}
	var rest [8]byte
	copy(rest[:], q)
	look(binary.LittleEndian.Uint64(rest[:]))
	return found != 0
}

func checkSigns(n int, data []byte) error {
	if err := checkScales(Sign, n, data, math.MaxFloat32); err != nil {
		return err
	}
	if n%8 != 0 && data[len(data)-1]>>(n%8) != 0 {
		return fmt.Errorf("kernels: sign payload has bits past its %d values: %w", n, ErrPayload)
	}
	return nil
}

func checkSparse(e Encoding, n int, data []byte) error {
	s, _, err := parseSparse(e, n, data)
	if err != nil {
		return err
	}
	if e == Sparse16 {
		err = checkHalves(e, s.values)
	} else {
		err = checkFloats(e, s.values)
	}
	if err != nil {
		return err
	}
	count, last, gaps := 0, -1, s.gaps
	for ; len(gaps) > 0; count++ {
		gap, size := int(gaps[0]), 1
		if gap >= 0x80 {
			if gap, size = uvarint(gaps); size == 0 {
				return fmt.Errorf("kernels: %v payload has a gap that is no minimal uvarint: %w", e, ErrPayload)
			}
		}
		gaps = gaps[size:]
		last += 1 + gap
		if last >= n {
			return fmt.Errorf("kernels: %v payload names value %d of %d: %w", e, last, n, ErrPayload)
		}
	}
	if want := len(s.values) / s.width; count != want {
		return fmt.Errorf("kernels: %v payload has %d values and %d gaps: %w", e, want, count, ErrPayload)
	}
	return nil
}

// checkLowRank refuses factors whose products might overflow: it multiplies the largest number of
// each factor and the rank.
func checkLowRank(n int, data []byte) error {
	f, _, err := parseLowRank(n, data)
	if err != nil {
		return err
	}
	if checkFloats(LowRank, f.p) != nil || checkFloats(LowRank, f.q) != nil {
		return notFinite(LowRank)
	}
	if largest(f.p)*largest(f.q)*float64(f.rank) > math.MaxFloat32/2 { // half, to leave room for what rounding adds
		return fmt.Errorf("kernels: lowrank payload has factors so large that values may not be finite: %w", ErrPayload)
	}
	return nil
}

// MostFactor returns a bound on the numbers of one factor of a [LowRank] payload of this rank, if
// those of the other factor are at most 1 up to rounding. Within it no value overflows, and [Check]
// accepts the payload.
func MostFactor(rank int) float64 { return math.MaxFloat32 / float64(4*rank) }

// largest returns the largest magnitude of the numbers in data.
func largest(data []byte) float64 {
	var most uint32
	for ; len(data) >= 4; data = data[4:] {
		most = max(most, binary.LittleEndian.Uint32(data)&0x7fffffff)
	}
	return float64(math.Float32frombits(most))
}
