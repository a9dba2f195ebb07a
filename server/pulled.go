package server

import (
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// pulled is a version as readers get it. It is encoded and checksummed once, whatever the number of
// readers, and frame by frame, so that the first frame is on its way before the last one is made.
type pulled struct {
	mu      sync.Mutex
	whole   []*frame
	halves  []*frame
	changes map[kintsugi.Step][]*frame // by the version that a reader has
	kept    int                        // bytes that frames in changes have of their own
}

// frame is a range of chunks of a version.
type frame struct {
	chunks kintsugi.ChunkRange
	codec  transport.Codec
	values []float32         // of the version
	memory *transport.Memory // that bytes lie in; nil: only this process can read them
	place  uint32            // in memory
	named  [][]kernels.Run   // by chunk, the values that the frame has; nil: all
	layout *kintsugi.Layout  // if some are named

	once  sync.Once
	bytes []byte
	crc   uint32
	err   error
}

// encode makes the bytes of a frame and their checksum, unless they are made already.
func (f *frame) encode(d kernels.Device) error {
	f.once.Do(func() {
		switch values := kernels.Bytes(f.values); {
		case f.named != nil:
			f.encodeNamed()
		case f.codec != 0:
			f.err = d.EncodeBF16(f.bytes, f.values, nil, nil)
			f.crc = transport.Checksum(f.bytes)
		case &f.bytes[0] == &values[0]:
			f.crc = transport.Checksum(f.bytes)
		default:
			f.crc = kernels.CopyCRC32C(0, f.bytes, values)
		}
	})
	return f.err
}

// maxChanges bounds the earlier versions for which frames of changes are kept, since readers may name
// any version. Those that are kept have no more bytes of their own than the version has.
const maxChanges = 256

// frames returns the frames of x for a reader. borrows says whether the reader can read them in
// memory of this process.
func (v *versions) frames(x *version, req transport.ReadRequest, borrows bool) []*frame {
	x.pulled.mu.Lock()
	defer x.pulled.mu.Unlock()
	if x.far != nil && borrows && x.rooms.copied.bytes == nil && len(x.params) > 0 {
		x.rooms.copied = newRoom(4 * len(x.params))
		x.pulled.whole, x.pulled.changes, x.pulled.kept = nil, nil, 0
	}
	switch {
	case req.Form == transport.ReadHalves:
		if x.pulled.halves == nil {
			x.pulled.halves = v.halves(x)
		}
		return x.pulled.halves
	case req.Form == transport.ReadChanges && len(x.marks.since) > 0:
		list, ok := x.pulled.changes[req.Have]
		if !ok {
			own := 0
			list, own = v.lacked(x, req.Have)
			if x.pulled.changes == nil {
				x.pulled.changes = make(map[kintsugi.Step][]*frame)
			}
			if len(x.pulled.changes) < maxChanges && x.pulled.kept+own <= 4*len(x.params) {
				x.pulled.changes[req.Have] = list
				x.pulled.kept += own
			}
		}
		return list
	}
	if x.pulled.whole == nil {
		x.pulled.whole = v.cut(x, transport.Frames(v.layout, v.chunks))
	}
	return x.pulled.whole
}

// cut returns frames of float32. They lie where the parameters do, or in the copy of them that
// readers can borrow.
func (v *versions) cut(x *version, ranges []kintsugi.ChunkRange) []*frame {
	base, _ := v.layout.Span(v.chunks)
	from := x.rooms.params
	if x.far != nil {
		from = x.rooms.copied
	}
	if from.bytes == nil {
		from.bytes = kernels.Bytes(x.params)
	}
	list := make([]*frame, len(ranges))
	for i, r := range ranges {
		lo, hi := v.layout.Span(r)
		lo, hi = lo-base, hi-base
		list[i] = &frame{chunks: r, values: x.params[lo:hi], bytes: from.bytes[4*lo : 4*hi], memory: from.memory, place: transport.PlaceAt(4 * lo)}
	}
	return list
}

// halves returns frames of bfloat16.
func (v *versions) halves(x *version) []*frame {
	base, _ := v.layout.Span(v.chunks)
	ranges := transport.Frames(v.layout, v.chunks)
	list, at := make([]*frame, len(ranges)), make([]int, len(ranges))
	var places transport.Places
	for i, r := range ranges {
		lo, hi := v.layout.Span(r)
		at[i] = places.Bytes()
		list[i] = &frame{chunks: r, codec: transport.CodecOf(kernels.BF16, 0), values: x.params[lo-base : hi-base], place: places.Take(2 * (hi - lo))}
	}
	if x.rooms.halves.bytes == nil {
		x.rooms.halves = newRoom(places.Bytes())
	}
	for i, f := range list {
		f.bytes, f.memory = x.rooms.halves.bytes[at[i]:at[i]+2*len(f.values)], x.rooms.halves.memory
	}
	return list
}
