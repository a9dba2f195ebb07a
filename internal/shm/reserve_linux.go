package shm

import (
	"os"
	"syscall"
)

// reserve makes a file n bytes long and takes them from the device.
func reserve(f *os.File, n int64) error { return syscall.Fallocate(int(f.Fd()), 0, 0, n) }
