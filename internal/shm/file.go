package shm

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// File is a file whose bytes are mapped. Only one process has it at a time.
type File struct {
	f *os.File
	b []byte
}

// OpenFile opens a file, or creates it empty, takes the kernel's lock on it and maps what it holds.
// A file that another process has is an error: a place has one life at a time.
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

// Unnamed returns an empty file that no folder has: for child processes, which get it by its
// Descriptor. It is memory, or lies in dir (empty: where temporary files do) where a process cannot
// have such memory. The kernel takes it back when nobody has it any more.
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

// Descriptor returns the open file, which is x's to close.
func (x *File) Descriptor() *os.File { return x.f }

func (x *File) mapped(n int) (err error) {
	x.b, err = syscall.Mmap(int(x.f.Fd()), 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return err
}

// Bytes returns what the file holds, until Resize or Close.
func (x *File) Bytes() []byte { return x.b }

// Resize makes the file n bytes long, all of them taken from the device: what is not there is an
// error now, and not a signal when it is written. Bytes that were handed out before must not be
// used any more. The contents may be lost; after an error the file is empty.
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
		_ = x.f.Truncate(0) // what a device has given before it was full
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

// Close unmaps the file and gives up the lock. The file stays.
func (x *File) Close() error { return errors.Join(x.unmap(), x.f.Close()) }

// Boot names the machine since it was started; zeros where that cannot be known.
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
