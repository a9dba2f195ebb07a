package shm

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	memfdName = "kintsugi-segment"
	seals     = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
)

// create returns n bytes of zeros, and how another process finds them.
func create(n int, others Access) (b []byte, pid, fd int, closeName func(), err error) {
	fd, err = memfd(memfdName, unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, 0, 0, nil, fmt.Errorf("create memory: %w", err)
	}
	closeName = func() { _ = unix.Close(fd) }
	// Reserve all of it now: if a page were missing when it is written, that would be a signal and
	// not an error.
	if err = unix.Fallocate(fd, 0, 0, int64(n)); err == nil {
		b, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		err = seal(fd, others)
	}
	if err != nil {
		if b != nil {
			unmap(b)
		}
		closeName()
		return nil, 0, 0, nil, fmt.Errorf("take %d bytes of memory: %w", n, err)
	}
	return b, os.Getpid(), fd, closeName, nil
}

// seal fixes the size of the memory for good. If others may only read, it also forbids new writable
// mappings. Kernels before 5.1 have no seal for that; there the others are only trusted not to
// write.
func seal(fd int, others Access) error {
	if others == ReadOnly {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals|unix.F_SEAL_FUTURE_WRITE); err == nil {
			return nil
		}
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	return err
}

// open maps the memory behind descriptor fd of process pid.
func open(pid, fd, n int, mine Access) ([]byte, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
	// Check the link first: opening some kinds of files blocks or changes something.
	to, err := os.Readlink(path)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(to, "/memfd:"+memfdName) {
		return nil, fmt.Errorf("it is %q", to)
	}
	mode, prot := unix.O_RDWR, unix.PROT_READ|unix.PROT_WRITE
	if mine == ReadOnly {
		mode, prot = unix.O_RDONLY, unix.PROT_READ
	}
	f, err := unix.Open(path, mode|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = unix.Close(f) }() // the mapping stays
	var st unix.Stat_t
	if err := unix.Fstat(f, &st); err != nil {
		return nil, err
	}
	got, err := unix.FcntlInt(uintptr(f), unix.F_GET_SEALS, 0)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask for its seals: %w", err)
	case got&seals != seals:
		return nil, errors.New("it is not sealed: it could shrink while it is read")
	case int(st.Uid) != os.Getuid():
		return nil, fmt.Errorf("it is of user %d, this process is of user %d", st.Uid, os.Getuid())
	case st.Size != int64(n):
		return nil, fmt.Errorf("it has %d bytes, its name says %d", st.Size, n)
	}
	return unix.Mmap(f, 0, n, prot, unix.MAP_SHARED)
}

func unmap(b []byte) { _ = unix.Munmap(b) }
