package object

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"sync"

	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// readAhead bounds how many bytes are fetched at once when reads follow one another, since each
// request waits for the store.
const readAhead = PartBytes

// headBytes is how much of a file comes when it is opened, so that manifests, claims and small
// segments take one request. It is less than a stream carries in a round trip between two buildings.
const headBytes = 512 << 10

// reading is an object that is being read. Reads that follow one another fetch ahead, twice as much
// each time; a jump starts over. Of several reads at once, all but one fetch what they want.
type reading struct {
	fs   *FS
	name string
	size int64

	mu     sync.Mutex
	busy   bool   // the window is being fetched; guarded by mu
	window []byte // guarded by mu
	at     int64  // of the window; guarded by mu
	ahead  int    // bytes; guarded by mu
}

var _ vfs.Sized = (*reading)(nil)

// Size implements vfs.Sized.
func (r *reading) Size() int64 { return r.size }

func (r *reading) Write([]byte) (int, error) { return 0, failed("write", r.name, fs.ErrPermission) }
func (r *reading) Sync() error               { return nil }

func (r *reading) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.window = nil
	return nil
}

// ReadAt implements vfs.File.
func (r *reading) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, failed("read", r.name, fs.ErrInvalid)
	}
	n := int(min(int64(len(p)), max(0, r.size-offset)))
	if n > 0 {
		if err := r.fill(p[:n], offset); err != nil {
			return 0, failed("read", r.name, err)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// fill reads the bytes from offset on until p is full, or returns an error.
func (r *reading) fill(p []byte, offset int64) error {
	r.mu.Lock()
	if r.at <= offset && offset < r.at+int64(len(r.window)) {
		n := copy(p, r.window[offset-r.at:])
		p, offset = p[n:], offset+int64(n)
	}
	if len(p) == 0 || r.busy {
		r.mu.Unlock()
		if len(p) == 0 {
			return nil
		}
		return r.fetch(p, offset)
	}
	if offset == r.at+int64(len(r.window)) {
		r.ahead = min(max(2*r.ahead, len(p), headBytes), readAhead)
	} else {
		r.ahead = 0
	}
	window := slices.Grow(r.window[:0], max(len(p), r.ahead))
	window = window[:min(int64(max(len(p), r.ahead)), r.size-offset)]
	r.busy, r.window = true, nil
	r.mu.Unlock()

	err := r.fetch(window, offset)

	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy, r.window, r.at = false, window, offset
	if err != nil {
		r.window = window[:0]
		return err
	}
	copy(p, window)
	return nil
}

// fetch reads from the store.
func (r *reading) fetch(p []byte, offset int64) error {
	return r.fs.retries.do(r.fs.ctx, len(p), func(ctx context.Context) error {
		return r.fs.store.Read(ctx, r.name, p, offset)
	})
}

// uploads is how many parts of one file are uploaded at once, since one stream seldom fills a link.
// A guess.
const uploads = 3

// writing is an object that does not exist yet. One goroutine at a time may use it; parts are
// uploaded in the background.
type writing struct {
	fs     *FS
	name   string
	buffer []byte // of the part that is not full
	synced bool

	upload Upload // nil: everything still fits into one request
	parts  int    // number of parts that were begun
	group  sync.WaitGroup
	free   chan []byte // buffers for the next parts; its capacity bounds the parts on their way

	mu  sync.Mutex
	err error // the first error of a part, or of the end; guarded by mu
}

// ReadAt is not supported before the object exists.
func (w *writing) ReadAt([]byte, int64) (int, error) {
	return 0, failed("read", w.name, errors.ErrUnsupported)
}

// fail notes an error, if it is the first one: parts that fail together mostly do for one reason.
func (w *writing) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *writing) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Write implements vfs.File. A full part is uploaded while the next one is written.
func (w *writing) Write(p []byte) (n int, err error) {
	if w.synced {
		return 0, failed("write", w.name, fs.ErrClosed)
	}
	for {
		if w.buffer == nil {
			w.buffer = make([]byte, 0, min(PartBytes, max(1<<20, len(p))))
		}
		take := min(len(p), PartBytes-len(w.buffer))
		w.buffer = append(w.buffer, p[:take]...)
		p, n = p[take:], n+take
		// A full part is kept until there is more to write, so that an object that fits into one
		// request takes only one.
		if len(p) == 0 {
			return n, failed("write", w.name, w.failed())
		}
		if err := w.send(); err != nil {
			return n, failed("write", w.name, err)
		}
	}
}

// send begins to upload the buffer as the next part.
func (w *writing) send() error {
	if w.upload == nil {
		err := w.fs.retries.do(w.fs.ctx, 0, func(ctx context.Context) (err error) {
			w.upload, err = w.fs.store.Upload(ctx, w.name)
			return err
		})
		if err != nil {
			w.upload = nil
			return err
		}
		w.free = make(chan []byte, uploads)
		for range uploads {
			w.free <- nil
		}
	}
	w.parts++
	part, number := w.buffer, w.parts
	w.group.Go(func() {
		err := w.fs.retries.do(w.fs.ctx, len(part), func(ctx context.Context) error {
			return w.upload.Part(ctx, number, part)
		})
		w.fail(err)
		w.free <- part[:0]
	})
	w.buffer = <-w.free
	return w.failed()
}

// Sync makes the object exist. Nothing can be written after it.
func (w *writing) Sync() error {
	if w.synced {
		return w.failed()
	}
	w.synced = true
	w.fail(w.finish())
	return failed("sync", w.name, w.failed())
}

func (w *writing) finish() error {
	if w.upload == nil {
		return w.fs.create(w.name, w.buffer)
	}
	err := w.send()
	w.group.Wait()
	if err == nil {
		err = w.failed()
	}
	if err == nil {
		err = w.fs.retries.do(w.fs.ctx, 0, w.upload.Complete)
	}
	if err != nil {
		w.abort()
	}
	return err
}

// abort removes the uploaded parts, if the store answers.
func (w *writing) abort() {
	_ = w.fs.retries.once(w.fs.ctx, 0, w.upload.Abort) // parts that stay cost storage, and nothing else
}

// Close discards what was not synced.
func (w *writing) Close() error {
	if !w.synced && w.upload != nil {
		w.group.Wait()
		w.abort()
	}
	w.synced, w.buffer, w.free = true, nil, nil
	return nil
}
