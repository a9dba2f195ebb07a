package launch

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group starts a process in a group of its own. It gets a signal when the thread ends that has
// started it, so that no kill leaves it behind.
func Group(orphaned syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
}

// late is by how much processes of a cluster may be woken too late.
const late = time.Millisecond

// relax lets the processes that this thread starts from now on be woken that late. In each busy
// process Go's runtime has a thread that sleeps for 20 µs, looks, and sleeps again. Linux, whose
// slack is 50 µs, wakes it up to 14,000 times a second, which costs where processes are more than
// cores. The slack of a thread is inherited, and survives exec; the runtime's own thread is there
// before any code of ours, so that its process cannot set it.
func relax() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(late.Nanoseconds()), 0, 0, 0) // without it all is as it was
}
