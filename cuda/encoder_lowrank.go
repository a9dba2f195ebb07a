package cuda

import (
	"encoding/binary"
	"fmt"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// matrix mirrors Matrix of kernel/lowrank.cu, and matrices its Matrices.
type matrix struct {
	x, carry, residual, decoded, p, q, factors driver.Ptr
	limit                                      float64
	rows, cols, rank, keyA, keyB, _            uint32
}

type matrices struct{ chunks driver.Ptr }

const (
	lowRankThreads = 256
	mostRank       = 64
)

// lowRankCoder is the coder for factors of low rank. Its kernel writes the factors and the values
// that they decode to. The numbers before the factors give the shape; they are the same for every
// gradient, so newLowRank writes them once.
type lowRankCoder struct {
	e      *Encoder
	chunks rows[matrix]
}

// shape returns the numbers with which a payload of low rank starts.
func (c Coding) shape(chunk int) []byte {
	if c.Encoding != kernels.LowRank {
		return nil
	}
	rows, cols, rank := c.Matrix(chunk)
	b := binary.AppendUvarint(nil, uint64(rows))
	b = binary.AppendUvarint(b, uint64(cols))
	return binary.AppendUvarint(b, uint64(rank))
}

func newLowRank(e *Encoder, coding Coding) *lowRankCoder {
	c := &lowRankCoder{e: e, chunks: makeRows[matrix](e.q, len(e.chunks))}
	numbers := 0
	for i, k := range e.chunks {
		rows, cols, rank := coding.Matrix(i)
		if rows*cols != k.n || rank < 1 || rank > min(rows, cols, mostRank) {
			e.q.fail(fmt.Errorf("encode chunk %d, of %d values, on a GPU as %d × %d with rank %d: the rank is at most the smaller of them, and %d", i, k.n, rows, cols, rank, mostRank))
		}
		numbers += rank * (rows + cols)
	}
	at := e.q.Array(8 * numbers)
	for i, k := range e.chunks {
		rows, cols, rank := coding.Matrix(i)
		shape := coding.shape(i)
		if e.q.err == nil {
			copy(e.payloadOut[k.from:], shape)
		}
		c.chunks.set(i, matrix{
			decoded: e.decoded + k.at, p: at, q: at + Ptr(8*rank*rows), factors: e.payload + Ptr(k.from+len(shape)),
			limit: kernels.MostFactor(rank), rows: uint32(rows), cols: uint32(cols), rank: uint32(rank),
		})
		at += Ptr(8 * rank * (rows + cols))
	}
	e.q.In(e.payload, e.payloadOut)
	return c
}

func (c *lowRankCoder) begin(i int, f fed) {
	if i < len(c.chunks.of) { // otherwise the queue has an error
		r := &c.chunks.of[i]
		r.x, r.carry, r.residual = f.x, f.carry, f.residual
		r.keyA, r.keyB = kernels.RoundingKey(f.seed)
	}
}

func (c *lowRankCoder) start(q *Queue) { q.In(c.chunks.at, c.chunks.in) }

func (c *lowRankCoder) encode(q *Queue, lo, hi int) {
	Launch(q, "lowrank", "low_rank_encode", line(hi-lo), lowRankThreads, &matrices{chunks: c.chunks.from(lo)})
	c.e.fetch(q, lo, hi)
}

func (c *lowRankCoder) finish(*Queue) {}

func (c *lowRankCoder) length(i int) int { return c.e.chunks[i].len }
