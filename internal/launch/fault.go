package launch

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Role is what a process does in a run.
type Role uint8

// The roles, in the order in which a cluster is started. It is stopped in the opposite order, so
// that a server can still publish its last checkpoint through the coordinator.
const (
	Coordinator Role = iota
	Server
	Worker
)

// String returns the role as faults and flags spell it.
func (r Role) String() string {
	switch r {
	case Coordinator:
		return "coordinator"
	case Server:
		return "server"
	case Worker:
		return "worker"
	}
	return "role(" + strconv.Itoa(int(r)) + ")"
}

// Part names a process of a run by its place; the processes that fill the place come and go.
type Part struct {
	Role  Role
	Index int // 0 for the coordinator, of which there is one
}

// String returns the part as faults and logs spell it, such as "server/0" or "coordinator".
func (p Part) String() string {
	if p.Role == Coordinator {
		return p.Role.String()
	}
	return p.Role.String() + "/" + strconv.Itoa(p.Index)
}

// logName is the part in the name of a file.
func (p Part) logName() string { return fmt.Sprintf("%s-%d", p.Role, p.Index) }

// Moment is a point of a run: a released step, a time since the start, or the nth time that the part
// enters a state. Exactly one is set; the zero Moment means never.
type Moment struct {
	Step    kintsugi.Step
	Elapsed time.Duration

	// State and Times are known to the process alone: it is told of them when it starts (DieFile), and no
	// Schedule reaches them.
	State string
	Times int // from 1
}

// Reached reports whether a run that has released step, elapsed after its start, is past m.
func (m Moment) Reached(step kintsugi.Step, elapsed time.Duration) bool {
	switch {
	case m.Step > 0:
		return step >= m.Step
	case m.Elapsed > 0:
		return elapsed >= m.Elapsed
	}
	return false
}

// String returns the moment as faults spell it, such as "step 500", "20s" or "saving 3"; "" for never.
func (m Moment) String() string {
	switch {
	case m.State != "":
		return fmt.Sprintf("%s %d", m.State, m.Times)
	case m.Step > 0:
		return fmt.Sprintf("step %d", m.Step)
	case m.Elapsed > 0:
		return trimDuration(m.Elapsed)
	}
	return ""
}

// FaultKind is what a fault does.
type FaultKind uint8

// The kinds of fault.
const (
	Kill   FaultKind = iota + 1 // SIGKILL: the process gets no chance to say anything
	Pause                       // SIGSTOP: it is there and does not answer, as in a long stall of the host
	Slow                        // a worker takes Factor times as long to compute
	Lose                        // Kill, and what the server has left in memory outside its process is gone, as with its host
	Notice                      // SIGTERM: the process is about to go, and hands over what others need
)

// String returns the kind as faults spell it.
func (k FaultKind) String() string {
	switch k {
	case Kill:
		return "kill"
	case Pause:
		return "pause"
	case Slow:
		return "slow"
	case Lose:
		return "lose"
	case Notice:
		return "notice"
	}
	return "fault(" + strconv.Itoa(int(k)) + ")"
}

// ends reports whether the fault ends a process.
func (k FaultKind) ends() bool { return k == Kill || k == Lose || k == Notice }

// Fault is something that is done to one part of a run, once.
type Fault struct {
	Kind FaultKind
	Part Part
	At   Moment

	// For is how long it lasts. Kill and Lose: how long the place stays empty; zero: the launcher starts the
	// process again as soon as it would after any death. Pause: always positive. Slow: zero.
	For time.Duration

	// Factor, above 1, multiplies the compute time of a slow worker. Zero for the other kinds.
	Factor float64

	// Until ends a slow fault; zero: it lasts to the end of the run.
	Until Moment
}

// String returns the fault in the form that ParseFault reads.
func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", f.Kind, f.Part)
	if f.Kind == Slow {
		fmt.Fprintf(&b, " x%s from %s", strconv.FormatFloat(f.Factor, 'g', -1, 64), f.At)
		if f.Until != (Moment{}) {
			fmt.Fprintf(&b, " to %s", f.Until)
		}
		return b.String()
	}
	if f.At.State != "" {
		fmt.Fprintf(&b, " when %s", f.At)
		return b.String()
	}
	fmt.Fprintf(&b, " at %s", f.At)
	if f.For > 0 {
		fmt.Fprintf(&b, " for %s", trimDuration(f.For))
	}
	return b.String()
}

// trimDuration prints a duration without the zero units that time.Duration adds: 2m, not 2m0s.
func trimDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// Check reports whether a run with that many servers and workers has the part that f names. The
// error says which parts there are and wraps kintsugi.ErrUsage.
func (f Fault) Check(servers, workers int) error {
	n := 1
	switch f.Part.Role {
	case Server:
		n = servers
	case Worker:
		n = workers
	}
	if f.Part.Index >= 0 && f.Part.Index < n {
		return nil
	}
	return fmt.Errorf("fault %q: %s: %s: %w", f, f.Part, partsThereAre(f.Part.Role, n), kintsugi.ErrUsage)
}

func partsThereAre(r Role, n int) string {
	first, last := Part{r, 0}, Part{r, n - 1}
	switch n {
	case 0:
		return fmt.Sprintf("there are no %ss", r)
	case 1:
		return fmt.Sprintf("there is 1 %s, %s", r, first)
	case 2:
		return fmt.Sprintf("there are 2 %ss, %s and %s", r, first, last)
	}
	return fmt.Sprintf("there are %d %ss, %s to %s", n, r, first, last)
}
