package compress

import (
	"encoding/binary"
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
	at := func(i int) uint32 {
		if carry == nil {
			return math.Float32bits(x[i])
		}
		return math.Float32bits(x[i] + carry[i])
	}
	count, gaps, next := 0, 0, 0
	for i := range x {
		if at(i) != 0 {
			count, gaps, next = count+1, gaps+uvarintBytes(i-next), i+1
		}
	}
	dst = binary.AppendUvarint(dst, uint64(count))
	dst = binary.AppendUvarint(dst, uint64(gaps))
	dst, to := extend(dst, 4*count+gaps)
	value, gap := to[:4*count], to[4*count:]
	next = 0
	for i := range x {
		b := at(i)
		if b == 0 {
			continue
		}
		binary.LittleEndian.PutUint32(value, b)
		value = value[4:]
		gap = gap[binary.PutUvarint(gap, uint64(i-next)):]
		next = i + 1
	}
	return dst
}

// uvarintBytes returns the size of v as a uvarint, in bytes.
func uvarintBytes(v int) int {
	n := 1
	for v >>= 7; v > 0; v >>= 7 {
		n++
	}
	return n
}
