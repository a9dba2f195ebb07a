package compress

import (
	"bytes"
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
	s := runs.Get().(*[]kernels.Run)
	defer runs.Put(s)
	list := (*s)[:0]
	for lo, hi := range touched(x) {
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
