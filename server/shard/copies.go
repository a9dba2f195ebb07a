package shard

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// The chain of a shard may be relaxed, as in Training Through Failure (Cao, Luo, Gan and Jinesh,
// 2024). Replicas that are not heads then apply no updates. They get a copy of the shard every so
// many steps, and each answers as soon as it has the copy itself, without waiting for those behind
// it.
//
// A step whose version is to be copied is stable only when the replica after has the copy. So it is
// copied before it is released. If it were copied afterwards, a head could die in between, and one
// more released step would be lost than the bound says. Therefore the replica after the head keeps
// two copies: the newest, whose step may never be released, and the one before it. When the head
// dies, a line begins where the heads of the other shards stand, with the newest copy that is not
// beyond that step.
//
// If a step was not released, a copy of it may be of a decision that was replaced, and the replica
// that has it cannot tell. So the replica with the newest copy is told, by Joined, when the step of
// that copy is released. Before that, a replica that was not whole yet does not become whole, and
// it passes on only the copy before. Replicas further behind the head always get versions that are
// released.
//
// The fence stays with the head. A head that is removed begins no line, and the shard's next head
// is on another line. A removed head that does not know it yet gets as far as the next copy, which
// nobody takes.

// copied says what the replica after has, on the present connection.
type copied struct {
	whole   bool // it has a copy
	step    kintsugi.Step
	decided kintsugi.Fence
	told    bool // that it has caught up
}

// CopyEvery relaxes the chain of r, which is new: those behind get a copy every so many steps, at
// least 1. It is called before anything else.
func (r *Replica) CopyEvery(steps kintsugi.Step) { r.every = steps }

// copies reports whether the chain is relaxed.
func (r *Replica) copies() bool { return r.every > 0 }

// waitsForCopy reports whether an answer may be given only when the replica after has a copy. That
// is so if it says that a version is stable which is to be copied.
func (r *Replica) waitsForCopy(m kintsugi.ReplicaMessage) bool {
	s, ok := m.(kintsugi.Stable)
	return ok && s.Step%r.every == 0
}

// ofCopies reports whether a message belongs to a relaxed chain.
func ofCopies(m kintsugi.ChainMessage) bool {
	switch m.(type) {
	case kintsugi.Snapshot, kintsugi.Joined:
		return true
	}
	return false
}

// due returns the oldest version that the replica after may have. A replica that is not the head
// passes on the newest version that it knows to be released.
func (r *Replica) due() kintsugi.Step {
	if r.follows {
		return r.released
	}
	return r.applied - r.applied%r.every
}

// lacks reports whether the replica after must be sent a copy, because its copy is too old, or of
// an earlier decision about the version that is due.
func (r *Replica) lacks(has copied) bool {
	decided := r.dueBy
	if r.follows {
		decided = r.decidedAt(r.released)
	}
	return !has.whole || has.step < r.due() || has.step == r.due() && has.decided != decided
}

// offered returns the version that the replica after is sent. A version that is applied and not
// released is sent only if it is due.
func (r *Replica) offered() kintsugi.Step {
	if r.due() == r.applied {
		return r.applied
	}
	return r.released
}

// copy sends the replica after a copy if it needs one and none is on its way. It waits for the
// answer, so that a slow replica keeps at most one version pinned here. A replica that needs no
// copy is told so once its version is released.
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

// followedByCopy is Followed in a relaxed chain. It does not send a copy that the replica after
// has.
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

// hasCopyOf gives the answers that waited for the replica after to have a copy. It does not say
// that that replica has caught up: see copy.
func (r *Replica) hasCopyOf(step kintsugi.Step, decided kintsugi.Fence) {
	said, _ := r.link.Heard(kintsugi.Stable{Step: step, Decided: decided}, step+1, 0)
	r.say(said)
}

// takeCopy moves r to the version of a copy that has arrived, and keeps the copy before it.
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

// FallBack returns the replica of the line that follows the loss of a head, or of head and next. r
// was no head. The result waits for Adopt with the copies of r or, without copies, with the newest
// version that r knows to be released. r is not used afterwards.
func (r *Replica) FallBack(line kintsugi.Line, view kintsugi.ViewNumber) *Replica {
	next := r.Continue(line, view)
	if next.behind = false; !r.copies() {
		next.applied, next.records = r.released, r.recordsOf(r.released)
	}
	r = next
	next.standing, next.have = kintsugi.Lost, slices.Repeat([]kintsugi.Step{r.applied}, r.chunks)
	return next
}

// fellBack notes which copy a line that begins at step begins with.
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
