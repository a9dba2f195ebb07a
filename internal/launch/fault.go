package launch

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Role is the role of a process in a run.
type Role uint8

// The roles, in the order in which a cluster starts them. It stops them in the opposite order, so
// that a server can still publish its last checkpoint through the coordinator.
const (
	Coordinator Role = iota
	Server
	Worker
)

// String returns the role as it is written in faults and flags.
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

// Part is a place of a run. The processes in the place change.
type Part struct {
	Role  Role
	Index int // 0 for the coordinator, as there is only one
}

// String returns the part as it is written in faults and logs, such as "server/0" or "coordinator".
func (p Part) String() string {
	if p.Role == Coordinator {
		return p.Role.String()
	}
	return p.Role.String() + "/" + strconv.Itoa(p.Index)
}

// logName returns the part for the name of a file.
func (p Part) logName() string { return fmt.Sprintf("%s-%d", p.Role, p.Index) }

// Moment is a point in a run: a released step, a time since the start, or the nth time that the
// part enters a state. Only one of these is set. The zero Moment means never.
type Moment struct {
	Step    kintsugi.Step
	Elapsed time.Duration

	// State and Times are known only to the process itself, which reads them when it starts
	// (OrderDeaths, Deaths). Schedule ignores them.
	State string
	Times int // from 1
}

// Reached reports whether a run that has released step, elapsed after its start, has reached m.
func (m Moment) Reached(step kintsugi.Step, elapsed time.Duration) bool {
	switch {
	case m.Step > 0:
		return step >= m.Step
	case m.Elapsed > 0:
		return elapsed >= m.Elapsed
	}
	return false
}

// String returns the moment as it is written in faults, such as "step 500", "20s" or "saving 3"; ""
// means never.
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

// FaultKind says what a fault does.
type FaultKind uint8

// The kinds of fault.
const (
	Kill   FaultKind = iota + 1 // SIGKILL: the process cannot react
	Pause                       // SIGSTOP: the process exists but does not answer, as when its host stalls
	Slow                        // a worker takes Factor times as long to compute
	Lose                        // Kill, and the state that the server keeps outside its process is lost too, as when its host fails
	Notice                      // SIGTERM: the process is about to go, and hands over what others need
)

// String returns the kind as it is written in faults.
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

// Fault is one event that is injected into one part of a run.
type Fault struct {
	Kind FaultKind
	Part Part
	At   Moment

	// For is the duration. Kill and Lose: how long the place stays empty; zero means that the
	// launcher restarts the process as after any other death. Pause: must be positive. Slow: zero.
	For time.Duration

	// Factor, above 1, multiplies the compute time of a slow worker. It is zero for other kinds.
	Factor float64

	// Until is the end of a slow fault; zero means the end of the run.
	Until Moment
}

// String returns the fault in the syntax of ParseFault.
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

// trimDuration formats a duration without zero units: 2m, not 2m0s.
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

// Check returns an error if a run with the given numbers of servers and workers does not have the
// part that f names. The error says which parts there are and wraps kintsugi.ErrUsage.
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
