package server

import (
	"fmt"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// held is the landing buffer of one push: the operands of the kernel, as they were sent. It belongs
// to the goroutine of the stream on which it arrives until the push has landed whole, and to the
// replica from then on. If the step is foreseen, chunks that have landed are read before that: see
// arrival.
type held struct {
	chunks []landedChunk // by chunk of the shard
	left   int           // chunks that have not landed
	landed bool          // the stream is done with the buffer; the replica owns this field throughout

	values []float32    // of the FP32 chunks, each at its place in the shard; nil before the first of them has arrived in a frame
	memory *shm.Segment // of the FP32 chunks that lie where the worker has put them; nil: none
	blocks [][]byte     // payloads of the frames in other encodings, in order of arrival
	used   int          // the number of blocks of this push; the others are left over from an earlier push

	landing kernels.Landing // on the accelerator; nil: there is none

	arrival arrival
}

// landedChunk is one chunk of a push.
type landedChunk struct {
	have     bool
	encoding kernels.Encoding
	data     []byte    // its payload, in a block; nil for FP32
	values   []float32 // of FP32 in the worker's memory; nil: in held.values
}

// forget drops the references to memory that does not belong to the buffer. The memory of a worker,
// which may be gone, stays mapped for as long as something refers to it.
func (h *held) forget() {
	clear(h.chunks)
	h.memory = nil
	h.arrival.clear()
}

// operand returns chunk i of the shard, its values [lo, hi), as an operand of the kernel.
func (h *held) operand(i, lo, hi int, weight float32) kernels.Operand {
	c := &h.chunks[i]
	switch {
	case c.values != nil:
		return kernels.Operand{Weight: weight, Values: c.values}
	case c.encoding == kernels.FP32:
		return kernels.Operand{Weight: weight, Values: h.values[lo:hi]}
	}
	return kernels.Operand{Weight: weight, Encoding: c.encoding, Data: c.data}
}

// knows reports whether all chunks in range have landed already, that is, whether the frame is a
// repetition. A frame that repeats only some of its chunks is an error: no worker of this release
// cuts frames so, and memory would grow.
func (h *held) knows(r *replica, chunks kintsugi.ChunkRange) (bool, error) {
	n := 0
	for _, c := range h.of(r, chunks) {
		if c.have {
			n++
		}
	}
	if all := int(chunks.Hi - chunks.Lo); n > 0 && n < all {
		return false, fmt.Errorf("%w: %d of the %d chunks [%d, %d) have landed before, in another frame", kintsugi.ErrCorrupt, n, all, chunks.Lo, chunks.Hi)
	}
	return n > 0, nil
}

func (h *held) of(r *replica, chunks kintsugi.ChunkRange) []landedChunk {
	return h.chunks[chunks.Lo-r.chunks.Lo : chunks.Hi-r.chunks.Lo]
}

// done notes that chunks have landed and are verified.
func (h *held) done(r *replica, chunks kintsugi.ChunkRange) {
	h.left -= int(chunks.Hi - chunks.Lo)
	h.arrival.landed(kintsugi.ChunkRange{Lo: chunks.Lo - r.chunks.Lo, Hi: chunks.Hi - r.chunks.Lo})
}

// block returns n bytes that live as long as the push.
func (h *held) block(n int) []byte {
	if h.used == len(h.blocks) {
		h.blocks = append(h.blocks, nil)
	}
	b := h.blocks[h.used]
	if cap(b) < n {
		b = make([]byte, n, n+n/8) // the next payload may be a little longer
	}
	h.blocks[h.used] = b[:n]
	h.used++
	return b[:n]
}

// refusal says why a gradient cannot be counted although it arrived as it was sent.
type refusal struct{ error }

// landValues lands a frame of FP32 chunks at their place, and checks that they are finite while
// they are in the cache.
func (in *landing) landValues(r *replica, f *transport.Frame) error {
	h := in.buffer
	lo, hi := r.cfg.Layout.Span(f.Chunks)
	values, err := in.values(r, f, lo, hi)
	if err != nil {
		return err
	}
	bad, err := r.cfg.Device.Finite(values)
	if err != nil {
		return fmt.Errorf("scan gradient of %v: %w", f.Push, err)
	}
	if bad >= 0 {
		return refused(r, lo+bad, fmt.Errorf("%w: it holds %v", kintsugi.ErrNotFinite, values[bad]))
	}
	chunks := h.of(r, f.Chunks)
	for i := range chunks {
		chunks[i] = landedChunk{have: true}
		if f.Shared() != nil {
			c := r.cfg.Layout.Chunks[int(f.Chunks.Lo)+i]
			chunks[i].values = values[c.Lo-lo : c.Hi-lo]
		}
	}
	for i, c := range r.cfg.Layout.Chunks[f.Chunks.Lo:f.Chunks.Hi] {
		if err := h.land(int(f.Chunks.Lo-r.chunks.Lo)+i, kernels.FP32, kernels.Bytes(values[c.Lo-lo:c.Hi-lo])); err != nil {
			return err
		}
	}
	h.done(r, f.Chunks)
	return nil
}

// values returns the values of a frame of FP32 chunks, with the checksum verified. They stay where
// the worker has put them if that is shared memory; otherwise they are copied to their place in the
// buffer.
func (in *landing) values(r *replica, f *transport.Frame, lo, hi int) ([]float32, error) {
	h := in.buffer
	if b := f.Shared(); b != nil && f.Codec.Stage() == compress.Plain {
		if len(b) != 4*(hi-lo) {
			return nil, fmt.Errorf("%w: frame of chunks [%d, %d) has %d bytes, want %d", kintsugi.ErrCorrupt, f.Chunks.Lo, f.Chunks.Hi, len(b), 4*(hi-lo))
		}
		h.memory = in.memory // keep the mapping for as long as the buffer refers to it
		return kernels.Floats(b), f.Check()
	}
	if h.values == nil {
		h.values = make([]float32, r.values)
	}
	values := h.values[lo-r.lo : hi-r.lo]
	return values, in.unpack(f, kernels.Bytes(values))
}

// landPayloads lands a frame of chunks in another encoding, finds where each chunk begins, and
// checks each completely, because the kernel does not check its operands.
func (in *landing) landPayloads(r *replica, f *transport.Frame) error {
	h, e := in.buffer, f.Codec.Encoding()
	data, err := in.payload(r, f)
	if err != nil {
		return err
	}
	chunks := h.of(r, f.Chunks)
	for i := range chunks {
		c := r.cfg.Layout.Chunks[int(f.Chunks.Lo)+i]
		size, err := kernels.Check(e, c.Len(), data)
		if err != nil {
			return refused(r, c.Lo, err)
		}
		chunks[i] = landedChunk{have: true, encoding: e, data: data[:size:size]}
		if err := h.land(int(f.Chunks.Lo-r.chunks.Lo)+i, e, data[:size]); err != nil {
			return err
		}
		data = data[size:]
	}
	if len(data) > 0 {
		return refused(r, r.cfg.Layout.Chunks[f.Chunks.Hi-1].Lo, fmt.Errorf("%w: %d bytes follow the last chunk", kernels.ErrPayload, len(data)))
	}
	h.done(r, f.Chunks)
	return nil
}

// refused returns the refusal of a gradient because of value i of the model.
func refused(r *replica, i int, why error) error {
	return refusal{fmt.Errorf("tensor %s: %w", r.cfg.Layout.TensorAt(i), why)}
}

// unpack copies the payload of a frame into dst, which has room for exactly the payloads of its
// chunks, and undoes the lossless stage.
func (in *landing) unpack(f *transport.Frame, dst []byte) error {
	if f.Codec.Stage() == compress.Plain {
		return f.CopyTo(dst)
	}
	data, err := in.unpackAtMost(f, len(dst))
	if err != nil {
		return err
	}
	if len(data) != len(dst) {
		return fmt.Errorf("%w: frame of chunks [%d, %d) unpacks to %d bytes, want %d", kintsugi.ErrCorrupt, f.Chunks.Lo, f.Chunks.Hi, len(data), len(dst))
	}
	copy(dst, data)
	return nil
}

// payload returns the payloads of the chunks of a frame, in memory that lives as long as the push.
func (in *landing) payload(r *replica, f *transport.Frame) ([]byte, error) {
	h := in.buffer
	if f.Codec.Stage() == compress.Plain {
		b := h.block(int(f.Bytes))
		return b, f.CopyTo(b)
	}
	most := 0
	for _, c := range r.cfg.Layout.Chunks[f.Chunks.Lo:f.Chunks.Hi] {
		most += maxPayload(c.Len())
	}
	data, err := in.unpackAtMost(f, most)
	if err != nil {
		return nil, err
	}
	b := h.block(len(data))
	copy(b, data)
	return b, nil
}

// maxPayload bounds the payload in bytes of a chunk of n values in any encoding: two matrices of at
// most n values each, or a float32 and an index for each value.
func maxPayload(n int) int { return 8*n + 16 }

// unpackAtMost returns the payload of a frame without its lossless stage. The bytes are valid until
// the next call.
func (in *landing) unpackAtMost(f *transport.Frame, most int) ([]byte, error) {
	in.packed = slices.Grow(in.packed[:0], int(f.Bytes))[:f.Bytes]
	err := f.CopyTo(in.packed)
	if err != nil {
		return nil, err
	}
	if in.unpacked, err = compress.Unpack(in.unpacked[:0], f.Codec.Stage(), f.Codec.Encoding(), in.packed, most); err != nil {
		return nil, fmt.Errorf("frame of chunks [%d, %d): %w", f.Chunks.Lo, f.Chunks.Hi, err)
	}
	return in.unpacked, nil
}

// exact reports whether an encoding can represent any float32. Nobody here can know what a worker
// left out of a sparse payload on purpose; the settings keep such codecs away from rules that need
// exact gradients.
func exact(e kernels.Encoding) bool { return e == kernels.FP32 || e == kernels.Sparse32 }

// exactOnly reports whether gradients that are only nearly right are useless to a rule: the rules
// for counts and for rows that have one owner.
func exactOnly(r kintsugi.Rule) bool { return r == kintsugi.RuleAdd || r == kintsugi.RuleAssign }
