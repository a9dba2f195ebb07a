package launch

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// highWater returns the largest resident memory that a process has had so far, in bytes, or 0 if it
// has ended.
func highWater(pid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, b, _ = bytes.Cut(b, []byte("\nVmHWM:"))
	b, _, _ = bytes.Cut(b, []byte("kB\n"))
	n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
