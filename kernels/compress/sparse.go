package compress

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math"

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
	count, gaps, next := 0, 0, 0
	for lo, hi := range touched(x) {
		for i := lo; i < hi; i++ {
			if math.Float32bits(x[i]) != 0 {
				count, gaps, next = count+1, gaps+uvarintBytes(i-next), i+1
			}
		}
	}
	dst = binary.AppendUvarint(dst, uint64(count))
	dst = binary.AppendUvarint(dst, uint64(gaps))
	dst, to := extend(dst, 4*count+gaps)
	value, gap := to[:4*count], to[4*count:]
	next = 0
	for lo, hi := range touched(x) {
		for i := lo; i < hi; i++ {
			if b := math.Float32bits(x[i]); b != 0 {
				binary.LittleEndian.PutUint32(value, b)
				value = value[4:]
				gap = gap[binary.PutUvarint(gap, uint64(i-next)):]
				next = i + 1
			}
		}
	}
	return dst
}

const atOnce = 64 // values that touched looks at together

var untouched [4 * atOnce]byte

// touched returns the ranges of up to 64 values that are not all +0. To compare memory takes a
// fraction of the time of a look at each value.
func touched(x []float32) iter.Seq2[int, int] {
	return func(yield func(lo, hi int) bool) {
		for lo := 0; lo < len(x); lo += atOnce {
			hi := min(lo+atOnce, len(x))
			if !bytes.Equal(kernels.Bytes(x[lo:hi]), untouched[:4*(hi-lo)]) && !yield(lo, hi) {
				return
			}
		}
	}
}

// uvarintBytes returns the size of v as a uvarint, in bytes.
func uvarintBytes(v int) int {
	n := 1
	for v >>= 7; v > 0; v >>= 7 {
		n++
	}
	return n
}
