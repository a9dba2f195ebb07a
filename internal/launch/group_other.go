//go:build !linux

package launch

import "syscall"

// Group starts a process in a process group of its own. If this process is killed, the other goes
// on: only Linux can prevent that.
func Group(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func relax() {}
