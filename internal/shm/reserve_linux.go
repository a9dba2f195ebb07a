package shm

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// memory returns an empty file that is memory and has no place in any file system. Its name appears
// only in lists of mappings.
func memory(name string) (*os.File, error) {
	fd, err := memfd(name, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// memfd returns the descriptor of such a file. Some systems refuse a memfd that could be executed,
// and old kernels do not know the flag that rules that out; so memfd tries both ways.
func memfd(name string, flags int) (int, error) {
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if err != nil {
		fd, err = unix.MemfdCreate(name, flags|unix.MFD_CLOEXEC)
	}
	return fd, err
}

// reserve takes bytes [lo, hi) of a file from the device.
func reserve(f *os.File, lo, hi int64) error { return syscall.Fallocate(int(f.Fd()), 0, lo, hi-lo) }
