package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Coding says how chunks are encoded.
type Coding struct {
	Encoding kernels.Encoding // all but FP32
	AtRandom bool             // Int8 only: rounded at random, else to nearest

	// Largest says how many of n values are sent in Sparse16 or Sparse32, 1 to n: those of largest
	// magnitude. In Sparse32 it may be nil: all are sent that are not +0.
	Largest func(n int) int

	// Matrix says how a chunk is seen in LowRank, of which it has rows·cols values, and the rank of
	// what is sent for it, at most 64. A chunk with one column is sent as it is.
	Matrix func(chunk int) (rows, cols, rank int)
}

// Encoder encodes an array of chunks that is on the GPU, many chunks in a launch: each has the
// payload that the encoders of kernels.Device, kernels.AppendSparse and the codecs powersgd and
// sparse of kernels/compress write, bit for bit. The payloads come to the host, and so do the
// squared norms of what they decode to.
//
// Arrays of what is carried and what is left have gaps, so that each chunk is aligned: Size is
// their length. All queues are of one device, and what is queued for one encoder is queued by one
// goroutine.
type Encoder struct {
	q      *Queue // whose memory it has
	coder  coder
	chunks []encoded
	size   int

	x, payload, decoded, pairs, norms, first Ptr
	payloadOut, found                        []byte
}

// encoded is where a chunk is.
type encoded struct {
	lo, n     int // values of the flat array
	at        Ptr // in arrays with gaps
	from, len int // bytes of its payload, the most if they differ from gradient to gradient
	aligned   bool
}

// coder writes payloads, and what they decode to.
type coder interface {
	begin(i int, f fed)          // says what chunk i is encoded of, once start has been done
	start(q *Queue)              // queues what begin said
	encode(q *Queue, lo, hi int) // queues the encoding of chunks [lo, hi), and brings their payloads to the host
	finish(q *Queue)             // queues what is left once all are encoded
	length(i int) int            // of the payload of chunk i, when all that was queued is done
}

// fed is what a chunk is encoded of: arrays on the GPU, of which carry and residual may be 0.
type fed struct {
	x, carry, residual Ptr
	seed               uint64
}

// Encodes reports whether there are encoders of e.
func Encodes(e kernels.Encoding) bool {
	return denseKernels[e].kernel != "" || e == kernels.Sparse16 || e == kernels.Sparse32 || e == kernels.LowRank
}

// NewEncoder returns an encoder for a flat array of chunks of these lengths, with memory of q. Errors are q's.
func NewEncoder(q *Queue, coding Coding, lengths []int) (*Encoder, error) {
	if !Encodes(coding.Encoding) || coding.Encoding == kernels.Sparse16 && coding.Largest == nil {
		return nil, fmt.Errorf("encode %v on a GPU: there is no kernel for it", coding.Encoding)
	}
	c := &Encoder{q: q}
	lo, bytes := 0, 0
	for i, n := range lengths {
		lead := -len(coding.shape(i)) & 3 // what comes behind that is aligned
		k := encoded{lo: lo, n: n, at: Ptr(c.size), from: bytes + lead, len: coding.mostBytes(i, n), aligned: lo%4 == 0}
		c.chunks = append(c.chunks, k)
		lo += n
		c.size += ceil(4*n, vector) * vector
		bytes += ceil(lead+k.len, vector) * vector
	}
	c.x, c.decoded, c.payload = q.Array(c.size), q.Array(c.size), q.Array(bytes)
	c.norms, c.first = q.Array(8*len(lengths)), q.Array(8)
	c.payloadOut, c.found = q.Pinned(bytes), q.Pinned(8*len(lengths)+8)
	switch {
	case coding.Encoding == kernels.LowRank:
		c.coder = newLowRank(c, coding)
	case coding.Largest != nil:
		c.coder = newLargest(c, coding)
	case coding.Encoding == kernels.Sparse32:
		c.coder = newNamed(c)
	default:
		c.coder = newDense(c, coding)
	}
	pairs := make([]pair, len(c.chunks))
	for i, k := range c.chunks {
		pairs[i] = pair{x: c.decoded + k.at, n: uint64(k.n), result: c.norms + Ptr(8*i)}
	}
	c.pairs = put(q, pairs)
	return c, q.Wait()
}

// mostBytes bounds the payload of a chunk, of n values.
func (c Coding) mostBytes(chunk, n int) int {
	switch {
	case c.Encoding == kernels.LowRank:
		rows, cols, rank := c.Matrix(chunk)
		return len(c.shape(chunk)) + 4*rank*(rows+cols)
	case c.Largest != nil:
		return kernels.MaxSparseBytes(c.Encoding, n, c.Largest(n))
	case c.Encoding == kernels.Sparse32:
		return kernels.MaxSparseBytes(c.Encoding, n, n)
	}
	return denseKernels[c.Encoding].bytes(n)
}

// rows is a table of structs for kernels, which is written here and copied there.
type rows[T any] struct {
	at Ptr
	in []byte // pinned
	of []T    // the same memory
}

func makeRows[T any](q *Queue, n int) rows[T] {
	var one T
	size := n * int(unsafe.Sizeof(one))
	r := rows[T]{at: q.Array(size), in: q.Pinned(size)}
	if q.err == nil {
		r.of = unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(r.in))), n)
	}
	return r
}

// set writes a row. After an error of the queue there are none.
func (r *rows[T]) set(i int, v T) {
	if i < len(r.of) {
		r.of[i] = v
	}
}

// from returns where row i is on the GPU.
func (r *rows[T]) from(i int) Ptr {
	var one T
	return r.at + Ptr(i)*Ptr(unsafe.Sizeof(one))
}

// put copies structs to an array of their own, and returns it.
func put[T any](q *Queue, x []T) Ptr {
	r := makeRows[T](q, len(x))
	copy(r.of, x)
	q.In(r.at, r.in)
	return r.at
}

// Size returns the bytes of an array with gaps.
func (c *Encoder) Size() int { return c.size }

// Begin says what the next payloads are of: the flat gradient, and arrays with gaps of what is
// carried and what is left; 0: there are none. seeds are by chunk, of what is rounded at random.
// Nothing that was queued before may be under way.
func (c *Encoder) Begin(gradient, carry, residual Ptr, seeds []uint64) {
	for i, k := range c.chunks {
		f := fed{x: gradient + Ptr(4*k.lo)}
		if !k.aligned {
			f.x = c.x + k.at
		}
		if carry != 0 {
			f.carry = carry + k.at
		}
		if residual != 0 {
			f.residual = residual + k.at
		}
		if seeds != nil {
			f.seed = seeds[i]
		}
		c.coder.begin(i, f)
	}
}

// Start queues what Begin said. It may be part of a program, which does what Begin has said by then.
func (c *Encoder) Start(q *Queue) { c.coder.start(q) }

// Encode queues the encoding of chunks [lo, hi), whose gradient is final, and brings their payloads to the host.
func (c *Encoder) Encode(q *Queue, gradient Ptr, lo, hi int) {
	if lo == hi {
		return
	}
	for _, k := range c.chunks[lo:hi] {
		if !k.aligned {
			q.Copy(c.x+k.at, gradient+Ptr(4*k.lo), 4*k.n)
		}
	}
	c.coder.encode(q, lo, hi)
	Launch(q, "norm", "norms", line(hi-lo), normThreads, &normArgs{pairs: c.pairs + Ptr(lo)*Ptr(unsafe.Sizeof(pair{}))})
}

// fetch queues the copy of payloads to the host, as long as they may be.
func (c *Encoder) fetch(q *Queue, lo, hi int) {
	from, to := c.chunks[lo].from, c.chunks[hi-1].from+c.chunks[hi-1].len
	if q.err == nil {
		q.Out(c.payloadOut[from:to], c.payload+Ptr(from))
	}
}

// Finish queues what is left once all chunks are encoded: the norms are fetched, and whether all values are finite.
func (c *Encoder) Finish(q *Queue, gradient Ptr) {
	n := 0
	for _, k := range c.chunks {
		n += k.n
	}
	c.coder.finish(q)
	if q.err == nil {
		q.fail(q.d.c.Fill(c.first, 0xff, 8, q.s)) // the largest number: there is none
	}
	Launch(q, "finite", "finite", line(ceil(n, perFinite)), finiteThreads, &finiteArgs{x: gradient, n: uint64(n), first: c.first})
	q.Out(c.found[:8*len(c.chunks)], c.norms)
	q.Out(c.found[8*len(c.chunks):], c.first)
}

// Payload returns the payload of a chunk, until the next Begin, and the squared norm of what it
// decodes to. What was queued is done.
func (c *Encoder) Payload(i int) (payload []byte, squaredNorm float64) {
	n := c.coder.length(i)
	return c.payloadOut[c.chunks[i].from:][:n:n], math.Float64frombits(binary.LittleEndian.Uint64(c.found[8*i:]))
}

// NotFinite returns the number of the first value that is not finite, or -1.
func (c *Encoder) NotFinite() int { return int(binary.LittleEndian.Uint64(c.found[8*len(c.chunks):])) }
