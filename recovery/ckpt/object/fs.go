package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// FS is a Store as a file system for checkpoints. It is safe for concurrent use.
//
// A created file is empty and invisible until Sync, which makes it exist durably with everything
// that was written. Sync returns fs.ErrExist if the name has been taken meanwhile. After Sync, the
// file cannot be written. There are no directories: every name may be created, and a directory
// without files lists as empty. Link and OpenAppend return errors.ErrUnsupported.
type FS struct {
	ctx     context.Context // of all requests, because the methods of a file system take none
	store   Store
	retries Retries
}

var (
	_ vfs.FS        = (*FS)(nil)
	_ vfs.Publisher = (*FS)(nil)
	_ vfs.Distant   = (*FS)(nil)
)

// NewFS returns a file system that works until ctx ends.
func NewFS(ctx context.Context, s Store, r Retries) *FS { return &FS{ctx: ctx, store: s, retries: r} }

// AtOnce implements vfs.Distant. One stream seldom fills a link, as stores limit each, and each
// request waits for its answer. A guess: eight streams of some 90 MB/s are 6 Gbit/s.
func (f *FS) AtOnce() (reads, bytes int) { return 8, 4 << 20 }

// clean returns the name of an object: a path without a leading slash.
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Create implements vfs.FS.
func (f *FS) Create(name string) (vfs.File, error) {
	switch _, err := f.Stat(name); {
	case err == nil:
		return nil, failed("create", name, fs.ErrExist)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, failed("create", name, err)
	}
	return &writing{fs: f, name: clean(name)}, nil
}

// Open implements vfs.FS.
func (f *FS) Open(name string) (vfs.File, error) {
	r := &reading{fs: f, name: clean(name)}
	head := heads.Get().(*[headBytes]byte)
	defer heads.Put(head)
	err := f.retries.do(f.ctx, headBytes, func(ctx context.Context) (err error) {
		r.size, err = f.store.Begin(ctx, r.name, head[:])
		return err
	})
	if err != nil {
		return nil, failed("open", name, err)
	}
	r.window = slices.Clone(head[:min(r.size, headBytes)])
	return r, nil
}

// heads are buffers for files that are being opened. Most files are much shorter.
var heads = sync.Pool{New: func() any { return new([headBytes]byte) }}

// Publish implements vfs.Publisher.
func (f *FS) Publish(name string, content []byte) error {
	return failed("publish", name, f.create(clean(name), content))
}

// create creates an object in one request. If an earlier try had an unknown outcome, an object with
// the same bytes is the one that it wanted to create.
func (f *FS) create(name string, content []byte) error {
	unknown := false
	return f.retries.do(f.ctx, len(content), func(ctx context.Context) error {
		err := f.store.Create(ctx, name, content)
		if unknown && errors.Is(err, fs.ErrExist) {
			return f.holds(ctx, name, content)
		}
		unknown = unknown || errors.Is(err, ErrAway)
		return err
	})
}

// holds returns fs.ErrExist unless the object has that content.
func (f *FS) holds(ctx context.Context, name string, content []byte) error {
	size, err := f.store.Stat(ctx, name)
	if err != nil {
		return err
	}
	if size != int64(len(content)) {
		return fs.ErrExist
	}
	was := make([]byte, size)
	if err := f.store.Read(ctx, name, was, 0); err != nil {
		return err
	}
	if !bytes.Equal(was, content) {
		return fs.ErrExist
	}
	return nil
}

// Stat implements vfs.FS, for objects only.
func (f *FS) Stat(name string) (vfs.Info, error) {
	var size int64
	err := f.retries.do(f.ctx, 0, func(ctx context.Context) (err error) {
		size, err = f.store.Stat(ctx, clean(name))
		return err
	})
	return vfs.Info{Size: size}, failed("stat", name, err)
}

// List implements vfs.FS.
func (f *FS) List(dir string) ([]string, error) {
	prefix := clean(dir)
	if prefix != "" {
		prefix += "/"
	}
	var names []string
	err := f.retries.do(f.ctx, 0, func(ctx context.Context) (err error) {
		names, err = f.store.List(ctx, prefix)
		return err
	})
	slices.Sort(names)
	return names, failed("list", dir, err)
}

// Remove implements vfs.FS, with one difference: it is no error if there is no such object.
func (f *FS) Remove(name string) error {
	return failed("remove", name, f.retries.do(f.ctx, 0, func(ctx context.Context) error {
		return f.store.Remove(ctx, clean(name))
	}))
}

// Rename implements vfs.FS in two requests. A crash between them leaves both names.
func (f *FS) Rename(oldName, newName string) error {
	err := f.retries.do(f.ctx, 0, func(ctx context.Context) error {
		return f.store.Copy(ctx, clean(oldName), clean(newName))
	})
	if err != nil {
		return failed("rename", oldName, err)
	}
	return f.Remove(oldName)
}

// OpenAppend is not supported, since objects do not grow.
func (f *FS) OpenAppend(name string) (vfs.File, error) {
	return nil, failed("open for append", name, errors.ErrUnsupported)
}

// Link is not supported: see Publish.
func (f *FS) Link(oldName, _ string) error { return failed("link", oldName, errors.ErrUnsupported) }

// MkdirAll implements vfs.FS. It does nothing, since there are no directories.
func (f *FS) MkdirAll(string) error { return nil }

// SyncDir implements vfs.FS. It does nothing, since created objects are durable.
func (f *FS) SyncDir(string) error { return nil }

// Probe checks that the store can be reached, written and read, and that it refuses to create an
// object that exists. It uses an object of its own in dir, which it removes again. A store that
// does not refuse cannot keep two writers apart, and is an error.
func (f *FS) Probe(dir string) error {
	name := path.Join(clean(dir), fmt.Sprintf("tmp/probe-%d", time.Now().UnixNano()))
	if err := f.create(name, []byte("first\n")); err != nil {
		return failed("create", name, err)
	}
	err := f.retries.do(f.ctx, 0, func(ctx context.Context) error {
		return f.store.Create(ctx, name, []byte("second\n"))
	})
	removed := f.Remove(name)
	switch {
	case err == nil:
		return failed("create", name, errors.New("the store replaces objects that exist: it ignores the condition of a write (If-None-Match), without which checkpoints are not safe in it; use another store or a newer version of it"))
	case !errors.Is(err, fs.ErrExist):
		return failed("create", name, err)
	}
	return removed
}
