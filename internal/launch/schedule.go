package launch

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// ActionKind is the kind of an action on a part.
type ActionKind uint8

// The kinds of action.
const (
	ActKill   ActionKind = iota + 1 // SIGKILL; with Hold, do not restart the part before ActStart
	ActStart                        // end of a hold: the launcher may restart the part
	ActPause                        // SIGSTOP
	ActResume                       // SIGCONT
	ActSlow                         // multiply the worker's compute time by Factor from now on
	ActUnslow                       // the worker computes at full speed again
	ActLose                         // ActKill, and remove the server's state outside its process
	ActNotice                       // SIGTERM, and SIGKILL if the process has not ended when the warning is over
)

// String returns the action as a verb, such as "kill".
func (k ActionKind) String() string {
	names := [...]string{"none", "kill", "start", "pause", "resume", "slow", "unslow", "lose", "notice"}
	if int(k) < len(names) {
		return names[k]
	}
	return "action"
}

// Action is one action on a part, and the fault that it belongs to.
type Action struct {
	Kind   ActionKind
	Part   Part
	Hold   bool    // with ActKill and ActLose: ActStart will follow
	Factor float64 // with ActSlow: the product over all active slow faults
	Fault  Fault
}

// Schedule decides which actions of a set of faults are due. It is pure: it has no clock and does
// nothing itself. Each fault happens once, even if a restore makes the run pass its step again.
//
// Invariant: a part is started, resumed or made fast again only when no other fault still holds it.
//
// A Schedule is not safe for concurrent use.
type Schedule struct {
	faults []Fault
	state  []faultState // by fault
	begun  []time.Duration
}

type faultState uint8

const (
	waiting faultState = iota
	active
	over
)

// NewSchedule returns the schedule of faults. It keeps the slice but does not change it.
func NewSchedule(faults []Fault) *Schedule {
	return &Schedule{
		faults: faults,
		state:  make([]faultState, len(faults)),
		begun:  make([]time.Duration, len(faults)),
	}
}

// Due returns the actions that are due when the run has released step, elapsed after its start, in
// the order in which they must be carried out. Each action is returned once. elapsed must not go
// back; step may.
//
// No action is skipped if the fault begins and ends between two calls: it then begins and ends, in
// this order, in the later call.
func (s *Schedule) Due(step kintsugi.Step, elapsed time.Duration) []Action {
	var due []Action
	// Ends come first: a hold that ends now must not undo one that begins now.
	due = s.endings(due, step, elapsed)
	for i, f := range s.faults {
		if s.state[i] != waiting || !f.At.Reached(step, elapsed) {
			continue
		}
		s.state[i], s.begun[i] = active, elapsed
		due = append(due, s.begin(i))
		if !s.lasts(i) {
			s.state[i] = over
		}
	}
	// A slow fault that began and ended between two calls begins and ends in this one.
	return s.endings(due, step, elapsed)
}

// lasts reports whether fault i has an end that needs an action.
func (s *Schedule) lasts(i int) bool { return !s.faults[i].Kind.ends() || s.faults[i].For > 0 }

func (s *Schedule) begin(i int) Action {
	f := s.faults[i]
	a := Action{Part: f.Part, Fault: f}
	switch f.Kind {
	case Kill:
		a.Kind, a.Hold = ActKill, f.For > 0
	case Lose:
		a.Kind, a.Hold = ActLose, f.For > 0
	case Pause:
		a.Kind = ActPause
	case Notice:
		a.Kind = ActNotice
	case Slow:
		a.Kind, a.Factor = ActSlow, s.factor(f.Part)
	}
	return a
}

func (s *Schedule) endings(due []Action, step kintsugi.Step, elapsed time.Duration) []Action {
	for i, f := range s.faults {
		if s.state[i] != active || !s.ended(i, step, elapsed) {
			continue
		}
		s.state[i] = over
		if a, ok := s.end(i, f); ok {
			due = append(due, a)
		}
	}
	return due
}

func (s *Schedule) ended(i int, step kintsugi.Step, elapsed time.Duration) bool {
	f := s.faults[i]
	if f.Kind == Slow {
		return f.Until.Reached(step, elapsed)
	}
	return elapsed-s.begun[i] >= f.For
}

// end returns the action that ends fault i. It returns false if another fault of its kind still
// holds the part.
func (s *Schedule) end(i int, f Fault) (Action, bool) {
	a := Action{Part: f.Part, Fault: f}
	if f.Kind == Slow {
		a.Kind, a.Factor = ActSlow, s.factor(f.Part)
		if a.Factor == 1 {
			a.Kind, a.Factor = ActUnslow, 0
		}
		return a, true
	}
	for j, g := range s.faults {
		if j != i && s.state[j] == active && (g.Kind == f.Kind || g.Kind.ends() && f.Kind.ends()) && g.Part == f.Part {
			return a, false
		}
	}
	a.Kind = ActStart
	if f.Kind == Pause {
		a.Kind = ActResume
	}
	return a, true
}

// factor returns the product of the active slow faults of p, in the order of the faults.
func (s *Schedule) factor(p Part) float64 {
	x := 1.0
	for i, f := range s.faults {
		if s.state[i] == active && f.Kind == Slow && f.Part == p {
			x *= f.Factor
		}
	}
	return x
}

// Next returns the earliest elapsed time at which an action is due, whatever the steps do. It
// returns false if only steps can make an action due.
func (s *Schedule) Next() (time.Duration, bool) {
	var next time.Duration
	found := false
	consider := func(d time.Duration) {
		if !found || d < next {
			next, found = d, true
		}
	}
	for i, f := range s.faults {
		switch {
		case s.state[i] == waiting && f.At.Elapsed > 0:
			consider(f.At.Elapsed)
		case s.state[i] == active && f.Kind == Slow && f.Until.Elapsed > 0:
			consider(f.Until.Elapsed)
		case s.state[i] == active && f.Kind != Slow:
			consider(s.begun[i] + f.For)
		}
	}
	return next, found
}

// Unreached returns the faults that have not begun. At the end of a run they deserve a warning: the
// run was too short for them.
func (s *Schedule) Unreached() []Fault {
	var left []Fault
	for i, f := range s.faults {
		if s.state[i] == waiting && f.At.State == "" { // nothing is known here about states
			left = append(left, f)
		}
	}
	return left
}
