package server

import (
	"bytes"
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// marks say since when the values of a version are unchanged, for each spot of a chunk: see
// kernels.Spot.
type marks struct {
	first kintsugi.Step // the version that is number 0 in since
	since []uint32      // by spot, the version that changed it last, or a later one; empty: all changed in this one
}

const abreast = 4 // spots that are compared together first

// sparseCodec is the codec of frames that name some values of their chunks.
var sparseCodec = transport.CodecOf(kernels.Sparse32, compress.Plain)

// mark makes the marks of x, unless the step that made x has; before is the version before x.
func (v *versions) mark(x, before *version) {
	if !v.marks || x == nil || len(x.marks.since) > 0 {
		return
	}
	n := v.spots[len(v.spots)-1]
	x.marks.since = slices.Grow(x.marks.since[:0], n)[:n]
	if before == nil || len(before.marks.since) == 0 || x.step-before.marks.first > math.MaxUint32 {
		x.marks.first = x.step
		clear(x.marks.since)
		return
	}
	x.marks.first = before.marks.first
	base, _ := v.layout.Span(v.chunks)
	for i, c := range v.layout.Chunks[v.chunks.Lo:v.chunks.Hi] {
		lo, hi, at, end := c.Lo-base, c.Hi-base, v.spots[i], v.spots[i+1]
		markChunk(x.marks.since[at:end], before.marks.since[at:end], uint32(x.step-x.marks.first), kernels.Bytes(x.params[lo:hi]), kernels.Bytes(before.params[lo:hi]))
	}
}

// markChunk sets the marks of a chunk with these bytes, which had the marks was and the bytes before,
// to now where they differ. Of a chunk in which every spot has changed, as in most models all have, it
// compares only a few.
func markChunk(since, was []uint32, now uint32, b, before []byte) {
	const size = 4 * kernels.Spot
	same := func(i, n int) bool {
		lo, hi := i*size, min((i+n)*size, len(b))
		return bytes.Equal(b[lo:hi], before[lo:hi])
	}
	all, probes := true, 16
	for i := 0; i < len(since) && all; i += max(1, len(since)/probes) {
		all = !same(i, 1)
	}
	for i := 0; i < len(since); i += abreast {
		n := min(abreast, len(since)-i)
		if !all && same(i, n) {
			copy(since[i:i+n], was[i:i+n])
			continue
		}
		for j := i; j < i+n; j++ {
			if since[j] = now; !all && same(j, 1) {
				since[j] = was[j]
			}
		}
	}
}

// lacked returns frames of what x has and a reader of version have may lack, and the size of those
// that do not lie where the version does. A frame of which a reader lacks little has only that.
func (v *versions) lacked(x *version, have kintsugi.Step) (list []*frame, own int) {
	named := make([][]kernels.Run, v.chunks.Hi-v.chunks.Lo)
	for i, c := range v.layout.Chunks[v.chunks.Lo:v.chunks.Hi] {
		named[i] = x.marks.lacking(v.spots[i], v.spots[i+1], c.Len(), have)
	}
	var whole []kintsugi.ChunkRange
	for lo, n := kintsugi.ChunkID(0), kintsugi.ChunkID(len(named)); lo < n; {
		hi := lo
		for hi < n && len(named[hi]) > 0 {
			hi++
		}
		if hi > lo {
			whole = append(whole, transport.Frames(v.layout, kintsugi.ChunkRange{Lo: v.chunks.Lo + lo, Hi: v.chunks.Lo + hi})...)
		}
		lo = max(hi, lo+1)
	}
	list = v.cut(x, whole)
	for _, f := range list {
		few, most := named[f.chunks.Lo-v.chunks.Lo:f.chunks.Hi-v.chunks.Lo], 0
		for i, runs := range few {
			values := 0
			for _, r := range runs {
				values += int(r.Hi - r.Lo)
			}
			most += kernels.MaxSparseBytes(kernels.Sparse32, v.layout.Chunks[int(f.chunks.Lo)+i].Len(), values)
		}
		if 2*most < len(f.bytes) {
			f.codec, f.bytes, f.memory, f.named = sparseCodec, make([]byte, 0, most), nil, few
			f.layout = v.layout
			own += most
		}
	}
	return list, own
}

// lacking returns the values of a chunk that a reader of version have may lack: those of spots [at,
// end), of n values.
func (m *marks) lacking(at, end, n int, have kintsugi.Step) (runs []kernels.Run) {
	for i := at; i < end; i++ {
		if have >= m.first && uint64(m.since[i]) <= uint64(have-m.first) {
			continue
		}
		lo, hi := (i-at)*kernels.Spot, min((i-at+1)*kernels.Spot, n)
		if k := len(runs); k > 0 && int(runs[k-1].Hi) == lo {
			runs[k-1].Hi = int32(hi)
		} else {
			runs = append(runs, kernels.Run{Lo: int32(lo), Hi: int32(hi)})
		}
	}
	return runs
}

// encodeNamed makes the bytes of a frame that has only the values of runs.
func (f *frame) encodeNamed() {
	base, _ := f.layout.Span(f.chunks)
	for i, runs := range f.named {
		c := f.layout.Chunks[int(f.chunks.Lo)+i]
		f.bytes = kernels.AppendRuns(f.bytes, f.values[c.Lo-base:c.Hi-base], runs)
	}
	f.crc = transport.Checksum(f.bytes)
}
