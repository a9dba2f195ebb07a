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

// Create implements FS. Files are readable by everyone and writable by their owner, as far as the umask allows.
func (OS) Create(name string) (File, error) {
	return opened(os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644))
}

// OpenAppend implements FS.
func (OS) OpenAppend(name string) (File, error) {
	return opened(os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0))
}

// Open implements FS.
func (OS) Open(name string) (File, error) { return opened(os.Open(name)) }

// opened exists because a nil *os.File in a File is not a nil File.
func opened(f *os.File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
}

// writebackBytes is how much is written before the disk is asked to start. Without it the kernel collects
// everything until Sync, and the disk is idle while the next bytes are computed.
const writebackBytes = 8 << 20

// osFile narrows *os.File to File, so that nobody reaches Truncate, Seek or WriteAt by assertion.
type osFile struct {
	f       *os.File
	written int64 // since the file was opened
	started int64 // of these, handed to the disk
}

func (o *osFile) Write(p []byte) (int, error) {
	n, err := o.f.Write(p)
	o.written += int64(n)
	if o.written-o.started >= writebackBytes {
		// Right for files that were opened empty; for others a useless hint, and harmless.
		startWriteback(o.f, o.started, o.written-o.started)
		o.started = o.written
	}
	return n, err
}

func (o *osFile) ReadAt(p []byte, offset int64) (int, error) { return o.f.ReadAt(p, offset) }
func (o *osFile) Sync() error                                { return o.f.Sync() }
func (o *osFile) Close() error                               { return o.f.Close() }

// Link implements FS. It needs a file system with hard links.
func (OS) Link(oldName, newName string) error { return os.Link(oldName, newName) }

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

// MkdirAll implements FS. It syncs the parent of each directory that it creates, or that appeared while
// it looked: whoever created that one may crash before syncing.
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
