package launch

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// ActionKind is what has to be done to a part.
type ActionKind uint8

// The kinds of action.
const (
	ActKill   ActionKind = iota + 1 // SIGKILL; with Hold, do not start it again before ActStart
	ActStart                        // end of a hold: the launcher may start the part again
	ActPause                        // SIGSTOP
	ActResume                       // SIGCONT
	ActSlow                         // the worker's compute time is multiplied by Factor from now on
	ActUnslow                       // the worker is as fast as it can be
	ActLose                         // ActKill, and what the server has left outside its process is removed
	ActNotice                       // SIGTERM, and SIGKILL to whoever is there still when the warning is over
)

// String returns the action as an order, such as "kill".
func (k ActionKind) String() string {
	names := [...]string{"none", "kill", "start", "pause", "resume", "slow", "unslow", "lose", "notice"}
	if int(k) < len(names) {
		return names[k]
	}
	return "action"
}

// Action is one thing to do, and the fault that asks for it.
type Action struct {
	Kind   ActionKind
	Part   Part
	Hold   bool    // of ActKill and ActLose: ActStart will follow
	Factor float64 // of ActSlow: the product over all slow faults that are active
	Fault  Fault
}

// Schedule says which actions of a set of faults are due. It decides alone: it holds no clock and
// does nothing. Every fault happens once, also when a restore makes the run pass its step again.
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

// NewSchedule returns the schedule of faults. It keeps the slice and does not write to it.
func NewSchedule(faults []Fault) *Schedule {
	return &Schedule{
		faults: faults,
		state:  make([]faultState, len(faults)),
		begun:  make([]time.Duration, len(faults)),
	}
}

// Due returns the actions that are due once the run has released step, elapsed after its start, in
// the order in which they have to be done; each is returned once. elapsed must not go backwards; step may.
//
// What is due at an earlier call and ends at this one is never skipped: a fault begins in one call
// and ends, at the earliest, in the same call but after it began.
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
	// A slow fault whose whole span was passed between two calls begins and ends in this one.
	return s.endings(due, step, elapsed)
}

// lasts reports whether fault i has an end that somebody must bring about.
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

// end returns the action that ends fault i, unless another fault of its kind still holds the part.
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

// factor is the product of the active slow faults of p, in the order of the faults.
func (s *Schedule) factor(p Part) float64 {
	x := 1.0
	for i, f := range s.faults {
		if s.state[i] == active && f.Kind == Slow && f.Part == p {
			x *= f.Factor
		}
	}
	return x
}

// Next returns the earliest elapsed time at which something is due whatever the steps do, and false
// if only steps can make something due.
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
// run was shorter than the faults assumed.
func (s *Schedule) Unreached() []Fault {
	var left []Fault
	for i, f := range s.faults {
		if s.state[i] == waiting && f.At.State == "" { // whether a part entered a state is not known here
			left = append(left, f)
		}
	}
	return left
}
