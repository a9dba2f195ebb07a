package launch

import (
	"os"
	"strings"
	"testing"
)

// Background work of a process's runtime must not take processor time from the other processes.
func TestProcessesMayBeWokenLate(t *testing.T) {
	if _, err := os.Stat("/proc/self/timerslack_ns"); err != nil {
		t.Skipf("this system does not say how late processes may be woken: %v", err)
	}
	m := newMeeting(t)
	c, _ := m.cluster(Config{})
	must(t, c.Start(Spec{Part: Part{Worker, 0}, Args: []string{"slack"}}))
	if err := failure(t, c); !strings.Contains(err.Error(), "| slack 1000000") {
		t.Errorf("want a slack of a millisecond: %v", err)
	}
}
