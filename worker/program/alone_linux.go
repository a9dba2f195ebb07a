package program

import "syscall"

// alone starts a program in a group of its own, so that what it has started ends with it, and so that a Ctrl-C is its parent's to answer. It is
// killed with the thread that has started it: a worker that is killed leaves no program behind.
func alone() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// kill ends the group of a program.
func kill(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
