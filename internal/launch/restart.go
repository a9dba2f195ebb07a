package launch

import (
	"fmt"
	"syscall"
	"time"
)

// RestartPolicy says when a dead process is restarted. Zero fields mean the defaults.
type RestartPolicy struct {
	// First is the pause before the second restart in a row. There is no pause before the first:
	// most deaths are single, and the run waits for the process. Default: 50ms.
	First time.Duration

	// Longest is the limit on the pause, which doubles with each further death in a row. Default:
	// 5s.
	Longest time.Duration

	// Healthy is how long a life must last to count as working, so that the next restart has no
	// pause. Default: 10s.
	Healthy time.Duration

	// Deaths is the number of deaths within Window, without progress of the run in between, that
	// ends the run: the cause will not go away by itself. Defaults: 5 and 10s.
	Deaths int
	Window time.Duration

	// Repeats is the number of deaths, for a cause that the next life will meet again, that ends
	// the run if there is no progress in between, however long they take. Lives that first read a
	// large data set would never die often enough for Window. Default: 3. If the user's program
	// failed, the number is Deaths instead, also however long they take: the program may recover,
	// but one that takes a minute to start is not restarted for ever.
	Repeats int
}

// withDefaults returns p with the defaults filled in.
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

// repeatsOf returns the number of deaths like e, without progress in between, that end the run; 0:
// no number does.
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

// Exit statuses by which a process tells its launcher what to do. Any other status means that it
// died.
const (
	exitDone      = 0
	exitCrashed   = 2  // of Go's runtime: a panic, or out of memory
	exitNotFinite = 65 // a gradient holds NaN or Inf, and will again, since it depends only on the version and the seed
	exitProgram   = 70 // the user's program failed, and will probably fail again
	exitPreempted = 75 // orderly end after a notice: restart
	exitConfig    = 78 // a flag or a setting is wrong: a restart does not help
)

// Exit says how a process ended.
type Exit struct {
	Status   int    // exit status; -1 if a signal ended it
	Signal   string // name of the signal; "" if the process ended by itself
	Injected bool   // a fault killed it
	Words    string // the line in which the process said why; "" if it did not

	CPU       time.Duration // CPU time of the process
	PeakBytes uint64        // peak memory of the process, or nearly; 0: not known
}

// String describes the exit, such as "killed by a fault" or "exit status 1: no space left on
// device".
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
	case e.Signal == syscall.SIGKILL.String():
		return "signal: killed, as the system does when memory is short"
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

// VerdictKind says what to do with a place whose process has ended.
type VerdictKind uint8

// The verdicts.
const (
	Restart  VerdictKind = iota + 1 // start the next life after the pause
	Finished                        // its work is done
	GiveUp                          // a restart does not help: end the run
)

// Verdict is the decision after an exit.
type Verdict struct {
	Kind   VerdictKind
	Pause  time.Duration // with Restart
	Reason string        // with GiveUp, in words
}

// Restarts decides, for one place, what to do after the end of a process. It has no clock: now is
// the time since any fixed moment, and must not go back. The zero value has the default policy.
type Restarts struct {
	Policy RestartPolicy

	started time.Duration
	inRow   int             // deaths since the last healthy life
	recent  []time.Duration // deaths within the window and since the last progress, oldest first
	repeats int             // deaths since the last progress whose cause the next life meets again, or may
}

// Started notes the start of a life.
func (r *Restarts) Started(now time.Duration) { r.started = now }

// Progressed notes that the run has made progress. So whatever kills processes does not stop the
// run, and earlier deaths no longer count towards giving up.
func (r *Restarts) Progressed() { r.recent, r.repeats = r.recent[:0], 0 }

// Exited decides what to do after the end of the current life. Deaths by a fault are intended by
// the user: they neither lengthen the pause nor count towards giving up.
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
	} else if shift < 30 { // more doublings would overflow
		pause = min(p.Longest, p.First<<shift)
	}
	r.inRow++
	return Verdict{Kind: Restart, Pause: pause}
}
