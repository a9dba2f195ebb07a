package launch

import (
	"fmt"
	"time"
)

// RestartPolicy tunes when a dead process is started again. Zero fields mean the defaults given here.
type RestartPolicy struct {
	// First is the pause before the second restart in a row. The first has none: most deaths are
	// single, and a run waits for the process. Default 50ms.
	First time.Duration

	// Longest bounds the pause, which doubles with every further death in a row. Default 5s.
	Longest time.Duration

	// Healthy is how long a life must last to count as one that worked: the next restart has no pause
	// again. Default 10s.
	Healthy time.Duration

	// Deaths within Window, without any progress of the run in between, end the run: whatever is
	// wrong does not mend itself. Defaults 5 and 10s.
	Deaths int
	Window time.Duration

	// Repeats is how many deaths of what the next life meets again end the run, without any
	// progress in between and however long they take: lives that first read a large data set would
	// never die often enough for Window. Default 3. Deaths of a program that failed end it when
	// they are Deaths, however long they take: it may mend itself, but one that takes a minute to
	// start is not asked for ever.
	Repeats int
}

// withDefaults returns p with the zero fields set.
func (p RestartPolicy) withDefaults() RestartPolicy {
	if p.First == 0 {
		p.First = 50 * time.Millisecond
	}
	if p.Longest == 0 {
		p.Longest = 5 * time.Second
	}
	if p.Healthy == 0 {
		p.Healthy = 10 * time.Second
	}
	if p.Deaths == 0 {
		p.Deaths = 5
	}
	if p.Window == 0 {
		p.Window = 10 * time.Second
	}
	if p.Repeats == 0 {
		p.Repeats = 3
	}
	return p
}

// repeatsOf returns how many deaths in a row end the run however rare they are; 0: none do.
func (p RestartPolicy) repeatsOf(e Exit) int {
	switch {
	case e.Signal != "":
		return 0
	case e.Status == exitNotFinite:
		return p.Repeats
	case e.Status == exitProgram:
		return p.Deaths
	}
	return 0
}

// Statuses with which a process tells its launcher what to do; any other means that it died.
const (
	exitDone      = 0
	exitCrashed   = 2  // of Go's runtime: a panic, or no memory left
	exitNotFinite = 65 // a gradient holds NaN or Inf, and will again: it depends on nothing but the version and the seed
	exitProgram   = 70 // the user's program failed, and likely will again
	exitPreempted = 75 // start me again
	exitConfig    = 78 // a flag or a setting is wrong: starting me again does not help
)

// Exit says how a process ended.
type Exit struct {
	Status   int    // exit status; -1 if a signal ended it
	Signal   string // name of the signal; "" if the process ended by itself
	Injected bool   // the launcher killed it because a fault said so
	Words    string // what it said of that itself, in a line; "" if nothing

	CPU       time.Duration // that it and its threads computed
	PeakBytes uint64        // of memory that it had at once
}

// String returns the exit in words, such as "killed by a fault" or "exit status 1: no space left on device".
func (e Exit) String() string {
	if e.Words != "" && !e.Injected && e.Status != exitPreempted {
		return e.how() + ": " + e.Words
	}
	return e.how()
}

func (e Exit) how() string {
	switch {
	case e.Injected:
		return "killed by a fault"
	case e.Signal != "":
		return "signal: " + e.Signal
	case e.Status == exitPreempted:
		return "left after a notice (exit status 75)"
	case e.Status == exitNotFinite:
		return "a gradient that is not finite (exit status 65)"
	case e.Status == exitConfig:
		return "a wrong flag or setting (exit status 78)"
	case e.Status == exitCrashed:
		return "crashed (exit status 2)"
	case e.Status == exitProgram:
		return "a program that failed (exit status 70)"
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

// VerdictKind is what becomes of a place whose process has ended.
type VerdictKind uint8

// The verdicts.
const (
	Restart  VerdictKind = iota + 1 // start the next life after the pause
	Finished                        // its work is done; leave it
	GiveUp                          // starting it again does not help: end the run
)

// Verdict is the answer to an exit.
type Verdict struct {
	Kind   VerdictKind
	Pause  time.Duration // of Restart
	Reason string        // of GiveUp, in words
}

// Restarts decides, for one place, what follows the end of a process. It holds no clock: now is the
// time since any fixed moment, and must not go backwards. The zero value has the default policy.
type Restarts struct {
	Policy RestartPolicy

	started time.Duration
	inRow   int             // deaths since the last healthy life
	recent  []time.Duration // deaths within the window and since the last progress, oldest first
	repeats int             // deaths since the last progress of what the next life meets again, or may
}

// Started says that a life begins.
func (r *Restarts) Started(now time.Duration) { r.started = now }

// Progressed says that the run got on: whatever kills processes now and then does not stop it, so no
// earlier death counts towards giving up.
func (r *Restarts) Progressed() { r.recent, r.repeats = r.recent[:0], 0 }

// Exited decides what follows the end of the current life. Deaths by a fault are what the user asked
// for: they neither lengthen the pause nor count towards giving up.
func (r *Restarts) Exited(now time.Duration, e Exit) Verdict {
	p := r.Policy.withDefaults()
	if now-r.started >= p.Healthy {
		r.inRow = 0
	}
	switch {
	case e.Injected:
		return Verdict{Kind: Restart}
	case e.Status == exitPreempted:
		return Verdict{Kind: Restart, Pause: p.First}
	case e.Signal == "" && e.Status == exitDone:
		return Verdict{Kind: Finished}
	case e.Signal == "" && e.Status == exitConfig:
		return Verdict{Kind: GiveUp, Reason: "it was started with a wrong flag or setting (exit status 78)"}
	}
	for len(r.recent) > 0 && now-r.recent[0] > p.Window {
		r.recent = r.recent[1:]
	}
	r.recent = append(r.recent, now)
	if len(r.recent) >= p.Deaths {
		reason := fmt.Sprintf("it died %d times within %s without a step in between, the last time with %s",
			len(r.recent), trimDuration((now - r.recent[0]).Round(100*time.Millisecond)), e.how())
		if e.Signal == "killed" {
			reason += ", as the kernel does where a machine or a container is short of memory"
		}
		return Verdict{Kind: GiveUp, Reason: reason}
	}
	if limit := p.repeatsOf(e); limit > 0 {
		if r.repeats++; r.repeats >= limit {
			return Verdict{Kind: GiveUp, Reason: fmt.Sprintf("it died %d times without a step in between, the last time with %s", r.repeats, e.how())}
		}
	}
	pause := p.Longest
	if shift := r.inRow - 1; shift < 0 {
		pause = 0
	} else if shift < 30 { // beyond that, doubling would overflow
		pause = min(p.Longest, p.First<<shift)
	}
	r.inRow++
	return Verdict{Kind: Restart, Pause: pause}
}
