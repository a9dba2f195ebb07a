package ckpt

import (
	"io"
	"iter"
	"path"
	"slices"
	"sync/atomic"

	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// source is a segment that is read.
type source struct {
	file string // relative to the checkpoint's directory

	first  atomic.Bool   // somebody opens it
	opened chan struct{} // closed when f and err are set
	f      vfs.File
	err    error
}

func newSource(file string) *source { return &source{file: file, opened: make(chan struct{})} }

// open opens the segment for the first who calls it; the others wait.
func (s *source) open(fsys vfs.FS, dir string) (vfs.File, error) {
	if s.first.CompareAndSwap(false, true) {
		s.f, s.err = fsys.Open(path.Join(dir, s.file))
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

// part is a piece of a segment that is read at once.
type part struct {
	from   *source
	offset int64
	bytes  int

	buffer []byte // what was read, while the part is the loop's
	err    error  // of the read
}

// fill reads a part into a buffer, which it enlarges if necessary.
func (p *part) fill(fsys vfs.FS, dir string, buffer []byte) {
	p.buffer = buffer
	f, err := p.from.open(fsys, dir)
	if err != nil {
		p.err = err
		return
	}
	p.buffer = slices.Grow(buffer[:0], p.bytes)[:p.bytes]
	p.err = readFull(f, p.buffer, p.offset)
}

// partReader reads parts of segments, several at once if the file system is far away.
type partReader struct {
	fs      vfs.FS
	dir     string
	buffers [][]byte // which are used again
}

// each yields the parts in their order, with what was read, or why it was not; the loop has a part's
// buffer and its open segment until it asks for the next one. Parts of one segment must follow one
// another.
func (r *partReader) each(parts []part) iter.Seq2[int, *part] {
	return func(yield func(int, *part) bool) {
		workers, _ := atOnce(r.fs)
		ahead := workers + 2 // so that a worker has a part to read while others wait for the loop
		if len(parts) == 1 {
			workers, ahead = 0, 0
		}
		r.buffers = append(r.buffers, make([][]byte, max(0, ahead+1-len(r.buffers)))...)
		free := make(chan []byte, len(r.buffers)) // one for each part that is read and not yielded yet, so nobody waits for one
		for _, b := range r.buffers {
			free <- b
		}
		defer func() {
			for i := range r.buffers {
				select {
				case r.buffers[i] = <-free:
				default:
					r.buffers[i] = nil // it is still a part's, which an early end has left
				}
			}
			for i := range parts {
				parts[i].from.close()
			}
		}()
		for i := range inOrder(len(parts), workers, ahead, func(i int) struct{} {
			parts[i].fill(r.fs, r.dir, <-free)
			return struct{}{}
		}) {
			p := &parts[i]
			if !yield(i, p) {
				return
			}
			free <- p.buffer
			p.buffer = nil
			if i == len(parts)-1 || p.from != parts[i+1].from {
				p.from.close()
			}
		}
	}
}

// ascending reads a segment of which parts are on their way. Bytes that were skipped, or that could
// not be read with all of their part, are read anew.
type ascending struct {
	f    io.ReaderAt
	next func() (*part, bool) // the segment's parts, in their order; false: there are no more
	part *part                // nil: before the first, or after the last
}

// ReadAt implements io.ReaderAt.
func (a *ascending) ReadAt(p []byte, offset int64) (n int, err error) {
	for n < len(p) {
		at := offset + int64(n)
		for a.part == nil || a.part.offset+int64(a.part.bytes) <= at {
			var ok bool
			if a.part, ok = a.next(); !ok {
				break
			}
		}
		if a.part == nil || at < a.part.offset || a.part.err != nil {
			more, err := a.f.ReadAt(p[n:], at)
			return n + more, err
		}
		n += copy(p[n:], a.part.buffer[at-a.part.offset:])
	}
	return n, nil
}
