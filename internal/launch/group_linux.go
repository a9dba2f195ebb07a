package launch

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group starts a process in a process group of its own. When the thread that started it ends, the
// process gets the signal orphaned, so that it is not left behind when the launcher is killed.
func Group(orphaned syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
}

// late is how late the timers of a cluster's processes may fire.
const late = time.Millisecond

// relax sets the timer slack of processes that this thread starts from now on to late. In each busy
// process, Go's runtime has a thread that sleeps for 20 µs, looks, and sleeps again. With Linux's
// default slack of 50 µs, it wakes up to 14,000 times a second, which is expensive if there are
// more processes than cores. A thread's slack is inherited and survives exec. A process cannot set
// it for itself, because the runtime's thread exists before any of our code runs.
func relax() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(late.Nanoseconds()), 0, 0, 0) // an error changes nothing: the slack stays as it was
}
