package program

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// alone starts a program in a process group of its own, so that its child processes can be ended
// with it, and so that only its parent reacts to Ctrl-C. The kernel kills the program with the
// thread that has started it, so a worker that is killed leaves no program behind.
func alone() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// endGroup waits for the end of a program and then kills the rest of its process group. The program
// is reaped only afterwards, so that its process id cannot be reused before.
func endGroup(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	kill(pid)
}

// kill kills the process group of a program.
func kill(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
