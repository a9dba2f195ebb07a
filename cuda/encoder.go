package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Coding says how an Encoder encodes chunks.
type Coding struct {
	Encoding kernels.Encoding // any but FP32
	AtRandom bool             // Int8 only: round at random, otherwise to nearest

	// Largest returns how many of n values are sent in Sparse16 or Sparse32, from 1 to n: those of
	// largest magnitude. With Sparse32 it may be nil; then all values that are not +0 are sent.
	Largest func(n int) int

	// Matrix returns the matrix as which a chunk is seen in LowRank, which has rows·cols values,
	// and the rank that is sent, at most 64. A chunk with one column is sent as it is.
	Matrix func(chunk int) (rows, cols, rank int)
}

// Encoder encodes an array of chunks that is on the GPU, many chunks in one launch. Each payload
// equals, bit for bit, the one that the encoders of kernels.Device, kernels.AppendSparse or the
// codecs powersgd and sparse of kernels/compress write. The payloads are copied to the host, and so
// are the squared norms of the values that they decode to.
//
// A gradient goes through these calls: Begin, Start, Encode for every range of chunks whose
// gradient is final, Finish, Wait on the queues, then Payload.
//
// The arrays for the carry and the residual have gaps, so that each chunk is aligned; Size is their
// length in bytes. All queues belong to one device, and one goroutine queues all work of an
// encoder.
type Encoder struct {
	q      *Queue // owns the encoder's memory
	coder  coder
	chunks []encoded
	size   int

	x, payload, decoded, pairs, norms, first Ptr
	payloadOut, found                        []byte
}

// encoded says where a chunk lies.
type encoded struct {
	lo, n     int // values of the flat array: from lo on
	at        Ptr // byte offset in arrays with gaps
	from, len int // bytes of its payload; len is the maximum if lengths differ from gradient to gradient
	aligned   bool
}

// coder writes payloads and the values that they decode to.
type coder interface {
	begin(i int, f fed)          // sets what chunk i is encoded from; start makes it effective
	start(q *Queue)              // queues what begin has set
	encode(q *Queue, lo, hi int) // queues the encoding of chunks [lo, hi) and the copy of their payloads to the host
	finish(q *Queue)             // queues what remains once all chunks are encoded
	length(i int) int            // length of the payload of chunk i, once all queued work is done
}

// fed holds the arrays on the GPU from which a chunk is encoded. carry and residual may be 0.
type fed struct {
	x, carry, residual Ptr
	seed               uint64
}

// Encodes reports whether an Encoder can write encoding e.
func Encodes(e kernels.Encoding) bool {
	return denseKernels[e].kernel != "" || e == kernels.Sparse16 || e == kernels.Sparse32 || e == kernels.LowRank
}

// NewEncoder returns an encoder for a flat array of chunks of these lengths, in values. Its memory
// belongs to q. It waits for q. Errors are those of q, or say that there is no kernel for the
// coding.
func NewEncoder(q *Queue, coding Coding, lengths []int) (*Encoder, error) {
	if !Encodes(coding.Encoding) || coding.Encoding == kernels.Sparse16 && coding.Largest == nil {
		return nil, fmt.Errorf("encode %v on a GPU: there is no kernel for it", coding.Encoding)
	}
	c := &Encoder{q: q}
	lo, bytes := 0, 0
	for i, n := range lengths {
		lead := -len(coding.shape(i)) & 3 // so that what follows the shape is aligned
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

// mostBytes bounds the size in bytes of the payload of a chunk of n values.
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

// rows is a table of structs for kernels. The host writes it in pinned memory, from which it is
// copied to the GPU.
type rows[T any] struct {
	at Ptr
	in []byte // pinned
	of []T    // views the memory of in
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

// set writes row i. After an error of the queue there are no rows, and it does nothing.
func (r *rows[T]) set(i int, v T) {
	if i < len(r.of) {
		r.of[i] = v
	}
}

// from returns the address of row i on the GPU.
func (r *rows[T]) from(i int) Ptr {
	var one T
	return r.at + Ptr(i)*Ptr(unsafe.Sizeof(one))
}

// put copies structs to a new array on the GPU and returns its address.
func put[T any](q *Queue, x []T) Ptr {
	r := makeRows[T](q, len(x))
	copy(r.of, x)
	q.In(r.at, r.in)
	return r.at
}

// Size returns the size in bytes of an array with gaps.
func (c *Encoder) Size() int { return c.size }

// Begin sets what the next payloads are encoded from: the flat gradient, and arrays with gaps that
// hold the carry and receive the residual; 0 means none. seeds are by chunk, for rounding at
// random. No work that was queued for the encoder before may be running.
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

// Start queues the arguments that Begin has set. It may be part of a program; a replay then uses
// the arguments of the latest Begin.
func (c *Encoder) Start(q *Queue) { c.coder.start(q) }

// Encode queues the encoding of chunks [lo, hi), whose gradient must be final, and the copy of
// their payloads to the host.
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

// fetch queues the copy of payloads to the host, at their maximal lengths.
func (c *Encoder) fetch(q *Queue, lo, hi int) {
	from, to := c.chunks[lo].from, c.chunks[hi-1].from+c.chunks[hi-1].len
	if q.err == nil {
		q.Out(c.payloadOut[from:to], c.payload+Ptr(from))
	}
}

// Finish queues the rest once all chunks are encoded: it fetches the norms, and the index of the
// first value of the gradient that is not finite.
func (c *Encoder) Finish(q *Queue, gradient Ptr) {
	n := 0
	for _, k := range c.chunks {
		n += k.n
	}
	c.coder.finish(q)
	if q.err == nil {
		q.fail(q.d.c.Fill(c.first, 0xff, 8, q.s)) // the largest uint64: all values are finite
	}
	Launch(q, "finite", "finite", line(ceil(n, perFinite)), finiteThreads, &finiteArgs{x: gradient, n: uint64(n), first: c.first})
	q.Out(c.found[:8*len(c.chunks)], c.norms)
	q.Out(c.found[8*len(c.chunks):], c.first)
}

// Payload returns the payload of chunk i and the squared norm of the values that it decodes to. All
// queued work must be done. The payload is valid until the next Begin.
func (c *Encoder) Payload(i int) (payload []byte, squaredNorm float64) {
	n := c.coder.length(i)
	return c.payloadOut[c.chunks[i].from:][:n:n], math.Float64frombits(binary.LittleEndian.Uint64(c.found[8*i:]))
}

// NotFinite returns the index of the first value of the gradient that is not finite, or -1.
func (c *Encoder) NotFinite() int { return int(binary.LittleEndian.Uint64(c.found[8*len(c.chunks):])) }
