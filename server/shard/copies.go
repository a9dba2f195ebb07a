package shard

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// The chain of a shard may be relaxed, as in Training Through Failure (Cao, Luo, Gan and Jinesh,
// 2024): replicas that are no heads apply no updates but get a copy of the shard every so many
// steps, and each answers once it has the copy itself, whoever is behind it.
//
// A step whose version is to be copied is stable only when the one after has the copy. It is copied
// before it is released: were it copied afterwards, a head could die in between with one more
// released step than the bound says. So the one after the head keeps two copies, the newest, which
// may never be released, and the one before it. When the head dies a line begins where the heads of
// the other shards stand, with the newest copy that is not beyond.
//
// A copy of a step that was not released may be one of a decision that was replaced, and whoever
// has it cannot tell. So who has the newest copy is told, by Joined, when that is released: before
// that it is not whole if it was not already, and hands on the one before only. What is further
// behind the head was always released.
//
// The fence stays with the head: a head that is removed begins no line, and whoever heads the shard
// next is on another one. A removed head that does not know it yet gets as far as the next copy,
// which nobody takes.

// copied is what the one after has, on the present connection.
type copied struct {
	whole   bool // it has something
	step    kintsugi.Step
	decided kintsugi.Fence
	told    bool // that it has caught up
}

// CopyEvery relaxes the chain of r, which is new: those behind get a copy every so many steps, at
// least 1. It is called before anything else.
func (r *Replica) CopyEvery(steps kintsugi.Step) { r.every = steps }

// copies reports whether the chain is relaxed.
func (r *Replica) copies() bool { return r.every > 0 }

// waitsForCopy reports whether an answer is given only when the one after has a copy: it says that
// a version is stable which is to be copied.
func (r *Replica) waitsForCopy(m kintsugi.ReplicaMessage) bool {
	s, ok := m.(kintsugi.Stable)
	return ok && s.Step%r.every == 0
}

// ofCopies reports whether a message is one of a relaxed chain.
func ofCopies(m kintsugi.ChainMessage) bool {
	switch m.(type) {
	case kintsugi.Snapshot, kintsugi.Joined:
		return true
	}
	return false
}

// due returns the oldest version that the one after may have. Who is no head hands on the newest of
// which it knows that it was released.
func (r *Replica) due() kintsugi.Step {
	if r.follows {
		return r.released
	}
	return r.applied - r.applied%r.every
}

// lacks reports whether the one after has to be sent a copy: what it has is too old, or an earlier
// decision about the version that is due.
func (r *Replica) lacks(has copied) bool {
	decided := r.dueBy
	if r.follows {
		decided = r.decidedAt(r.released)
	}
	return !has.whole || has.step < r.due() || has.step == r.due() && has.decided != decided
}

// offered returns the version that the one after is sent: one that is applied and not released only if it is due.
func (r *Replica) offered() kintsugi.Step {
	if r.due() == r.applied {
		return r.applied
	}
	return r.released
}

// copy sends the one after a copy if it needs one, and none is on its way: its answer is waited
// for, so that a slow one has at most one version pinned here. One that needs none is told so once
// that was released.
func (r *Replica) copy() {
	switch {
	case !r.copies() || r.there == nil || r.sent:
	case r.lacks(*r.there):
		step := r.offered()
		r.sent = true
		r.down(kintsugi.Snapshot{Step: step, Records: r.recordsOf(step)})
	case !r.there.told && (r.follows || r.there.step <= r.released):
		r.there.told = true
		r.down(kintsugi.Joined{})
		said, _ := r.link.Heard(kintsugi.Stable{Step: r.there.step, Decided: r.there.decided}, r.there.step, r.there.decided)
		r.say(said)
	}
}

// followedByCopy is Followed in a relaxed chain. What the one after has it need not be sent again.
func (r *Replica) followedByCopy(f kintsugi.Follow) {
	r.there, r.sent = &copied{whole: f.Whole, step: f.Applied, decided: f.Decided}, false
	r.say(r.link.Connected(f.Whole))
	if f.Whole {
		r.hasCopyOf(f.Applied, f.Decided)
	}
	r.copy()
}

// heardCopy handles the answer to a copy.
func (r *Replica) heardCopy(s kintsugi.Stable) {
	r.there, r.sent = &copied{whole: true, step: s.Step, decided: s.Decided}, false
	r.hasCopyOf(s.Step, s.Decided)
	r.copy()
}

// hasCopyOf says what waited for the one after to have a copy. Whether it has caught up is not said here: see copy.
func (r *Replica) hasCopyOf(step kintsugi.Step, decided kintsugi.Fence) {
	said, _ := r.link.Heard(kintsugi.Stable{Step: step, Decided: decided}, step+1, 0)
	r.say(said)
}

// takeCopy stands where a copy does that is here, and keeps the one before it.
func (r *Replica) takeCopy(m kintsugi.Snapshot) {
	has := r.hasCopy || !r.lacking
	var older []kintsugi.Commit
	switch {
	case has && m.Step > r.applied:
		r.released, older = r.applied, r.recordsOf(r.applied)
	case has && m.Step == r.applied && r.applied > r.released: // the step was decided anew
		older = r.recordsOf(r.released)
	default:
		r.released = m.Step
	}
	r.applied, r.records, r.hasCopy = m.Step, slices.Concat(older, m.Records), true
	r.say([]kintsugi.ReplicaMessage{kintsugi.Stable{Shard: r.id, Step: m.Step, Decided: r.decided()}})
	r.copy()
}

// FallBack returns the replica of the line that follows the loss of a head, or of head and next: r,
// which was none, waits for Adopt with its copies, or with the newest version of which it knows
// that it was released. r is not used afterwards.
func (r *Replica) FallBack(line kintsugi.Line, view kintsugi.ViewNumber) *Replica {
	next := r.Continue(line, view)
	if next.behind = false; !r.copies() {
		next.applied, next.records = r.released, r.recordsOf(r.released)
	}
	r = next
	next.standing, next.have = kintsugi.Lost, slices.Repeat([]kintsugi.Step{r.applied}, r.chunks)
	return next
}

// fellBack says which copy a line that begins at step begins with.
func (r *Replica) fellBack(step kintsugi.Step) {
	if !r.copies() || r.standing != kintsugi.Lost {
		return
	}
	came := r.applied
	if came > step {
		came = r.released
	}
	r.have = slices.Repeat([]kintsugi.Step{came}, r.chunks)
}
