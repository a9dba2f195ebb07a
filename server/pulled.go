package server

import (
	"bytes"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// pulled is a version as readers get it: encoded and checksummed once, whatever their number, and frame by frame, so that the first is on its
// way before the last is made.
type pulled struct {
	mu      sync.Mutex
	whole   []*frame
	halves  []*frame
	changes map[kintsugi.Step][]*frame // by the version that a reader has
}

// frame is a range of chunks of a version.
type frame struct {
	chunks kintsugi.ChunkRange
	codec  transport.Codec
	values []float32 // of the version

	once  sync.Once
	bytes []byte // of another codec than float32: room for them
	crc   uint32
	err   error
}

// encode makes the bytes of a frame, unless they are made.
func (f *frame) encode(d kernels.Device) error {
	f.once.Do(func() {
		if f.codec != 0 {
			f.err = d.EncodeBF16(f.bytes, f.values, nil, nil)
		} else {
			f.bytes = kernels.Bytes(f.values)
		}
		f.crc = transport.Checksum(f.bytes)
	})
	return f.err
}

// frames returns those of x for a reader.
func (v *versions) frames(x *version, req transport.ReadRequest) []*frame {
	x.pulled.mu.Lock()
	defer x.pulled.mu.Unlock()
	switch {
	case req.Form == transport.ReadHalves:
		if x.pulled.halves == nil {
			if x.halves == nil {
				x.halves = make([]byte, 2*len(x.params))
			}
			x.pulled.halves = v.cut(x, transport.CodecOf(kernels.BF16, 0), transport.Frames(v.layout, v.chunks))
		}
		return x.pulled.halves
	case req.Form == transport.ReadChanges && x.since != nil:
		list, ok := x.pulled.changes[req.Have]
		if !ok {
			list = v.cut(x, 0, v.lacking(x, req.Have))
			if x.pulled.changes == nil {
				x.pulled.changes = make(map[kintsugi.Step][]*frame)
			}
			x.pulled.changes[req.Have] = list
		}
		return list
	}
	if x.pulled.whole == nil {
		x.pulled.whole = v.cut(x, 0, transport.Frames(v.layout, v.chunks))
	}
	return x.pulled.whole
}

func (v *versions) cut(x *version, codec transport.Codec, ranges []kintsugi.ChunkRange) []*frame {
	base, _ := v.layout.Span(v.chunks)
	list := make([]*frame, len(ranges))
	for i, r := range ranges {
		lo, hi := v.layout.Span(r)
		if list[i] = (&frame{chunks: r, codec: codec, values: x.params[lo-base : hi-base]}); codec != 0 {
			list[i].bytes = x.halves[2*(lo-base) : 2*(hi-base)]
		}
	}
	return list
}

// lacking returns the chunks of x that a reader of version have may lack, in ranges that travel together.
func (v *versions) lacking(x *version, have kintsugi.Step) []kintsugi.ChunkRange {
	var list []kintsugi.ChunkRange
	n := int(v.chunks.Hi - v.chunks.Lo)
	for lo := 0; lo < n; {
		hi := lo
		for hi < n && x.since[hi] > have {
			hi++
		}
		if hi > lo {
			list = append(list, transport.Frames(v.layout, kintsugi.ChunkRange{Lo: v.chunks.Lo + kintsugi.ChunkID(lo), Hi: v.chunks.Lo + kintsugi.ChunkID(hi)})...)
		}
		lo = max(hi, lo+1)
	}
	return list
}

// mark says of x, which comes after before, since when its chunks are as they are. Where chunks change, as of most models all do, that is seen at
// their first values.
func (v *versions) mark(x, before *version) {
	if !v.marks || x == nil {
		return
	}
	base, _ := v.layout.Span(v.chunks)
	x.since = make([]kintsugi.Step, v.chunks.Hi-v.chunks.Lo)
	for i := range x.since {
		x.since[i] = x.step
		if before == nil || before.since == nil {
			continue
		}
		c := v.layout.Chunks[int(v.chunks.Lo)+i]
		lo, hi := c.Lo-base, c.Hi-base
		if bytes.Equal(kernels.Bytes(x.params[lo:hi]), kernels.Bytes(before.params[lo:hi])) {
			x.since[i] = before.since[i]
		}
	}
}
