package compress

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math"
	"sync"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// named sends exactly the values that are not +0, each with its index as a gap. It is for gradients
// that touch few rows: a chunk of which nothing is touched costs two bytes. −0 is sent: a row that
// is assigned may hold zeros, see kintsugi.RuleAssign.
type named struct{}

func (named) encoding() kernels.Encoding { return kernels.Sparse32 }

func (named) maxBytes(n, _ int) int { return kernels.MaxSparseBytes(kernels.Sparse32, n, n) }

func (named) encode(_ kernels.Device, dst []byte, x, carry, residual []float32, _ int, _ uint64) []byte {
	clear(residual)
	if carry != nil {
		sum := make([]float32, len(x))
		for i := range x {
			sum[i] = x[i] + carry[i]
		}
		x = sum
	}
	return appendNonZero(dst, x, notZero(x))
}

// AppendTouched appends to dst the payload that the codec sparse has of x, part of a longer array of
// which x is the values from lo on. touched has a byte for each kernels.Spot values of that array. If
// it is 0, they are all +0, and are not looked at.
func AppendTouched(dst, touched []byte, x []float32, lo int) []byte {
	return appendNonZero(dst, x, spots(touched, lo, lo+len(x)))
}

// appendNonZero appends the payload of x, of which all values outside of ranges are +0.
func appendNonZero(dst []byte, x []float32, ranges iter.Seq2[int, int]) []byte {
	s := runs.Get().(*[]kernels.Run)
	defer runs.Put(s)
	list := (*s)[:0]
	for lo, hi := range ranges {
		for i := lo; i < hi; i++ {
			if math.Float32bits(x[i]) == 0 {
				continue
			}
			if n := len(list); n > 0 && int(list[n-1].Hi) == i {
				list[n-1].Hi++
			} else {
				list = append(list, kernels.Run{Lo: int32(i), Hi: int32(i) + 1})
			}
		}
	}
	*s = list
	return kernels.AppendRuns(dst, x, list)
}

var runs = sync.Pool{New: func() any { return new([]kernels.Run) }}

// spots returns the ranges of values whose byte is not 0, by their index from value first on, of an
// array of which [first, last) are looked at.
func spots(touched []byte, first, last int) iter.Seq2[int, int] {
	return func(yield func(lo, hi int) bool) {
		for i, end := first/kernels.Spot, kernels.Spots(last); i < end; i++ {
			if i+8 <= end && binary.LittleEndian.Uint64(touched[i:]) == 0 {
				i += 7
				continue
			}
			if touched[i] != 0 && !yield(max(i*kernels.Spot-first, 0), min((i+1)*kernels.Spot, last)-first) {
				return
			}
		}
	}
}

const atOnce = 64 // values that notZero looks at together

var zeros [4 * atOnce]byte

// notZero returns the ranges of up to 64 values that are not all +0. To compare memory takes a
// fraction of the time of a look at each value.
func notZero(x []float32) iter.Seq2[int, int] {
	return func(yield func(lo, hi int) bool) {
		for lo := 0; lo < len(x); lo += atOnce {
			hi := min(lo+atOnce, len(x))
			if !bytes.Equal(kernels.Bytes(x[lo:hi]), zeros[:4*(hi-lo)]) && !yield(lo, hi) {
				return
			}
		}
	}
}
