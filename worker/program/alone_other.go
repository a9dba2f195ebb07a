//go:build !linux

package program

import "syscall"

// alone starts a program in a group of its own, so that what it has started ends with it. If its parent is killed, it sees that its socket has ended when it looks.
func alone() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// kill ends the group of a program.
func kill(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
