package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Encoder encodes an array of chunks that is on the GPU, many chunks in a launch: each has the payload that the encoders of
// kernels.Device write, bit for bit. The payloads are fetched, and so are the squared norms of what they decode to.
//
// Arrays of what is carried and what is left have gaps, so that each chunk is aligned: Size is their length. All queues are of one device, and what is
// queued for one encoder is queued by one goroutine.
type Encoder struct {
	q      *Queue // whose memory it has
	kernel string
	per    int // values of a block
	random bool
	chunks []encoded
	size   int

	x, table, payload, decoded, pairs, sums, norms, first Ptr
	tableIn, payloadOut, found                            []byte
	args                                                  []encodeArgs // the table, in pinned memory
}

// encoded is where a chunk is.
type encoded struct {
	lo, n     int // values of the flat array
	at        Ptr // in arrays with gaps
	from, len int // bytes of its payload
	scales    int // bytes of them in front
	aligned   bool
}

var encoders = map[kernels.Encoding]struct {
	kernel string
	per    int
	bytes  func(n int) int
}{
	kernels.BF16: {"encode_bf16", perHalves, func(n int) int { return 2 * n }},
	kernels.FP16: {"encode_fp16", perHalves, func(n int) int { return 2 * n }},
	kernels.Int8: {"encode_int8", perScaled, kernels.Int8Bytes},
	kernels.Sign: {"encode_sign", perScaled, kernels.SignBytes},
}

// Encodes reports whether there are encoders of e.
func Encodes(e kernels.Encoding) bool { return encoders[e].kernel != "" }

// NewEncoder returns an encoder for a flat array of chunks of these lengths, with memory of q: BF16, FP16, Int8, at random or to nearest, or Sign.
// Errors are q's.
func NewEncoder(q *Queue, e kernels.Encoding, random bool, lengths []int) (*Encoder, error) {
	kind, ok := encoders[e]
	if !ok {
		return nil, fmt.Errorf("encode %v on a GPU: there is no kernel for it", e)
	}
	c := &Encoder{q: q, kernel: kind.kernel, per: kind.per, random: random}
	if random {
		c.kernel += "_random"
	}
	lo, bytes := 0, 0
	for _, n := range lengths {
		k := encoded{lo: lo, n: n, at: Ptr(c.size), from: bytes, len: kind.bytes(n), aligned: lo%4 == 0}
		if e == kernels.Int8 || e == kernels.Sign {
			k.scales = 4 * ceil(n, 256)
		}
		c.chunks = append(c.chunks, k)
		lo += n
		c.size += ceil(4*n, vector) * vector
		bytes += ceil(k.len, vector) * vector
	}
	tableBytes := len(lengths) * int(unsafe.Sizeof(encodeArgs{}))
	c.x, c.decoded, c.payload = q.Array(c.size), q.Array(c.size), q.Array(bytes)
	c.table, c.norms, c.first = q.Array(tableBytes), q.Array(8*len(lengths)), q.Array(8)
	c.tableIn, c.payloadOut, c.found = q.Pinned(tableBytes), q.Pinned(bytes), q.Pinned(8*len(lengths)+8)
	if q.err == nil {
		c.args = unsafe.Slice((*encodeArgs)(unsafe.Pointer(unsafe.SliceData(c.tableIn))), len(lengths))
	}
	c.decode(e)
	return c, q.Wait()
}

// decode makes the tables by which payloads are decoded and their norms found: they never change.
func (c *Encoder) decode(e kernels.Encoding) {
	operands, sums, pairs := make([]operand, len(c.chunks)), make([]chunk, len(c.chunks)), make([]pair, len(c.chunks))
	at := c.q.Array(len(operands) * int(unsafe.Sizeof(operand{})))
	for i, k := range c.chunks {
		o := operand{data: c.payload + Ptr(k.from+k.scales), weight: 1, encoding: uint32(e) | 1<<8}
		if k.scales > 0 {
			o.scales = c.payload + Ptr(k.from)
		}
		operands[i] = o
		sums[i] = chunk{n: uint64(k.n), operands: at + Ptr(i)*Ptr(unsafe.Sizeof(o)), count: 1, update: c.decoded + k.at}
		pairs[i] = pair{x: c.decoded + k.at, n: uint64(k.n), result: c.norms + Ptr(8*i)}
	}
	put(c.q, at, operands)
	c.sums, c.pairs = c.q.Array(len(sums)*int(chunkSize)), c.q.Array(len(pairs)*int(unsafe.Sizeof(pair{})))
	put(c.q, c.sums, sums)
	put(c.q, c.pairs, pairs)
}

// put copies structs to an array.
func put[T any](q *Queue, at Ptr, x []T) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
	to := q.Pinned(len(b))
	copy(to, b)
	q.In(at, to)
}

// Size returns the bytes of an array with gaps.
func (c *Encoder) Size() int { return c.size }

// Begin says what the next payloads are of: the flat gradient, and arrays with gaps of what is carried and what is left; 0: there are none. seeds are by
// chunk, of what is rounded at random. Nothing that was queued before may be under way.
func (c *Encoder) Begin(gradient, carry, residual Ptr, seeds []uint64) {
	for i, k := range c.chunks {
		a := encodeArgs{x: gradient + Ptr(4*k.lo), dst: c.payload + Ptr(k.from+k.scales), n: uint64(k.n)}
		if !k.aligned {
			a.x = c.x + k.at
		}
		if k.scales > 0 {
			a.scales = c.payload + Ptr(k.from)
		}
		if carry != 0 {
			a.carry = carry + k.at
		}
		if residual != 0 {
			a.residual = residual + k.at
		}
		if c.random {
			a.keyA, a.keyB = kernels.RoundingKey(seeds[i])
		}
		if i < len(c.args) { // else q has an error
			c.args[i] = a
		}
	}
}

// Start queues what Begin said. It may be part of a program, which does what Begin has said by then.
func (c *Encoder) Start(q *Queue) { q.In(c.table, c.tableIn) }

// Encode queues the encoding of chunks [lo, hi), whose gradient is final, and fetches their payloads.
func (c *Encoder) Encode(q *Queue, gradient Ptr, lo, hi int) {
	if lo == hi {
		return
	}
	blocks := 0
	for _, k := range c.chunks[lo:hi] {
		blocks = max(blocks, ceil(k.n, c.per))
		if !k.aligned {
			q.Copy(c.x+k.at, gradient+Ptr(4*k.lo), 4*k.n)
		}
	}
	Launch(q, "encode", c.kernel, [3]int{blocks, hi - lo, 1}, encodeThreads, &encodes{chunks: c.table + Ptr(lo)*Ptr(unsafe.Sizeof(encodeArgs{}))})
	Launch(q, "step", "sum_operands", line(hi-lo), stepThreads, &stepArgs{chunks: c.sums + Ptr(lo)*chunkSize})
	Launch(q, "norm", "norms", line(hi-lo), normThreads, &normArgs{pairs: c.pairs + Ptr(lo)*Ptr(unsafe.Sizeof(pair{}))})
	from, to := c.chunks[lo].from, c.chunks[hi-1].from+c.chunks[hi-1].len
	q.Out(c.payloadOut[from:to], c.payload+Ptr(from))
}

// Finish queues what is left once all chunks are encoded: the norms are fetched, and whether all values are finite.
func (c *Encoder) Finish(q *Queue, gradient Ptr) {
	n := 0
	for _, k := range c.chunks {
		n += k.n
	}
	if q.err == nil {
		q.fail(q.d.c.Fill(c.first, 0xff, 8, q.s)) // the largest number: there is none
	}
	Launch(q, "finite", "finite", line(ceil(n, perFinite)), finiteThreads, &finiteArgs{x: gradient, n: uint64(n), first: c.first})
	q.Out(c.found[:8*len(c.chunks)], c.norms)
	q.Out(c.found[8*len(c.chunks):], c.first)
}

// Payload returns the payload of a chunk, until the next Begin, and the squared norm of what it decodes to. What was queued is done.
func (c *Encoder) Payload(i int) (payload []byte, squaredNorm float64) {
	k := c.chunks[i]
	return c.payloadOut[k.from:][:k.len:k.len], math.Float64frombits(binary.LittleEndian.Uint64(c.found[8*i:]))
}

// NotFinite returns the number of the first value that is not finite, or -1.
func (c *Encoder) NotFinite() int { return int(binary.LittleEndian.Uint64(c.found[8*len(c.chunks):])) }
