package ckpt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Increments lets saves of some chunks add to what is saved of them instead of replacing it. A
// record then has the encoded difference to the saved values, so the next record has what this one
// leaves out. The optimizer's state is saved with it as bf16, since small errors in the state may
// be divided by one another.
type Increments struct {
	Encoding kernels.Encoding // of the difference: kernels.Int8, Int4, Sign or BF16

	// Coasts is for how many steps saved values move on with the velocity that the increments have
	// shown; 0: they stay as they were saved.
	Coasts kintsugi.Step
}

// Moving is what is saved of a chunk: its parameters and, if they coast, their change in one step.
type Moving struct{ Params, Velocity []float32 }

const (
	// maxChain is the largest number of records of one chunk's value. It bounds what a restore
	// reads of a chunk, and the age of the oldest record.
	maxChain = 16

	// agility is the part of a difference that counts as velocity. If all of it did, the noise of
	// single steps would drive the values.
	agility = 0.5

	incrementBytes = 24
)

// adds reports whether increments may have an encoding, which is so if the length of the encoded
// values depends on their number alone.
func adds(e kernels.Encoding) bool {
	return e == kernels.Int8 || e == kernels.Int4 || e == kernels.Sign || e == kernels.BF16
}

// codedBytes returns the encoded length of n values, in bytes.
func codedBytes(e kernels.Encoding, n int) int {
	switch e {
	case kernels.Int8:
		return kernels.Int8Bytes(n)
	case kernels.Int4:
		return kernels.Int4Bytes(n)
	case kernels.Sign:
		return kernels.SignBytes(n)
	}
	return 2 * n
}

// Bytes returns the bytes of one save of a chunk of n values with so many arrays of state, without
// headers, as a mean over a chain.
func (c *Increments) Bytes(n, arrays int) int64 {
	whole, part := 4*n*(1+arrays), incrementBytes+codedBytes(c.Encoding, n)+2*n*arrays
	return int64(part + max(0, whole-part)/maxChain)
}

// increment is the beginning of an increment's payload. It says which values the increment is added
// to and which values result, so that no value is ever made of records that do not belong together.
type increment struct {
	Base    kintsugi.Step // step of the values that it is added to
	BaseSum uint32        // checksum of those values
	Sum     uint32        // checksum of the resulting values
	Coasted uint32        // steps by which the values before coast
	Share   float32       // part of the difference that is added to the velocity
}

func (c increment) put(dst []byte) {
	le := binary.LittleEndian
	le.PutUint64(dst, uint64(c.Base))
	le.PutUint32(dst[8:], c.BaseSum)
	le.PutUint32(dst[12:], c.Sum)
	le.PutUint32(dst[16:], c.Coasted)
	le.PutUint32(dst[20:], math.Float32bits(c.Share))
}

// parseIncrement decodes the beginning of a record with a correct checksum, and checks the rest.
func parseIncrement(record []byte, h recordHeader) (increment, error) {
	le, b := binary.LittleEndian, record[headerBytes:]
	c := increment{
		Base: kintsugi.Step(le.Uint64(b)), BaseSum: le.Uint32(b[8:]), Sum: le.Uint32(b[12:]), Coasted: le.Uint32(b[16:]),
		Share: math.Float32frombits(le.Uint32(b[20:])),
	}
	if c.Base >= h.Step {
		return c, fmt.Errorf("an increment from step %d to step %d", c.Base, h.Step)
	}
	if !h.Coasts && (c.Coasted != 0 || math.Float32bits(c.Share) != 0) {
		return c, errors.New("an increment of values that stay coasts")
	}
	at := incrementBytes
	for i := range 1 + h.Arrays {
		e := h.Encoding
		if i > 0 {
			e = kernels.BF16
		}
		n, err := kernels.Check(e, h.Values, b[at:h.payload()])
		if err != nil {
			return c, err
		}
		at += n
	}
	return c, nil
}

// sum returns the checksum of values. If they do not coast, it is that of their parameters.
func (m Moving) sum() uint32 {
	return kernels.CRC32C(checksum(kernels.Bytes(m.Params)), kernels.Bytes(m.Velocity))
}

// apply adds a difference to m.
func (c increment) apply(m Moving, difference []float32) {
	if m.Velocity != nil {
		kernels.Coast(m.Params, m.Params, m.Velocity, float32(c.Coasted))
		kernels.Coast(m.Velocity, m.Velocity, difference, c.Share)
	}
	kernels.Coast(m.Params, m.Params, difference, 1)
}

// encode appends values, which must all be finite, in an encoding.
func encode(dst []byte, e kernels.Encoding, x []float32) ([]byte, error) {
	n := len(dst)
	dst = slices.Grow(dst, codedBytes(e, len(x)))[:n+codedBytes(e, len(x))]
	switch e {
	case kernels.Int8:
		return dst, kernels.Best().EncodeInt8(dst[n:], x, nil, nil)
	case kernels.Int4:
		return dst, kernels.Best().EncodeInt4(dst[n:], x, nil, nil)
	case kernels.Sign:
		return dst, kernels.Best().EncodeSign(dst[n:], x, nil, nil)
	}
	return dst, kernels.Best().EncodeBF16(dst[n:], x, nil, nil)
}

// link is the end of a chunk's chain, as its Writer has made it.
type link struct {
	step   kintsugi.Step
	sum    uint32
	length int // records
}

// appendIncrement appends a record that adds to what is saved. If the chunk must be saved whole, ok
// is false and nothing is appended. That is so if the chunk has values that are not finite, or if
// saved is not what this Writer has saved.
func (w *Writer) appendIncrement(dst []byte, h recordHeader, a Arrays, saved Moving) (_ []byte, _ recordHeader, kept Moving, ok bool) {
	last, c := w.chains[h.Chunk], w.cfg.Increments
	if len(saved.Params) != h.Values || saved.sum() != last.sum {
		return dst, h, kept, false
	}
	for _, values := range [...][]float32{a.Params, a.State[0], a.State[1]} {
		if kernels.Finite(values) >= 0 {
			return dst, h, kept, false
		}
	}
	inc := increment{Base: last.step, BaseSum: last.sum}
	kept.Params = slices.Clone(saved.Params)
	if c.Coasts > 0 {
		inc.Coasted, inc.Share = uint32(min(h.Step-last.step, c.Coasts)), agility/float32(h.Step-last.step)
		kept.Velocity = slices.Clone(saved.Velocity)
	}
	plain := h
	h.Increment, h.Encoding, h.Coasts = true, c.Encoding, c.Coasts > 0
	if h.bytes() >= plain.bytes() {
		return dst, plain, kept, false
	}
	difference := make([]float32, h.Values)
	copy(difference, kept.Params)
	if h.Coasts {
		kernels.Coast(difference, kept.Params, kept.Velocity, float32(inc.Coasted))
	}
	for i, x := range a.Params {
		difference[i] = x - difference[i]
	}
	if kernels.Finite(difference) >= 0 {
		return dst, plain, kept, false
	}
	start := len(dst)
	dst = slices.Grow(dst, h.bytes())[:start+headerBytes+incrementBytes]
	dst, err := encode(dst, h.Encoding, difference)
	if err == nil {
		err = kernels.Best().Decode(difference, h.Encoding, dst[start+headerBytes+incrementBytes:])
	}
	for i := 0; i < h.Arrays && err == nil; i++ {
		dst, err = encode(dst, kernels.BF16, a.State[i])
	}
	// Only a device that can be lost returns an error, and Best is not one.
	if err != nil {
		return dst[:start], plain, kept, false
	}
	inc.apply(kept, difference)
	inc.Sum = kept.sum()
	inc.put(dst[start+headerBytes:])
	h.PayloadCRC = checksum(dst[start+headerBytes:])
	end := len(dst)
	dst = dst[:start+h.bytes()]
	clear(dst[end:])
	h.put(dst[start:])
	w.chains[h.Chunk] = link{step: h.Step, sum: inc.Sum, length: last.length + 1}
	return dst, h, kept, true
}

// whole notes that a chunk was saved whole, so that increments may follow.
func (w *Writer) whole(h recordHeader, a Arrays) {
	if w.cfg.Increments == nil {
		return
	}
	m := Moving{Params: a.Params}
	if w.cfg.Increments.Coasts > 0 {
		m.Velocity = make([]float32, len(a.Params))
	}
	w.chains[h.Chunk] = link{step: h.Step, sum: m.sum(), length: 1}
}

// adds reports whether a chunk may be saved by an increment. cold are the chunks whose oldest
// records lie in segments that are to be removed.
func (w *Writer) adds(id kintsugi.ChunkID, step kintsugi.Step, cold []kintsugi.ChunkID) bool {
	last := w.chains[id]
	_, old := slices.BinarySearch(cold, id)
	return last.length > 0 && last.length < maxChain && last.step < step && !old
}
