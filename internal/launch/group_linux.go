package launch

import "syscall"

// Group starts a process in a group of its own. It gets a signal when the thread ends that has started it, so that no kill leaves it behind.
func Group(orphaned syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
}
