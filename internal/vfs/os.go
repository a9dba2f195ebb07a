package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// OS is the file system of the machine. Its zero value is ready for use.
type OS struct{}

var _ FS = OS{}

// Create implements FS. Everyone may read the file and its owner may write it, as far as the umask
// allows.
func (OS) Create(name string) (File, error) {
	return opened(os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644))
}

// OpenAppend implements FS.
func (OS) OpenAppend(name string) (File, error) {
	return opened(os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0))
}

// Open implements FS.
func (OS) Open(name string) (File, error) { return opened(os.Open(name)) }

// opened converts a nil *os.File into a nil File; assigned directly, it would not be nil.
func opened(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
}

// writebackBytes is the number of bytes after which the disk is asked to start writing. Otherwise
// the kernel would collect everything until Sync, and the disk would idle while the next bytes are
// computed.
const writebackBytes = 8 << 20

// osFile hides the other methods of *os.File, so that nobody reaches Truncate, Seek or WriteAt by a
// type assertion.
type osFile struct {
	f       *os.File
	written int64 // bytes written since the file was opened
	started int64 // how many of these the disk was asked to write
}

func (o *osFile) Write(p []byte) (int, error) {
	n, err := o.f.Write(p)
	o.written += int64(n)
	if o.written-o.started >= writebackBytes {
		// The offset is right for files that were empty when they were opened. For others this is a
		// useless but harmless hint.
		startWriteback(o.f, o.started, o.written-o.started)
		o.started = o.written
	}
	return n, err
}

func (o *osFile) ReadAt(p []byte, offset int64) (int, error) { return o.f.ReadAt(p, offset) }
func (o *osFile) Sync() error                                { return o.f.Sync() }
func (o *osFile) Close() error                               { return o.f.Close() }

// Rename implements FS.
func (OS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// List implements FS.
func (OS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// MkdirAll implements FS. It syncs the parent of each directory that it creates. It also syncs the
// parent if another process creates the directory meanwhile, since that process may crash before it
// syncs.
func (o OS) MkdirAll(dir string) error {
	info, err := os.Stat(dir)
	if err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: errors.New("exists and is not a directory")}
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := o.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return o.SyncDir(parent)
}

// SyncDir implements FS.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Stat implements FS.
func (OS) Stat(name string) (Info, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	if info.IsDir() {
		return Info{Directory: true}, nil
	}
	return Info{Size: info.Size()}, nil
}
