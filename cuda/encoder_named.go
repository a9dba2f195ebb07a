package cuda

import "github.com/kintsugi-ml/kintsugi/cuda/internal/driver"

// named mirrors Named of kernel/named.cu, and allNamed its AllNamed.
type named struct {
	chosen
	to driver.Ptr
}

type allNamed struct{ chunks driver.Ptr }

const namedThreads = 256

// namedCoder is the coder for all values that are not +0. Its kernel writes payloads and the values
// that they decode to. It also copies to the host exactly as many bytes as a payload has.
type namedCoder struct {
	lengths
	chunks rows[named]
}

func newNamed(e *Encoder) *namedCoder {
	c := &namedCoder{lengths: newLengths(e), chunks: makeRows[named](e.q, len(e.chunks))}
	index, out := e.q.Array(e.size), mapped(e.payloadOut)
	for i, k := range e.chunks {
		c.chunks.set(i, named{
			chosen: chosen{
				decoded: e.decoded + k.at, index: index + k.at, payload: e.payload + Ptr(k.from), bytes: c.of(i), n: uint64(k.n), width: 4,
			},
			to: out + Ptr(k.from),
		})
	}
	return c
}

func (c *namedCoder) begin(i int, f fed) {
	if i < len(c.chunks.of) { // otherwise the queue has an error
		r := &c.chunks.of[i]
		r.x, r.carry, r.residual = f.x, f.carry, f.residual
	}
}

func (c *namedCoder) start(q *Queue) { q.In(c.chunks.at, c.chunks.in) }

func (c *namedCoder) encode(q *Queue, lo, hi int) {
	Launch(q, "named", "named_encode", line(hi-lo), namedThreads, &allNamed{chunks: c.chunks.from(lo)})
}
