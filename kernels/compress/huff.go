package compress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/huff0"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// The low-order bits of gradients are noise; only their exponents are worth coding. Rotating a
// number left by one bit puts its exponent into the upper byte and its sign into the lowest bit.
// The upper bytes of all numbers, called the plane, are coded, and the rest is stored. If values
// have one byte, or a payload mixes numbers of several widths, the whole payload is the plane.

// planeBlock is the number of bytes of the plane that share a code: enough that its table costs
// nothing, few enough that the lengths of its parts fit in 16 bits.
const planeBlock = 128 << 10

// The ways to store a block of the plane.
const (
	blockRaw  = 0
	blockSame = 1 // one byte, repeated
	blockHuff = 2 // a table, and four streams
)

// width returns the number of bytes of a value in payloads whose plane is cut out; 1 for all other
// encodings.
func width(e kernels.Encoding) int {
	switch e {
	case kernels.FP32:
		return 4
	case kernels.BF16, kernels.FP16:
		return 2
	}
	return 1
}

// planes is the working memory for packing or unpacking one payload.
type planes struct {
	plane   []byte
	scratch huff0.Scratch
}

var planesPool = sync.Pool{New: func() any {
	return &planes{scratch: huff0.Scratch{Reuse: huff0.ReusePolicyNone}}
}}

// packHuff0 appends to dst the length of the payload as a uvarint, the lower bytes of all values,
// and the plane block by block.
func packHuff0(dst, payload []byte, e kernels.Encoding) []byte {
	p := planesPool.Get().(*planes)
	defer planesPool.Put(p)
	dst = binary.AppendUvarint(dst, uint64(len(payload)))
	w := width(e)
	plane := payload
	if w > 1 {
		n := len(payload) / w
		p.plane = resize(p.plane, n)
		plane = p.plane
		var low []byte
		dst, low = extend(dst, (w-1)*n)
		split(plane, low, payload, w)
	}
	for len(plane) > 0 {
		n := min(len(plane), planeBlock)
		dst = p.appendBlock(dst, plane[:n])
		plane = plane[n:]
	}
	return dst
}

// appendBlock appends the uvarint 4·length + kind, then the stored bytes, length of them.
func (p *planes) appendBlock(dst, block []byte) []byte {
	kind := blockHuff
	out, _, err := huff0.Compress4X(block, &p.scratch)
	switch {
	case errors.Is(err, huff0.ErrUseRLE):
		kind, out = blockSame, block[:1]
	case err != nil:
		kind, out = blockRaw, block
	}
	dst = binary.AppendUvarint(dst, uint64(len(out)<<2|kind))
	return append(dst, out...)
}

// unpackHuff0 is Unpack for the output of packHuff0.
func unpackHuff0(dst []byte, e kernels.Encoding, packed []byte, limit int) ([]byte, error) {
	n, packed, ok := takeUvarint(packed)
	if !ok {
		return nil, truncated("its length")
	}
	if n > limit {
		return nil, tooLong(n, limit)
	}
	w := width(e)
	if n%w != 0 {
		return nil, fmt.Errorf("unpack a payload: %d bytes are no whole number of %v values: %w", n, e, kintsugi.ErrCorrupt)
	}
	stored := n / w * (w - 1)
	if len(packed) < stored {
		return nil, truncated("the stored part")
	}
	low, packed := packed[:stored], packed[stored:]
	p := planesPool.Get().(*planes)
	defer planesPool.Put(p)
	dst, to := extend(dst, n)
	plane := to
	if w > 1 {
		p.plane = resize(p.plane, n/w)
		plane = p.plane
	}
	if err := p.readBlocks(plane, packed); err != nil {
		return nil, err
	}
	if w > 1 {
		join(to, plane, low, w)
	}
	return dst, nil
}

// readBlocks fills the plane from its blocks, which must make up all of data.
func (p *planes) readBlocks(plane, data []byte) error {
	for len(plane) > 0 {
		n := min(len(plane), planeBlock)
		head, rest, ok := takeUvarint(data)
		if !ok || len(rest) < head>>2 {
			return truncated("a block")
		}
		if err := p.readBlock(plane[:n:n], head&3, rest[:head>>2]); err != nil {
			return err
		}
		plane, data = plane[n:], rest[head>>2:]
	}
	if len(data) > 0 {
		return fmt.Errorf("unpack a payload: %d bytes are left over: %w", len(data), kintsugi.ErrCorrupt)
	}
	return nil
}

func (p *planes) readBlock(block []byte, kind int, data []byte) error {
	switch {
	case kind == blockRaw && len(data) == len(block):
		copy(block, data)
		return nil
	case kind == blockSame && len(data) == 1:
		for i := range block {
			block[i] = data[0]
		}
		return nil
	case kind == blockHuff:
		s, data, err := huff0.ReadTable(data, &p.scratch)
		if err == nil {
			_, err = s.Decoder().Decompress4X(block[:0], data)
		}
		if err != nil {
			return fmt.Errorf("unpack a block of %d bytes: %w: %w", len(block), err, kintsugi.ErrCorrupt)
		}
		return nil
	}
	return fmt.Errorf("unpack a block of %d bytes: kind %d with %d bytes is unknown: %w", len(block), kind, len(data), kintsugi.ErrCorrupt)
}

// split rotates each value of w bytes left by one bit and separates its upper byte from the others.
func split(plane, low, payload []byte, w int) {
	if w == 2 {
		for i := range plane {
			v := binary.LittleEndian.Uint16(payload[2*i:])
			v = v<<1 | v>>15
			plane[i], low[i] = byte(v>>8), byte(v)
		}
		return
	}
	for i := range plane {
		v := binary.LittleEndian.Uint32(payload[4*i:])
		v = v<<1 | v>>31
		b := low[3*i:][:3]
		plane[i], b[0], b[1], b[2] = byte(v>>24), byte(v), byte(v>>8), byte(v>>16)
	}
}

// join is the inverse of split.
func join(payload, plane, low []byte, w int) {
	if w == 2 {
		for i, high := range plane {
			v := uint16(high)<<8 | uint16(low[i])
			binary.LittleEndian.PutUint16(payload[2*i:], v>>1|v<<15)
		}
		return
	}
	for i, high := range plane {
		b := low[3*i:][:3]
		v := uint32(high)<<24 | uint32(b[2])<<16 | uint32(b[1])<<8 | uint32(b[0])
		binary.LittleEndian.PutUint32(payload[4*i:], v>>1|v<<31)
	}
}
