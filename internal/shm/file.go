package shm

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
)

// File is a file whose bytes are mapped. Only one process holds it at a time.
type File struct {
	f      *os.File
	b      []byte
	before [][]byte // earlier mappings, of which slices may still be used
}

// OpenFile opens the file at path, or creates it empty, takes the kernel's lock on it and maps its
// contents. It returns an error if another process holds the file: a place has one life at a time.
func OpenFile(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the state outside the process: %w", err)
	}
	x := &File{f: f}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		err = fmt.Errorf("lock %s: %w; an earlier life of this server still has it: end that first", path, err)
		return nil, errors.Join(err, f.Close())
	}
	info, err := f.Stat()
	if err == nil && info.Size() > 0 {
		err = x.mapped(int(info.Size()))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return x, nil
}

// Unnamed returns an empty file without a name. Child processes get it by its Descriptor. The file
// is memory. On systems without such memory it lies in dir; empty: where temporary files lie. The
// kernel frees it when no process has it open any more.
func Unnamed(dir string) (*File, error) {
	if f, err := memory("kintsugi"); err == nil {
		return &File{f: f}, nil
	}
	f, err := os.CreateTemp(dir, "kintsugi-")
	if err != nil {
		return nil, fmt.Errorf("memory for a child process: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("memory for a child process: %w", err), f.Close())
	}
	return &File{f: f}, nil
}

// Descriptor returns the open file. x keeps ownership and closes it.
func (x *File) Descriptor() *os.File { return x.f }

// mapped maps n bytes of the file.
func (x *File) mapped(n int) error {
	b, err := syscall.Mmap(int(x.f.Fd()), 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %d bytes of %s: %w", n, x.f.Name(), err)
	}
	x.b = b
	return nil
}

// Bytes returns the mapped contents of the file. They are valid until Empty or Close.
func (x *File) Bytes() []byte { return x.b }

// Resize empties the file, makes it n bytes long and reserves all of them. If it has n bytes
// already, it stays as it is. After an error the file is empty.
func (x *File) Resize(n int) error {
	if len(x.b) == n {
		return nil
	}
	err := x.Empty()
	if err == nil && n > 0 {
		err = x.Grow(n)
	}
	if err == nil {
		err = x.Reserve(0, n)
	}
	if err != nil {
		_ = x.Empty() // frees what the device gave before it was full
	}
	return err
}

// Empty gives all that the file holds back to the device. Slices from Bytes must not be used any
// more.
func (x *File) Empty() error {
	if err := x.unmap(); err != nil {
		return err
	}
	return x.f.Truncate(0)
}

// Grow makes the file at least n bytes long. Its contents stay, and slices from Bytes stay valid,
// though the file may be mapped anew. Memory is taken for the bytes as they are written, unless
// Reserve takes it first.
func (x *File) Grow(n int) error {
	if len(x.b) >= n {
		return nil
	}
	if err := x.f.Truncate(int64(n)); err != nil {
		return fmt.Errorf("make %s %d bytes long: %w", x.f.Name(), n, err)
	}
	before := x.b
	if err := x.mapped(n); err != nil {
		return err
	}
	if before != nil {
		x.before = append(x.before, before)
	}
	return nil
}

// Reserve takes memory from the device for the bytes [lo, hi) of the file, which it has. So a lack
// of space is an error now and not a signal when a byte is written.
func (x *File) Reserve(lo, hi int) error {
	if lo >= hi {
		return nil
	}
	if err := reserve(x.f, int64(lo), int64(hi)); err != nil {
		return fmt.Errorf("take %d bytes of memory in %s: %w", hi-lo, x.f.Name(), err)
	}
	return nil
}

func (x *File) unmap() (err error) {
	for _, b := range append(x.before, x.b) {
		if b != nil {
			err = errors.Join(err, syscall.Munmap(b))
		}
	}
	x.b, x.before = nil, nil
	return err
}

// Close unmaps the file and releases the lock. The file itself stays.
func (x *File) Close() error { return errors.Join(x.unmap(), x.f.Close()) }

// Boot identifies the current boot of this machine; zeros if that is not known.
func Boot() (id [16]byte) { return boot() }

// boot is read once: the name of every pair of pipes has it, and to read it on both sides took two
// fifths of the time in which such a pair is made, opened and closed.
var boot = sync.OnceValue(func() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err == nil {
		copy(id[:], b)
	}
	return id
})
