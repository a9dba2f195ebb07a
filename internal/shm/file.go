package shm

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// File is a file whose bytes are mapped. Only one process holds it at a time.
type File struct {
	f *os.File
	b []byte
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
		return nil, errors.Join(fmt.Errorf("map %s: %w", path, err), f.Close())
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

func (x *File) mapped(n int) (err error) {
	x.b, err = syscall.Mmap(int(x.f.Fd()), 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return err
}

// Bytes returns the mapped contents of the file. They are valid until Resize or Close.
func (x *File) Bytes() []byte { return x.b }

// Resize makes the file n bytes long and reserves all of them on the device. So a lack of space is
// an error now and not a signal when a byte is written. Slices from Bytes must not be used any
// more. The contents may be lost; after an error the file is empty.
func (x *File) Resize(n int) error {
	if len(x.b) == n {
		return nil
	}
	err := x.unmap()
	if err == nil {
		err = x.f.Truncate(0)
	}
	if err == nil && n > 0 {
		err = reserve(x.f, int64(n))
	}
	if err == nil && n > 0 {
		err = x.mapped(n)
	}
	if err != nil {
		_ = x.f.Truncate(0) // frees what the device gave before it was full
		return fmt.Errorf("take %d bytes of memory in %s: %w", n, x.f.Name(), err)
	}
	return nil
}

func (x *File) unmap() error {
	if x.b == nil {
		return nil
	}
	b := x.b
	x.b = nil
	return syscall.Munmap(b)
}

// Close unmaps the file and releases the lock. The file itself stays.
func (x *File) Close() error { return errors.Join(x.unmap(), x.f.Close()) }

// Boot identifies the current boot of this machine; zeros if that is not known.
func Boot() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err == nil {
		copy(id[:], b)
	}
	return id
}
