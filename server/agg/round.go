package agg

import (
	"fmt"
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// Verdict says what becomes of a ticket when it arrives.
type Verdict uint8

// The verdicts.
const (
	Open      Verdict = iota // may be counted in the next step
	Duplicate                // the same ticket is open already, or counted in the committed step
	Counted                  // a released step has counted it: tell the worker again
	Refuse                   // will never be counted; the reason says why
)

// A Round collects the tickets of one step after the other. It handles tickets, not tensors. It has
// no lock: one goroutine may use it at a time.
type Round struct {
	cfg      Config
	released kintsugi.Step            // newest version that a worker may hold
	open     []kintsugi.Ticket        // in order of arrival
	has      map[kintsugi.Slot]int    // number of open tickets, by worker
	counted  []kintsugi.PushID        // by the step that is committed and not yet released; ascending; nil: none
	known    map[kintsugi.PushID]bool // pushes that are open (false) or counted by the committed step (true)

	// last lists, by slot, the newest pushes of the newest incarnation that released steps have
	// counted, ascending and as many as its credit, up to remembered. A worker sends its tickets in
	// order, and asks again about all open ones before it sends new ones. So with a small credit
	// it asks about no push before those. A ticket that is not newer than all of them is a
	// repetition. Without last, a ticket that is repeated after its step would count twice, where
	// late gradients are applied.
	last map[kintsugi.Slot][]kintsugi.PushID

	floor map[kintsugi.Slot]kintsugi.Step // set by Begin
	usual float64                         // squared norm of ordinary gradients, a moving average; 0: not known

	chosen int    // quota of the next step by Choose; 0: that of the configuration
	reason string // of chosen
}

// NewRound returns a round that collects tickets for step released+1. The caller has checked cfg.
func NewRound(cfg Config, released kintsugi.Step) *Round {
	return &Round{
		cfg: cfg, released: released, has: make(map[kintsugi.Slot]int), known: make(map[kintsugi.PushID]bool),
		last: make(map[kintsugi.Slot][]kintsugi.PushID), floor: make(map[kintsugi.Slot]kintsugi.Step),
	}
}

// Begin says that the worker in slot starts from the newest version. Of its pushes on older
// versions, only those with open tickets may still be counted. Its other pushes were interrupted,
// or only a conductor before this one knows what became of them. Where late gradients are applied,
// those would otherwise be held for ever, or could be counted a second time.
func (r *Round) Begin(slot kintsugi.Slot) { r.BeginFrom(slot, r.released) }

// BeginFrom is Begin for a worker that will also offer kept gradients, computed on versions from
// oldest on. The round has had a ticket for none of them.
func (r *Round) BeginFrom(slot kintsugi.Slot, oldest kintsugi.Step) {
	floor := min(oldest, r.released)
	for _, t := range r.open {
		if t.Push.Slot == slot {
			floor = min(floor, t.Push.Version)
		}
	}
	r.floor[slot] = floor
}

// Oldest returns the oldest version on which a gradient of slot may have been computed and still be
// counted after step is released.
func (r *Round) Oldest(slot kintsugi.Slot, step kintsugi.Step) kintsugi.Step {
	return max(r.cfg.Oldest(step), r.floor[slot])
}

// Offer takes a ticket and says what becomes of it, with a reason if it is refused. The caller has
// checked that the ticket belongs to the run's line and to a member's present incarnation.
func (r *Round) Offer(t kintsugi.Ticket) (Verdict, string) {
	if _, known := r.known[t.Push]; known {
		return Duplicate, ""
	}
	if r.Released(t.Push) {
		return Counted, ""
	}
	if t.Push.Version > r.released {
		return Refuse, fmt.Sprintf("computed on version %d, which is not released; the newest is %d", t.Push.Version, r.released)
	}
	if reason := r.tooLate(&t); reason != "" {
		return Refuse, reason
	}
	if r.passed(t.Push) {
		return Refuse, "late: a later gradient of its worker is counted"
	}
	if t.Examples == 0 || math.IsNaN(t.SquaredNorm) || math.IsInf(t.SquaredNorm, 0) || t.SquaredNorm < 0 {
		return Refuse, fmt.Sprintf("ticket of %d examples with squared norm %v makes no sense", t.Examples, t.SquaredNorm)
	}
	// No shard holds more pushes of it, so these tickets are made up.
	if n := r.has[t.Push.Slot]; n >= r.cfg.Held() {
		return Refuse, fmt.Sprintf("%d tickets of worker/%d are open; it must wait", n, t.Push.Slot)
	}
	r.open = append(r.open, t)
	r.has[t.Push.Slot]++
	r.known[t.Push] = false
	return Open, ""
}

// Newest returns the newest pushes of slot, ascending and of one incarnation, that released steps
// are known to have counted: as many as its worker may still ask about. The round owns the list.
func (r *Round) Newest(slot kintsugi.Slot) []kintsugi.PushID { return r.last[slot] }

// Released reports whether a released step is known to have counted p. For such a p, Offer returns
// Counted.
func (r *Round) Released(p kintsugi.PushID) bool {
	last := r.last[p.Slot]
	if len(last) == 0 || last[0].Incarnation != p.Incarnation {
		return false
	}
	// Nobody knows what became of a push before a full list. Its worker must not send it again.
	if len(last) == r.cfg.remembers() && p.Compare(last[0]) < 0 {
		return true
	}
	_, found := slices.BinarySearchFunc(last, p, kintsugi.PushID.Compare)
	return found
}

// passed reports whether a later push of the worker of p is counted by a released step.
func (r *Round) passed(p kintsugi.PushID) bool {
	last := r.last[p.Slot]
	return len(last) > 0 && last[0].Incarnation == p.Incarnation && p.Compare(last[len(last)-1]) < 0
}

// Counts reports whether p is counted, by the committed step or by a released one.
func (r *Round) Counts(p kintsugi.PushID) bool { return r.known[p] || r.Released(p) }

// tooLate returns why t can no longer be counted, or "".
func (r *Round) tooLate(t *kintsugi.Ticket) string {
	oldest := r.Oldest(t.Push.Slot, r.released)
	if t.Push.Version >= oldest {
		return ""
	}
	return fmt.Sprintf("late: computed on version %d, the oldest that still counts is %d", t.Push.Version, oldest)
}

// Choice is one counted ticket with its weight in the step.
type Choice struct {
	Ticket kintsugi.Ticket
	Weight float32
}

// A Decision is a step that the open tickets make.
type Decision struct {
	Choices []Choice // ascending by PushID.Compare
	Scale   float32  // multiplies the weighted sum: 1 for a sum, 1/examples for a mean
	Quota   int
	Reason  string // of the quota, in words
}

// Decide returns the next step if the open tickets make one. members is the number of workers in
// the run; it must be positive. The step is then committed, and no further one is decided until
// Release.
func (r *Round) Decide(members int) (Decision, bool) {
	if r.counted != nil || members < 1 {
		return Decision{}, false
	}
	quota, reason := r.cfg.quota(members)
	if r.chosen > 0 {
		quota, reason = min(r.chosen, members*r.cfg.limit()), r.reason
	}
	if len(r.open) < quota {
		return Decision{}, false
	}
	per := max(1, r.cfg.PerWorker)
	var chosen []kintsugi.Ticket
	taken := make(map[kintsugi.Slot]int, members)
	// In order of arrival: the first quota of them make the step.
	for _, t := range r.open {
		if len(chosen) == quota {
			break
		}
		if taken[t.Push.Slot] < per {
			taken[t.Push.Slot]++
			chosen = append(chosen, t)
		}
	}
	if len(chosen) < quota {
		return Decision{}, false
	}
	slices.SortFunc(chosen, func(a, b kintsugi.Ticket) int { return a.Push.Compare(b.Push) })
	d := Decision{Quota: quota, Reason: reason}
	examples := uint64(0)
	for _, t := range chosen {
		examples += uint64(t.Examples)
		d.Choices = append(d.Choices, Choice{Ticket: t, Weight: r.cfg.weight(&t, r.released-t.Push.Version, step{usual: r.usual, counted: len(chosen), members: members})})
		r.counted = append(r.counted, t.Push)
		r.known[t.Push] = true
	}
	for _, t := range chosen {
		r.know(&t)
	}
	d.Scale = r.cfg.scale(examples)
	r.shut(func(t *kintsugi.Ticket) bool { return r.known[t.Push] })
	return d, true
}

// shut removes the open tickets that which selects.
func (r *Round) shut(which func(*kintsugi.Ticket) bool) {
	r.open = slices.DeleteFunc(r.open, func(t kintsugi.Ticket) bool {
		gone := which(&t)
		if gone {
			r.has[t.Push.Slot]--
		}
		return gone
	})
}

// know adds the norm of an ordinary gradient to the moving average.
func (r *Round) know(t *kintsugi.Ticket) {
	const part = 0.1 // weight of the newest: about the last ten count
	switch {
	case t.Kept > 0:
	case r.usual == 0:
		r.usual = t.SquaredNorm
	default:
		r.usual += part * (t.SquaredNorm - r.usual)
	}
}

// Choose sets the quota of the next step only, with its reason in words. Without it, the
// configuration sets the quota. A step that is committed already does not change.
func (r *Round) Choose(quota int, reason string) { r.chosen, r.reason = max(1, quota), reason }

// Has returns the number of open tickets of a worker.
func (r *Round) Has(slot kintsugi.Slot) int { return r.has[slot] }

// Waiting returns the number of open tickets, all of which may be counted.
func (r *Round) Waiting() int { return len(r.open) }

// Adopt takes over a step that an earlier conductor committed: its pushes are counted.
func (r *Round) Adopt(counted []kintsugi.Weighted) {
	r.counted = []kintsugi.PushID{}
	for _, w := range counted {
		r.counted = append(r.counted, w.Push)
		r.known[w.Push] = true
	}
}

// Release ends the committed step; step is the newest version now. It returns the open tickets that
// have become too late, each with its reason.
func (r *Round) Release(step kintsugi.Step) []kintsugi.Refused {
	r.Remember(r.counted)
	for _, p := range r.counted {
		delete(r.known, p)
	}
	r.released, r.counted, r.chosen = step, nil, 0
	var late []kintsugi.Refused
	r.shut(func(t *kintsugi.Ticket) bool {
		reason := r.tooLate(t)
		if reason != "" {
			delete(r.known, t.Push)
			late = append(late, kintsugi.Refused{Push: t.Push, Step: step, Reason: reason})
		}
		return reason != ""
	})
	return late
}

// Leave forgets the open tickets of every incarnation of slot below next. A step that is committed
// keeps the pushes that it counts, because every head holds their bytes already.
func (r *Round) Leave(slot kintsugi.Slot, next kintsugi.Incarnation) {
	r.shut(func(t *kintsugi.Ticket) bool {
		gone := t.Push.Slot == slot && t.Push.Incarnation < next
		if gone {
			delete(r.known, t.Push)
		}
		return gone
	})
}

// Remember notes pushes that released steps have counted, in any order, so that their tickets are
// recognised when they are repeated.
func (r *Round) Remember(counted []kintsugi.PushID) {
	for _, p := range counted {
		last := r.last[p.Slot]
		if len(last) > 0 && p.Incarnation < last[0].Incarnation {
			continue
		}
		if len(last) > 0 && p.Incarnation > last[0].Incarnation {
			last = nil
		}
		if at, found := slices.BinarySearchFunc(last, p, kintsugi.PushID.Compare); !found {
			last = slices.Insert(last, at, p)
		}
		r.last[p.Slot] = last[max(0, len(last)-r.cfg.remembers()):]
	}
}
