package kernels

import (
	"errors"
	"fmt"
)

// Encoding says how the values of one chunk are written as bytes; those bytes are the chunk's
// payload. Encodings travel in frames and are stored: never renumber.
//
// A payload is little-endian and needs no alignment. Its own numbers say where it ends, so that
// payloads of consecutive chunks follow one another directly. A block is 256 consecutive values of
// the chunk; the last block may be shorter. For n values:
//
//	FP32      n float32
//	BF16      n times the upper half of a float32
//	FP16      n IEEE 754 half-precision numbers
//	Int8      a float32 scale ≥ 0 for each block, then n int8 in [−127, 127]: value = scale·q
//	Sign      a float32 scale ≥ 0 for each block, then ⌈n/8⌉ bytes. Where bit i mod 8 of byte i/8 is set the
//	          value is −scale, else +scale. Bits past the last value are 0
//	Sparse16  uvarint k, uvarint g, k values as in BF16, then g bytes: k uvarint gaps. The first is the index
//	          of the first value, each other one index − previous index − 1. All other values are +0
//	Sparse32  the same with float32 values
//	LowRank   uvarint rows, cols, rank, then P[rows][rank] and Q[cols][rank] in float32, rows·cols = n:
//	          value[i][j] = ((+0 + P[i][0]·Q[j][0]) + P[i][1]·Q[j][1]) + …, each product rounded first
//	Int4      a float32 scale ≥ 0 for each block, then ⌈n/2⌉ bytes. Value i = scale·q, with q in [−7, 7] as two's complement
//	          in bits 0 to 3 of byte i/2 for an even i, in bits 4 to 7 for an odd one. Bits past the last value are 0.
//	          Only checkpoints have it: no frame carries it
//
// A uvarint uses the fewest bytes that hold its number, and all numbers are finite.
type Encoding uint8

// The encodings.
const (
	FP32     Encoding = 0
	BF16     Encoding = 1
	FP16     Encoding = 2
	Int8     Encoding = 3
	Sign     Encoding = 4
	Sparse16 Encoding = 5
	Sparse32 Encoding = 6
	LowRank  Encoding = 7
	Int4     Encoding = 8
)

// encodings is the number of encodings.
const encodings = 9

// String returns the encoding's name in lower case, such as "int8".
func (e Encoding) String() string {
	names := [encodings]string{"fp32", "bf16", "fp16", "int8", "sign", "sparse16", "sparse32", "lowrank", "int4"}
	if int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("encoding %d", uint8(e))
}

// sparse reports whether the payload names the values that are not +0.
func (e Encoding) sparse() bool { return e == Sparse16 || e == Sparse32 }

// ErrPayload means that bytes are not the payload of a chunk: they are damaged, or were made for a
// chunk of another size. Nothing was decoded. Ask for the bytes again.
var ErrPayload = errors.New("not the payload of the chunk")

// block is the number of values that share a scale. It is part of the format.
const block = 256

func blocks(n int) int { return (n + block - 1) / block }

// measure returns the length of the payload of n values at the start of data. It reads only the
// numbers at the start of the payload, and ensures that the whole length lies inside data.
func (e Encoding) measure(n int, data []byte) (int, error) {
	var size int
	switch e {
	case FP32:
		size = 4 * n
	case BF16, FP16:
		size = 2 * n
	case Int8:
		size = Int8Bytes(n)
	case Int4:
		size = Int4Bytes(n)
	case Sign:
		size = SignBytes(n)
	case Sparse16, Sparse32:
		_, size, err := parseSparse(e, n, data)
		return size, err
	case LowRank:
		_, size, err := parseLowRank(n, data)
		return size, err
	default:
		return 0, fmt.Errorf("kernels: %v is unknown: %w", e, ErrPayload)
	}
	if len(data) < size {
		return 0, tooShort(e, n, data)
	}
	return size, nil
}

func tooShort(e Encoding, n int, data []byte) error {
	return fmt.Errorf("kernels: %d bytes are too few for %d values in %v: %w", len(data), n, e, ErrPayload)
}

// Empty reports whether a payload names no value, so that its whole chunk is +0. Only sparse
// payloads can be empty. [Check] must have accepted the payload.
func Empty(e Encoding, data []byte) bool { return e.sparse() && data[0] == 0 }

// Named returns how many of the n values of a chunk a payload names: all, unless it is sparse.
// [Check] must have accepted the payload.
func Named(e Encoding, data []byte, n int) int {
	if !e.sparse() {
		return n
	}
	count, _ := uvarint(data)
	return int(count)
}

// entries are the parts of a sparse payload.
type entries struct {
	width        int // bytes of a value
	values, gaps []byte
}

// parseSparse splits the sparse payload at the start of data into its parts and returns its length.
func parseSparse(e Encoding, n int, data []byte) (entries, int, error) {
	s := entries{width: 4}
	if e == Sparse16 {
		s.width = 2
	}
	count, at := uvarint(data)
	gaps, more := uvarint(data[at:])
	if at == 0 || more == 0 {
		return entries{}, 0, fmt.Errorf("kernels: %v payload does not start with two numbers: %w", e, ErrPayload)
	}
	at += more
	if count > n {
		return entries{}, 0, fmt.Errorf("kernels: %v payload names %d of %d values: %w", e, count, n, ErrPayload)
	}
	if rest := len(data) - at; rest < s.width*count || rest-s.width*count < gaps {
		return entries{}, 0, tooShort(e, n, data)
	}
	s.values = data[at:][:s.width*count]
	s.gaps = data[at+s.width*count:][:gaps]
	return s, at + s.width*count + gaps, nil
}

// factors are the parts of a low-rank payload.
type factors struct {
	rows, cols, rank int
	p, q             []byte
}

// parseLowRank splits the low-rank payload at the start of data into its parts and returns its
// length.
func parseLowRank(n int, data []byte) (factors, int, error) {
	var shape [3]int
	at := 0
	for i := range shape {
		v, size := uvarint(data[at:])
		if size == 0 {
			return factors{}, 0, fmt.Errorf("kernels: lowrank payload does not start with three numbers: %w", ErrPayload)
		}
		shape[i], at = v, at+size
	}
	f := factors{rows: shape[0], cols: shape[1], rank: shape[2]}
	if f.rows > n || f.cols > n || f.rows*f.cols != n || f.rank > min(f.rows, f.cols) {
		return factors{}, 0, fmt.Errorf("kernels: lowrank payload of %d × %d values and rank %d for a chunk of %d: %w", f.rows, f.cols, f.rank, n, ErrPayload)
	}
	p, q := 4*f.rows*f.rank, 4*f.cols*f.rank
	if len(data)-at < p+q {
		return factors{}, 0, tooShort(LowRank, n, data)
	}
	f.p, f.q = data[at:][:p], data[at+p:][:q]
	return f, at + p + q, nil
}

// uvarint returns the number at the start of data and its length in bytes. size is 0 if there is no
// number, if it has more bytes than necessary, or if it has more than 31 bits.
func uvarint(data []byte) (v, size int) {
	for i, b := range data[:min(len(data), 5)] {
		v |= int(b&0x7f) << (7 * i)
		if b < 0x80 {
			if b == 0 && i > 0 || v > 1<<31-1 {
				return 0, 0
			}
			return v, i + 1
		}
	}
	return 0, 0
}
