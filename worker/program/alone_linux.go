package program

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// alone starts a program in a group of its own, so that what it has started ends with it, and so
// that a Ctrl-C is its parent's to answer. It is killed with the thread that has started it: a
// worker that is killed leaves no program behind.
func alone() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// endGroup waits for the end of a program and then ends what is left of its group. The program is
// not reaped before, so that nobody else can have its number.
func endGroup(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	kill(pid)
}

// kill ends the group of a program.
func kill(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
