package cuda

import (
	"slices"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// denseKernels lists the kernels for payloads that hold something of every value.
var denseKernels = map[kernels.Encoding]struct {
	kernel string
	per    int // values for each block of threads
	bytes  func(n int) int
}{
	kernels.BF16: {"encode_bf16", perHalves, func(n int) int { return 2 * n }},
	kernels.FP16: {"encode_fp16", perHalves, func(n int) int { return 2 * n }},
	kernels.Int8: {"encode_int8", perScaled, kernels.Int8Bytes},
	kernels.Sign: {"encode_sign", perScaled, kernels.SignBytes},
}

// denseCoder is the coder for payloads that hold something of every value. The kernel that sums
// operands decodes them.
type denseCoder struct {
	e      *Encoder
	kernel string
	per    int // values for each block of threads
	random bool
	scaled bool // a payload starts with the scales of its blocks of values
	chunks rows[encodeArgs]
	sums   Ptr
}

func newDense(e *Encoder, coding Coding) *denseCoder {
	kind := denseKernels[coding.Encoding]
	c := &denseCoder{
		e: e, kernel: kind.kernel, per: kind.per, random: coding.AtRandom, scaled: coding.Encoding == kernels.Int8 || coding.Encoding == kernels.Sign,
		chunks: makeRows[encodeArgs](e.q, len(e.chunks)),
	}
	if c.random {
		c.kernel += "_random"
	}
	operands, sums := make([]operand, len(e.chunks)), make([]chunk, len(e.chunks))
	for i, k := range e.chunks {
		operands[i] = operand{weight: 1, encoding: uint32(coding.Encoding) | 1<<8}
		operands[i].scales, operands[i].data = c.parts(k)
	}
	at := put(e.q, operands)
	for i, k := range e.chunks {
		sums[i] = chunk{n: uint64(k.n), operands: at + Ptr(i)*Ptr(unsafe.Sizeof(operand{})), count: 1, update: e.decoded + k.at}
	}
	c.sums = put(e.q, sums)
	return c
}

// parts returns the addresses of the scales of a payload, or 0 if it has none, and of the rest.
func (c *denseCoder) parts(k encoded) (scales, data Ptr) {
	data = c.e.payload + Ptr(k.from)
	if c.scaled {
		scales, data = data, data+Ptr(4*ceil(k.n, 256))
	}
	return scales, data
}

func (c *denseCoder) begin(i int, f fed) {
	k := c.e.chunks[i]
	a := encodeArgs{x: f.x, carry: f.carry, residual: f.residual, n: uint64(k.n)}
	a.scales, a.dst = c.parts(k)
	if c.random {
		a.keyA, a.keyB = kernels.RoundingKey(f.seed)
	}
	c.chunks.set(i, a)
}

func (c *denseCoder) start(q *Queue) { q.In(c.chunks.at, c.chunks.in) }

// mostChunks is the largest number of chunks of one launch: the limit of a grid in its second
// dimension.
var mostChunks = 1<<16 - 1

func (c *denseCoder) encode(q *Queue, lo, hi int) {
	at := lo
	for some := range slices.Chunk(c.e.chunks[lo:hi], mostChunks) {
		blocks := 0
		for _, k := range some {
			blocks = max(blocks, ceil(k.n, c.per))
		}
		Launch(q, "encode", c.kernel, [3]int{blocks, len(some), 1}, encodeThreads, &encodes{chunks: c.chunks.from(at)})
		at += len(some)
	}
	Launch(q, "step", "sum_operands", line(hi-lo), stepThreads, &stepArgs{chunks: c.sums + Ptr(lo)*chunkSize})
	c.e.fetch(q, lo, hi)
}

func (c *denseCoder) finish(*Queue) {}

func (c *denseCoder) length(i int) int { return c.e.chunks[i].len }
