//go:build linux && (amd64 || arm64)

package vfs

import (
	"os"
	"syscall"
)

// startWriteback asks the kernel to begin to write bytes [offset, offset+n) of f to the disk, and
// does not wait. It is a hint for speed: it makes nothing durable, and Sync reports its errors.
func startWriteback(f *os.File, offset, n int64) {
	const write = 2 // SYNC_FILE_RANGE_WRITE
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = syscall.SyncFileRange(int(fd), offset, n, write) })
}
