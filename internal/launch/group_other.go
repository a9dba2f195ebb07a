//go:build !linux

package launch

import "syscall"

// Group starts a process in a group of its own. If this one is killed, and not asked to end, the
// other goes on: Linux alone can prevent that.
func Group(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func relax() {}
