package launch

import "github.com/prometheus/procfs"

// highWater returns the largest resident memory that a process has had so far, in bytes, or 0 if it
// has ended.
func highWater(pid int) uint64 {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0
	}
	return status.VmHWM
}
