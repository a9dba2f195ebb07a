package cuda

import (
	"encoding/binary"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// chosen mirrors Chosen of kernel/chosen.cuh, and choices mirrors Choices of kernel/select.cu.
type chosen struct {
	x, carry, residual, decoded, index, payload, bytes driver.Ptr
	n, k                                               uint64
	width, _                                           uint32
}

type choices struct{ chunks driver.Ptr }

// lengths holds the lengths of payloads whose length differs from gradient to gradient. Kernels
// write them.
type lengths struct {
	e   *Encoder
	at  Ptr
	out []byte
}

func newLengths(e *Encoder) lengths {
	n := 8 * len(e.chunks)
	return lengths{e: e, at: e.q.Array(n), out: e.q.Pinned(n)}
}

// of returns the address of the length of payload i.
func (l *lengths) of(i int) Ptr { return l.at + Ptr(8*i) }

func (l *lengths) finish(q *Queue) { q.Out(l.out, l.at) }

// length returns the length of payload i. It never exceeds the room for the payload, whatever the
// GPU wrote; a check of the payload finds such an error.
func (l *lengths) length(i int) int {
	return int(min(binary.LittleEndian.Uint64(l.out[8*i:]), uint64(l.e.chunks[i].len)))
}

// largestCoder is the coder for the values of largest magnitude and their indices. Its kernel
// writes whole payloads, with the gaps as uvarints, and the values that they decode to.
type largestCoder struct {
	lengths
	chunks rows[chosen]
}

func newLargest(e *Encoder, coding Coding) *largestCoder {
	c := &largestCoder{lengths: newLengths(e), chunks: makeRows[chosen](e.q, len(e.chunks))}
	indices := 0
	for _, k := range e.chunks {
		indices += coding.Largest(k.n)
	}
	index := e.q.Array(4 * indices)
	for i, k := range e.chunks {
		r := chosen{
			decoded: e.decoded + k.at, index: index, payload: e.payload + Ptr(k.from), bytes: c.of(i),
			n: uint64(k.n), k: uint64(coding.Largest(k.n)), width: 4,
		}
		if coding.Encoding == kernels.Sparse16 {
			r.width = 2
		}
		c.chunks.set(i, r)
		index += Ptr(4 * r.k)
	}
	return c
}

func (c *largestCoder) begin(i int, f fed) {
	if i < len(c.chunks.of) { // otherwise the queue has an error
		r := &c.chunks.of[i]
		r.x, r.carry, r.residual = f.x, f.carry, f.residual
	}
}

func (c *largestCoder) start(q *Queue) { q.In(c.chunks.at, c.chunks.in) }

func (c *largestCoder) encode(q *Queue, lo, hi int) {
	Launch(q, "select", "select_encode", line(hi-lo), selectThreads, &choices{chunks: c.chunks.from(lo)})
	c.e.fetch(q, lo, hi)
}
