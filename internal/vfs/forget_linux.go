//go:build linux && (amd64 || arm64)

package vfs

import (
	"os"
	"syscall"
)

// Forget asks the kernel to drop the cached pages of a file, so that the next read comes from the
// disk. The file must be synced. It is for measurements. ok is false if the system has no such
// request.
func Forget(name string) (ok bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return true, err
	}
	defer f.Close() // read only: nothing can be lost
	raw, err := f.SyscallConn()
	if err != nil {
		return true, err
	}
	const dontNeed = 4 // POSIX_FADV_DONTNEED
	var code syscall.Errno
	if err := raw.Control(func(fd uintptr) {
		_, _, code = syscall.Syscall6(syscall.SYS_FADVISE64, fd, 0, 0, dontNeed, 0, 0)
	}); err != nil {
		return true, err
	}
	if code != 0 {
		return true, os.NewSyscallError("fadvise", code)
	}
	return true, nil
}
