package ckpt

import (
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// windowBytes is how much of a segment is read at once where chunks lie one after the other. A
// guess: enough for the read-ahead of a disk, and little enough that a few windows stay in the
// cache until they are verified.
const windowBytes = 1 << 20

// reader reads chunks from segments.
type reader struct {
	fs     vfs.FS
	dir    string
	layout *kintsugi.Layout
	place  Place
	chains map[kintsugi.ChunkID]*chain // values that need several records

	buffers [4][]byte   // between files: kept, so that they are allocated once
	free    chan []byte // while a file is read: buffers whose contents are not needed
}

// read places the chunks of list, which it sorts. It calls bad for each chunk that cannot be read.
// If bad returns an error, the reading ends with it.
func (r *reader) read(ctx context.Context, list []located, bad func(located, error) error) error {
	slices.SortFunc(list, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.Offset, b.Offset))
	})
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].file == list[0].file {
			n++
		}
		if err := r.readFile(ctx, list[:n], bad); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// readFile reads chunks of one segment, in ascending order.
func (r *reader) readFile(ctx context.Context, list []located, bad func(located, error) error) error {
	file := list[0].file
	f, err := r.fs.Open(path.Join(r.dir, file))
	if err != nil {
		for _, l := range list {
			if err := bad(l, r.located(l, unreadable(file, l.Offset, err))); err != nil {
				return err
			}
		}
		return nil
	}
	defer f.Close() // opened for reading only: nothing can be lost
	if err := context.Cause(ctx); err != nil {
		return err
	}
	windows := split(list)
	if len(windows) == 1 {
		w := windows[0]
		w.fill(f, r.buffers[0])
		r.buffers[0] = w.buffer
		return r.window(f, w, bad)
	}
	next, stop := r.fetch(f, windows)
	defer stop()
	for range windows {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		w := <-next
		if err := r.window(f, w, bad); err != nil {
			return err
		}
		r.free <- w.buffer
	}
	return nil
}

// window is a part of a segment that is read at once: chunks that lie one after the other.
type window struct {
	list   []located
	buffer []byte
	err    error // of the read
}

// split cuts chunks of one segment, ascending, into windows.
func split(list []located) []window {
	var windows []window
	for len(list) > 0 {
		n, bytes := 1, list[0].Bytes
		for n < len(list) && list[n].Offset == list[0].Offset+bytes && bytes+list[n].Bytes <= windowBytes {
			bytes += list[n].Bytes
			n++
		}
		windows = append(windows, window{list: list[:n]})
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
func (w *window) fill(f vfs.File, buffer []byte) {
	n := w.bytes()
	w.buffer = slices.Grow(buffer[:0], n)[:n]
	w.err = readFull(f, w.buffer, w.list[0].Offset)
}

// fetch reads windows while earlier ones are verified. Each buffer must go back to r.free. The
// caller calls stop when it needs no more.
func (r *reader) fetch(f vfs.File, windows []window) (next <-chan window, stop func()) {
	read, enough := make(chan window, len(r.buffers)-2), make(chan struct{})
	r.free = make(chan []byte, len(r.buffers))
	for _, b := range r.buffers {
		r.free <- b
	}
	var fetching sync.WaitGroup
	fetching.Go(func() {
		for i, w := range windows {
			select {
			case w.buffer = <-r.free:
			case <-enough:
				return
			}
			w.fill(f, w.buffer)
			r.buffers[i%len(r.buffers)] = w.buffer
			select {
			case read <- w:
			case <-enough:
				return
			}
		}
	})
	return read, func() {
		close(enough)
		fetching.Wait()
	}
}

// window verifies and places the chunks of a window.
func (r *reader) window(f vfs.File, w window, bad func(located, error) error) error {
	if w.err != nil && len(w.list) > 1 {
		for i := range w.list { // one at a time, to find out which of them can be read
			one := window{list: w.list[i : i+1], buffer: w.buffer}
			one.buffer = one.buffer[:one.bytes()]
			one.err = readFull(f, one.buffer, one.list[0].Offset)
			if err := r.window(f, one, bad); err != nil {
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
		}
		if wrong != nil {
			if err := bad(l, r.located(l, wrong)); err != nil {
				return err
			}
		}
		rest = rest[l.Bytes:]
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
