package shm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// createPipes returns this process's ends, and how another process finds its own ends: in, from
// which it reads, and out, to which it writes.
func createPipes() (p *Pipes, pid int, in, out pipeEnd, closeName func(), err error) {
	var up, down [2]int
	if err = unix.Pipe2(up[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, 0, in, out, nil, fmt.Errorf("create a pipe: %w", err)
	}
	if err = unix.Pipe2(down[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		for _, fd := range up {
			_ = unix.Close(fd)
		}
		return nil, 0, in, out, nil, fmt.Errorf("create a pipe: %w", err)
	}
	closeName = func() { _, _ = unix.Close(up[0]), unix.Close(down[1]) }
	if p, err = newPipes(down[0], up[1]); err != nil {
		closeName()
		return nil, 0, in, out, nil, err
	}
	in.fd, out.fd = up[0], down[1]
	for _, e := range []*pipeEnd{&in, &out} {
		var st unix.Stat_t
		if err = unix.Fstat(e.fd, &st); err != nil {
			closeName()
			p.Close()
			return nil, 0, in, out, nil, fmt.Errorf("look at a pipe: %w", err)
		}
		e.node = st.Ino
	}
	return p, os.Getpid(), in, out, closeName, nil
}

// openPipes opens the descriptors in and out of process pid: in for reading, out for writing.
func openPipes(pid int, in, out pipeEnd) (*Pipes, error) {
	r, err := openPipe(pid, in, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	w, err := openPipe(pid, out, unix.O_WRONLY)
	if err != nil {
		_ = unix.Close(r)
		return nil, err
	}
	return newPipes(r, w)
}

func openPipe(pid int, e pipeEnd, mode int) (int, error) {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, e.fd)
	want := fmt.Sprintf("pipe:[%d]", e.node)
	// Check the link first: opening some kinds of files blocks or changes something, and reading
	// from a foreign pipe takes bytes from its owner.
	if to, err := os.Readlink(path); err != nil {
		return -1, err
	} else if to != want {
		return -1, fmt.Errorf("descriptor %d is %q, not %s", e.fd, to, want)
	}
	fd, err := unix.Open(path, mode|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFIFO || st.Ino != e.node:
		err = fmt.Errorf("descriptor %d has become another file", e.fd)
	case int(st.Uid) != os.Getuid():
		err = fmt.Errorf("it is of user %d, this process is of user %d", st.Uid, os.Getuid())
	default:
		return fd, nil
	}
	_ = unix.Close(fd)
	return -1, err
}
