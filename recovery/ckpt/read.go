package ckpt

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// reader reads chunks from segments.
type reader struct {
	parts  partReader
	layout *kintsugi.Layout
	place  Place
	chains map[kintsugi.ChunkID]*chain // values that need several records
}

func newReader(fsys vfs.FS, dir string, layout *kintsugi.Layout, place Place) *reader {
	return &reader{parts: partReader{fs: fsys, dir: dir}, layout: layout, place: place}
}

// read places the chunks of list, which it sorts. It calls bad for each chunk that cannot be read.
// If bad returns an error, the reading ends with it.
func (r *reader) read(ctx context.Context, list []located, bad func(located, error) error) error {
	slices.SortFunc(list, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.Offset, b.Offset))
	})
	_, most := atOnce(r.parts.fs)
	windows, parts := split(list, most)
	for i, p := range r.parts.each(parts) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := r.window(p, windows[i], bad); err != nil {
			return err
		}
	}
	return nil
}

// split cuts sorted chunks into windows of up to so many bytes, or one chunk. A window has chunks that
// lie one after the other; it is read as one part.
func split(list []located, most int) (windows [][]located, parts []part) {
	from := &source{}
	for len(list) > 0 {
		if list[0].file != from.file {
			from = newSource(list[0].file)
		}
		n, bytes := 1, list[0].Bytes
		for n < len(list) && list[n].file == from.file && list[n].Offset == list[0].Offset+bytes && bytes+list[n].Bytes <= int64(most) {
			bytes += list[n].Bytes
			n++
		}
		windows = append(windows, list[:n])
		parts = append(parts, part{from: from, offset: list[0].Offset, bytes: int(bytes)})
		list = list[n:]
	}
	return windows, parts
}

// window verifies and places the chunks of a window.
func (r *reader) window(p *part, list []located, bad func(located, error) error) error {
	if p.err != nil && p.from.err == nil && len(list) > 1 {
		for i, l := range list { // one at a time, to find out which of them can be read
			one := part{from: p.from, offset: l.Offset, bytes: int(l.Bytes)}
			one.fill(r.parts.fs, r.parts.dir, p.buffer)
			p.buffer = one.buffer
			if err := r.window(&one, list[i:i+1], bad); err != nil {
				return err
			}
		}
		return nil
	}
	rest := p.buffer
	for _, l := range list {
		wrong := unreadable(l.file, l.Offset, p.err)
		if wrong == nil {
			var err error
			if wrong, err = r.decode(l, rest[:l.Bytes]); err != nil {
				return err
			}
			rest = rest[l.Bytes:]
		}
		if wrong != nil {
			if err := bad(l, r.located(l, wrong)); err != nil {
				return err
			}
		}
	}
	return nil
}

// located adds the chunk and its tensor to damage.
func (r *reader) located(l located, err error) error {
	if d, ok := errors.AsType[*Damage](err); ok {
		d.Chunk = int64(l.Chunk)
		d.Tensor = r.layout.Tensors[r.layout.Chunks[l.Chunk].Tensor].Name
	}
	return err
}

// decode verifies a record and places its values. wrong says what is wrong with the record; err is
// the error of place.
func (r *reader) decode(l located, b []byte) (wrong, err error) {
	h, wrong := l.check(b)
	if wrong != nil {
		return wrong, nil
	}
	if want := r.layout.Chunks[l.Chunk].Len(); h.Values != want {
		return damaged(l.file, l.Offset, "it has %d values, the model has %d there", h.Values, want), nil
	}
	if c := r.chains[l.Chunk]; c != nil {
		return r.follow(c, l, h, b)
	}
	return nil, r.hand(h, b[headerBytes:])
}

// hand places the values of a whole record.
func (r *reader) hand(h recordHeader, b []byte) error {
	info := ChunkInfo{
		Chunk: h.Chunk, Line: h.Line, Step: h.Step, Optimizer: h.Optimizer,
		Rule: h.Rule, Values: h.Values, StateArrays: h.Arrays,
	}
	to, err := r.place(info)
	if err != nil {
		return err
	}
	for i, dst := range [...][]float32{to.Params, to.State[0], to.State[1]} {
		switch {
		case dst == nil:
			continue
		case i > h.Arrays:
			return wrongArrays(h, i)
		case len(dst) != h.Values:
			return wrongPlace(h, i, len(dst))
		}
		copy(kernels.Bytes(dst), b[4*h.Values*i:])
	}
	return nil
}

// check verifies that b is exactly the record that the manifest named, and undamaged.
func (l located) check(b []byte) (recordHeader, error) {
	h, err := parseRecordHeader(b)
	if v, ok := errors.AsType[versionError](err); ok {
		return h, newer(l.file, int(v), FormatVersion)
	}
	if err != nil {
		return h, damaged(l.file, l.Offset, "%w", err)
	}
	found := located{
		Entry: Entry{Chunk: h.Chunk, Step: h.Step, Segment: l.Segment, Offset: h.Offset, Bytes: int64(h.bytes()), CRC: Sum(h.PayloadCRC), Increment: h.Increment},
		file:  l.file,
		line:  h.Line,
		rule:  h.Rule,
	}
	if found != l {
		return h, damaged(l.file, l.Offset, "the record there is chunk %d of line %d step %d, written at offset %d with %d bytes and CRC32C %08x; the manifest says chunk %d of line %d step %d with %d bytes and %08x",
			found.Chunk, found.line, found.Step, found.Offset, found.Bytes, uint32(found.CRC), l.Chunk, l.line, l.Step, l.Bytes, uint32(l.CRC))
	}
	if err := checkRecord(b, h); err != nil {
		return h, damaged(l.file, l.Offset, "%w", err)
	}
	return h, nil
}
