package launch

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// unkillable is how long a process may outlive SIGKILL. That happens only if it hangs in the
// kernel.
const unkillable = 5 * time.Second

// stopping is the state of a cluster that is being stopped.
type stopping struct {
	role     Role // the role that is being stopped
	killed   bool // the grace of this role is over, and it was killed
	deadline time.Time
	all      bool // everything has been killed, whatever its role
}

// beginStop asks the processes of the first role to end.
func (c *Cluster) beginStop(now time.Time) {
	c.stopping = &stopping{}
	c.stopRole(Worker, now)
}

func (c *Cluster) stopRole(r Role, now time.Time) {
	s := c.stopping
	s.role, s.killed, s.deadline = r, false, now.Add(c.cfg.Grace)
	for _, p := range c.remaining() {
		_ = p.signal(syscall.SIGINT)  // it may have ended at this moment, and its exit is reported then
		_ = p.signal(syscall.SIGCONT) // a paused process does not react to other signals
	}
}

// killAll kills all processes.
func (c *Cluster) killAll() {
	s := c.stopping
	s.all, s.killed, s.deadline = true, true, time.Now().Add(unkillable)
	c.killRemaining()
}

func (c *Cluster) killRemaining() {
	for _, p := range c.remaining() {
		_ = p.signal(syscall.SIGKILL)
	}
}

// remaining returns the running processes that the current stage of the stop waits for.
func (c *Cluster) remaining() []*place {
	var left []*place
	for _, p := range c.places {
		if p.running() && (c.stopping.all || p.spec.Part.Role == c.stopping.role) {
			left = append(left, p)
		}
	}
	return left
}

// advanceStop takes the next steps of the stop that are possible now, and reports whether the stop
// is complete.
func (c *Cluster) advanceStop(now time.Time) bool {
	s := c.stopping
	for {
		left := c.remaining()
		switch {
		case len(left) == 0 && (s.all || s.role == Coordinator):
			return true
		case len(left) == 0:
			c.stopRole(s.role-1, now)
			continue
		case now.Before(s.deadline):
			return false
		case !s.killed:
			s.killed, s.deadline = true, now.Add(unkillable)
			c.killRemaining()
			return false
		}
		for _, p := range left {
			c.stopErr = errors.Join(c.stopErr, fmt.Errorf("stop %s: process %d lives on after SIGKILL; it hangs in the kernel",
				p.spec.Part, p.cmd.Process.Pid))
			p.cmd = nil
		}
	}
}
