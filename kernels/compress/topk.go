package compress

import (
	"math"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// topK sends the values of largest magnitude, with their indices as gaps (Aji, Heafield 2017; Lin
// et al. 2018).
type topK struct {
	density float64          // fraction of the values that is sent
	values  kernels.Encoding // Sparse16 or Sparse32
}

func (t topK) encoding() kernels.Encoding { return t.values }

// count returns how many of n values are sent: at least one; otherwise small chunks would never be
// sent.
func (t topK) count(n int) int { return min(n, int(math.Ceil(t.density*float64(n)))) }

func (t topK) maxBytes(n, _ int) int { return kernels.MaxSparseBytes(t.values, n, t.count(n)) }

func (t topK) encode(d kernels.Device, dst []byte, x, carry, residual []float32, _ int, _ uint64) []byte {
	dst, _ = kernels.AppendSparse(d, dst, t.values, t.count(len(x)), x, carry, residual)
	return dst
}
