//go:build !linux

package program

import "syscall"

// alone starts a program in a process group of its own, so that its child processes can be ended
// with it. If its parent is killed, the program notices it when it next reads from the socket.
func alone() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// endGroup does nothing: child processes of the program are left alone.
func endGroup(int) {}

// kill kills the process group of a program.
func kill(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
