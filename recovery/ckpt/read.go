package ckpt

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"sync/atomic"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// reader reads chunks from segments.
type reader struct {
	fs     vfs.FS
	dir    string
	layout *kintsugi.Layout
	place  Place
	chains map[kintsugi.ChunkID]*chain // values that need several records

	buffers [][]byte // of windows, which are used again
}

// read places the chunks of list, which it sorts. It calls bad for each chunk that cannot be read.
// If bad returns an error, the reading ends with it.
func (r *reader) read(ctx context.Context, list []located, bad func(located, error) error) error {
	slices.SortFunc(list, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.Offset, b.Offset))
	})
	workers, bytes := atOnce(r.fs)
	windows := r.split(list, bytes)
	ahead := workers + 2 // so that a worker has a window to read while others wait to be verified
	if len(windows) == 1 {
		workers, ahead = 0, 0
	}
	r.buffers = append(r.buffers, make([][]byte, max(0, ahead+1-len(r.buffers)))...)
	free := make(chan []byte, len(r.buffers)) // one for each window that is read and not verified yet, so nobody waits for one
	for _, b := range r.buffers {
		free <- b
	}
	defer func() {
		for i := range r.buffers {
			select {
			case r.buffers[i] = <-free:
			default:
				r.buffers[i] = nil // it is still a window's, which an error has left
			}
		}
		for _, w := range windows {
			w.from.close()
		}
	}()
	for i := range inOrder(len(windows), workers, ahead, func(i int) struct{} {
		windows[i].fill(r, <-free)
		return struct{}{}
	}) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		w := &windows[i]
		if err := r.window(*w, bad); err != nil {
			return err
		}
		free <- w.buffer
		w.buffer = nil
		if i == len(windows)-1 || w.from != windows[i+1].from {
			w.from.close()
		}
	}
	return nil
}

// source is a segment that is read.
type source struct {
	file string // relative to the checkpoint's directory

	first  atomic.Bool   // somebody opens it
	opened chan struct{} // closed when f and err are set
	f      vfs.File
	err    error
}

// open opens the segment for the first who calls it; the others wait.
func (s *source) open(r *reader) (vfs.File, error) {
	if s.first.CompareAndSwap(false, true) {
		s.f, s.err = r.fs.Open(path.Join(r.dir, s.file))
		close(s.opened)
	}
	<-s.opened
	return s.f, s.err
}

// close closes a segment that nobody reads any more. It may be called again.
func (s *source) close() {
	if s.f != nil {
		_ = s.f.Close() // opened for reading only: nothing can be lost
		s.f = nil
	}
}

// window is a part of a segment that is read at once: chunks that lie one after the other.
type window struct {
	from   *source
	list   []located
	buffer []byte
	err    error // of the read
}

// split cuts sorted chunks into windows of up to so many bytes, or one chunk.
func (r *reader) split(list []located, most int) []window {
	var windows []window
	from := &source{}
	for len(list) > 0 {
		if list[0].file != from.file {
			from = &source{file: list[0].file, opened: make(chan struct{})}
		}
		n, bytes := 1, list[0].Bytes
		for n < len(list) && list[n].file == from.file && list[n].Offset == list[0].Offset+bytes && bytes+list[n].Bytes <= int64(most) {
			bytes += list[n].Bytes
			n++
		}
		windows = append(windows, window{from: from, list: list[:n]})
		list = list[n:]
	}
	return windows
}

// bytes returns the length of a window.
func (w *window) bytes() int {
	last := w.list[len(w.list)-1]
	return int(last.Offset + last.Bytes - w.list[0].Offset)
}

// fill reads a window into a buffer, which it enlarges if necessary.
func (w *window) fill(r *reader, buffer []byte) {
	f, err := w.from.open(r)
	if err != nil {
		w.buffer, w.err = buffer, err
		return
	}
	n := w.bytes()
	w.buffer = slices.Grow(buffer[:0], n)[:n]
	w.err = readFull(f, w.buffer, w.list[0].Offset)
}

// window verifies and places the chunks of a window.
func (r *reader) window(w window, bad func(located, error) error) error {
	if w.err != nil && w.from.err == nil && len(w.list) > 1 {
		for i := range w.list { // one at a time, to find out which of them can be read
			one := window{from: w.from, list: w.list[i : i+1]}
			one.fill(r, w.buffer)
			if err := r.window(one, bad); err != nil {
				return err
			}
		}
		return nil
	}
	rest := w.buffer
	for _, l := range w.list {
		wrong := unreadable(l.file, l.Offset, w.err)
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
