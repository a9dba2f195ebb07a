//go:build !linux

package program

import "syscall"

// alone starts a program in a group of its own, so that it can be ended with what it has started.
// If its parent is killed, it sees that its socket has ended when it looks.
func alone() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// endGroup leaves what a program has started to itself.
func endGroup(int) {}

// kill ends the group of a program.
func kill(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
