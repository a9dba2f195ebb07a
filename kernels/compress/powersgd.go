package compress

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// powerSGD approximates a chunk, seen as a matrix, by a matrix of low rank (Vogels, Karimireddy,
// Jaggi 2019).
//
// The paper starts its power iteration from the result of the previous step. That is state. It dies
// with a worker, it makes a push depend on more than the gradient and the id, and it can hold the
// iteration in one subspace for ever. Here each chunk starts from random vectors and iterates
// twice. This comes as close to the best approximation and costs one more pass over the chunk,
// which is in the cache.
//
// Each sum has its own order, and each random number is a function of its index, so that a device
// that computes many of them at once gets the same bits. cuda/kernel/lowrank.cu is the twin of this
// file.
type powerSGD struct{ rank int }

func (powerSGD) encoding() kernels.Encoding { return kernels.LowRank }

func (p powerSGD) maxBytes(n, rowLen int) int {
	rows, cols, rank := p.shape(n, rowLen)
	return 3*binary.MaxVarintLen32 + 4*rank*(rows+cols)
}

// shape returns the matrix as which a chunk of n values is seen, and the rank that is sent.
//
// It uses the tensor's own rows if that saves at least half. Otherwise it uses the matrix of the
// same values that is closest to a square, if that saves more, as for a piece of one long row. If
// neither saves anything, and for vectors (§3 of the paper), it uses one column with the factor 1,
// which is exact.
func (p powerSGD) shape(n, rowLen int) (rows, cols, rank int) {
	exact, best := n, n
	rows, cols, rank = n, 1, 1
	try := func(r, c int) {
		if size := p.rank * (r + c); size < best { // then the rank is below r and c, too
			rows, cols, rank, best = r, c, p.rank, size
		}
	}
	if rowLen == 1 {
		return rows, cols, rank
	}
	if n%rowLen == 0 {
		try(n/rowLen, rowLen)
	}
	if 2*best > exact {
		d := int(math.Sqrt(float64(n)))
		for n%d != 0 {
			d--
		}
		try(n/d, d)
	}
	return rows, cols, rank
}

// factors is the working memory of one encoding.
type factors struct {
	sum  []float32 // x + carry, then the decoded values
	p, q []float64 // column by column: [rank][rows] and [rank][cols]
}

var factorsPool = sync.Pool{New: func() any { return new(factors) }}

func (p powerSGD) encode(d kernels.Device, dst []byte, x, carry, residual []float32, rowLen int, seed uint64) []byte {
	rows, cols, rank := p.shape(len(x), rowLen)
	start := len(dst)
	dst = binary.AppendUvarint(dst, uint64(rows))
	dst = binary.AppendUvarint(dst, uint64(cols))
	dst = binary.AppendUvarint(dst, uint64(rank))
	f := factorsPool.Get().(*factors)
	defer factorsPool.Put(f)
	sum := residual
	if sum == nil {
		f.sum = resize(f.sum, len(x))
		sum = f.sum
	}
	add(sum, x, carry)
	if cols == 1 {
		f.column(sum)
	} else {
		f.approximate(sum, rows, cols, rank, seed)
	}
	dst = appendFactor(dst, f.p, rows, rank)
	dst = appendFactor(dst, f.q, cols, rank)
	if residual != nil {
		f.sum = resize(f.sum, len(x))
		d.Decode(f.sum, kernels.LowRank, dst[start:])
		for i, v := range f.sum {
			residual[i] -= v
		}
	}
	return dst
}

// limited bounds a value of the factor that holds the magnitudes. The values of the other factor
// are at most 1, up to rounding.
func limited(v float64, rank int) float64 {
	limit := kernels.MostFactor(rank)
	return max(-limit, min(v, limit))
}

// column sets p to m and q to 1.
func (f *factors) column(m []float32) {
	f.p, f.q = resize(f.p, len(m)), resize(f.q, 1)
	for i, v := range m {
		f.p[i] = limited(float64(v), 1)
	}
	f.q[0] = 1
}

// approximate sets p and q so that p·qᵀ is close to the best approximation of m of the given rank.
// The columns of p are orthonormal; if m has a lower rank, some are zero.
func (f *factors) approximate(m []float32, rows, cols, rank int, seed uint64) {
	f.p, f.q = resize(f.p, rank*rows), resize(f.q, rank*cols)
	a, b := kernels.RoundingKey(seed)
	for i := range f.q { // uniform in [-1, 1). A normal variate would need a logarithm, whose last bit differs between machines
		f.q[i] = float64(int32(kernels.Noise(a, b, uint32(i)))) * 0x1p-31
	}
	for range 2 {
		times(f.p, m, f.q, rows, cols)
		orthonormalize(f.p, rows)
		timesTransposed(f.q, m, f.p, rows, cols)
	}
	for i, v := range f.q {
		f.q[i] = limited(v, rank)
	}
}

// times sets each column of p to m times the same column of q.
func times(p []float64, m []float32, q []float64, rows, cols int) {
	for ; len(p) > 0; p, q = p[rows:], q[cols:] {
		for i := range rows {
			p[i] = dot(m[i*cols:][:cols], q[:cols])
		}
	}
}

// timesTransposed sets each column of q to mᵀ times the same column of p.
func timesTransposed(q []float64, m []float32, p []float64, rows, cols int) {
	clear(q)
	for ; len(p) > 0; p, q = p[rows:], q[cols:] {
		to := q[:cols]
		for i, a := range p[:rows] {
			for j, v := range m[i*cols:][:len(to)] {
				to[j] += float64(a * float64(v))
			}
		}
	}
}

// dot adds up in four lanes, so that an addition does not wait for the one before. The conversions
// keep the compiler from fusing products and sums; otherwise builds for other processors would
// encode other bytes.
func dot[T float32 | float64](x []T, y []float64) float64 {
	var a, b, c, d float64
	for len(x) >= 4 && len(y) >= 4 {
		a += float64(float64(x[0]) * y[0])
		b += float64(float64(x[1]) * y[1])
		c += float64(float64(x[2]) * y[2])
		d += float64(float64(x[3]) * y[3])
		x, y = x[4:], y[4:]
	}
	for i, v := range x {
		a += float64(float64(v) * y[i])
	}
	return (a + b) + (c + d)
}

// orthonormalize is the modified Gram–Schmidt procedure, which loses fewest digits, on columns of n
// values each. A column that depends linearly on the ones before it, up to rounding, becomes zero:
// normalised noise would have an arbitrary direction.
func orthonormalize(columns []float64, n int) {
	for at := 0; at < len(columns); at += n {
		v := columns[at:][:n]
		before := norm(v)
		for done := 0; done < at; done += n {
			project(v, columns[done:][:n])
		}
		scale := 0.0
		if after := norm(v); after > 1e-9*before {
			scale = 1 / after
		}
		for i := range v {
			v[i] *= scale
		}
	}
}

// project removes from v its component along the unit vector u.
func project(v, u []float64) {
	along := dot(u, v)
	for i, x := range u {
		v[i] -= float64(along * x)
	}
}

func norm(v []float64) float64 { return math.Sqrt(dot(v, v)) }

// appendFactor appends a factor, given column by column, to dst row by row as float32.
func appendFactor(dst []byte, columns []float64, n, rank int) []byte {
	dst, to := extend(dst, 4*n*rank)
	for i := range n {
		for r := range rank {
			binary.LittleEndian.PutUint32(to[4*(i*rank+r):], math.Float32bits(float32(columns[r*n+i])))
		}
	}
	return dst
}

// add sets sum to x + carry.
func add(sum, x, carry []float32) {
	if carry == nil {
		copy(sum, x)
		return
	}
	for i, v := range x {
		sum[i] = v + carry[i]
	}
}

// resize returns a slice of n unspecified values, in the memory of s if that is large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
