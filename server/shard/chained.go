package shard

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/chain"
)

// Place says where in its chain the replica is: whether it follows one before it, and whether one comes after it. It is
// called once, after Lose and before anything else. Without it the replica is alone.
func (r *Replica) Place(follows, after bool) {
	r.follows, r.link = follows, chain.New(after)
	if r.standing != kintsugi.Settled || r.lacking {
		r.link = chain.Alone(after)
	}
}

// Lack makes r, which is new, wait for a snapshot: the line goes on, and r was not there. Nor can
// anybody behind it have anything, or follow it before it is whole: it answers for itself until
// then. It is called before Place.
func (r *Replica) Lack() { r.lacking = true }

// Whole reports whether r has everything that was released on its line, or where the next answers
// for those behind it, once had. One that is not whole must not become a head, and a head that is
// Behind is not.
func (r *Replica) Whole() bool { return !r.lacking && (r.follows || !r.Behind()) }

// Settled reports whether the line has begun here.
func (r *Replica) Settled() bool { return r.standing == kintsugi.Settled }

// Follows reports whether r obeys a replica before it and not the conductor.
func (r *Replica) Follows() bool { return r.follows }

// decided returns the fence of the decision of the newest step that is applied here.
func (r *Replica) decided() kintsugi.Fence { return r.decidedAt(r.applied) }

// decidedAt returns the fence of the decision of a step; 0: it was not made on this line.
func (r *Replica) decidedAt(step kintsugi.Step) kintsugi.Fence {
	for _, c := range r.recordsOf(step) {
		return c.Decided
	}
	return 0
}

// Follow returns what r says first to the one before it. attempt is larger than that of any
// connection before of this life of the server.
func (r *Replica) Follow(server kintsugi.ServerID, attempt uint64) kintsugi.Follow {
	return kintsugi.Follow{
		Line: r.line, View: r.view, Shard: r.id, Server: server,
		Whole: !r.lacking, Released: r.released, Applied: r.applied, Decided: r.decided(), Attempt: attempt,
	}
}

// Followable reports whether the one after can follow r now: the line has begun here, and r is whole.
func (r *Replica) Followable() bool { return r.Settled() && !r.lacking }

// Followed takes the first word of the one after, and returns what it is to be sent before what
// Ready.Down says from now on; the snapshot that it needs in a chain of copies is in Ready.Down. An
// error says why it cannot be followed now.
func (r *Replica) Followed(f kintsugi.Follow) ([]kintsugi.ChainMessage, error) {
	switch {
	case f.Line != r.line || f.View != r.view:
		return nil, fmt.Errorf("%w: a replica of view %d on line %d follows one of view %d on line %d", kintsugi.ErrStaleView, f.View, f.Line, r.view, r.line)
	case r.lacking:
		return nil, fmt.Errorf("%w: shard %d is not whole here yet", kintsugi.ErrStaleView, r.id)
	case !r.Settled():
		return nil, fmt.Errorf("%w: line %d has not begun here yet", kintsugi.ErrStaleView, r.line)
	case f.Attempt <= r.attempt:
		// It was said on a stream that broke. Were it believed, steps might be released without a
		// replica that has caught up since, and that others take for whole.
		return nil, fmt.Errorf("%w: server/%d has connected again since", kintsugi.ErrStaleView, f.Server)
	}
	r.attempt = f.Attempt
	if r.copies() {
		r.followedByCopy(f)
		return nil, nil
	}
	last := r.oneBehind(f)
	near := f.Whole && (f.Released == r.released || f.Released+1 == r.released && f.Applied == r.released && f.Decided == r.decidedAt(r.released))
	r.say(r.link.Connected(near || r.next && f.Whole)) // who may be a head some day is waited for, however far it is behind
	var send []kintsugi.ChainMessage
	if !near && !last {
		send = append(send, kintsugi.Snapshot{Step: r.released, Records: r.recordsOf(r.released)})
	}
	if r.promised > 0 {
		send = append(send, kintsugi.Take{Line: r.line, View: r.view, Fence: r.promised})
	}
	switch {
	case last:
		send = append(send, r.lastStep(f)...)
	case near && f.Released < r.released:
		send = append(send, kintsugi.Released{Line: r.line, Fence: r.promised, Step: r.released})
	}
	if r.applied > r.released {
		c := r.records[len(r.records)-1]
		c.Fence = r.promised
		if near && f.Applied == c.Step && f.Decided == c.Decided {
			send = append(send, c)
		} else {
			send = append(send, kintsugi.Update{Commit: c})
		}
	}
	return send, nil
}

func (r *Replica) recordsOf(step kintsugi.Step) []kintsugi.Commit {
	for _, c := range r.records {
		if c.Step == step {
			return []kintsugi.Commit{c}
		}
	}
	return nil
}

// Waits reports whether what the one before says next has to wait until r has applied the step that
// it is at. A replica that is not waited for, as one that is catching up, is told that a step is
// released as soon as others have it.
func (r *Replica) Waits() bool { return r.follows && r.open != nil }

// Obey handles a message of the one before: of an Update its sum is here, of a Snapshot its values
// are, and may be read from now on. False means that r cannot do what it says, and has to connect
// again to be sent what it lacks.
func (r *Replica) Obey(msg kintsugi.ChainMessage) bool {
	switch m := msg.(type) {
	case kintsugi.Snapshot:
		if r.copies() {
			r.takeCopy(m)
			return true
		}
		r.released, r.applied, r.records, r.open = m.Step, m.Step, m.Records, nil
		r.passOn(m)
		return true
	case kintsugi.Joined:
		r.lacking = false
		if r.at == 1 {
			r.behind = false
		}
		if r.copies() {
			r.released = r.applied
			r.copy()
		}
		return true
	case kintsugi.Take:
		return r.take(m)
	case kintsugi.Update:
		return r.Handle(m.Commit)
	case kintsugi.Commit:
		here := r.open != nil && r.open.Decided == m.Decided || r.applied == m.Step && r.decided() == m.Decided
		return here && r.Handle(m)
	case kintsugi.Released:
		return r.Handle(m) && r.released >= m.Step
	}
	panic(fmt.Sprintf("shard: unknown chain message %T", msg))
}

// passOn sends the one after the snapshot that r has jumped to: steps that r has not taken it has
// not handed down. Nobody follows one that comes in and has nothing yet, but where the next
// answers, one that was behind may be followed before it is sent what it lacks. The one after says
// by its answer to Take where it stands.
func (r *Replica) passOn(m kintsugi.Snapshot) {
	r.down(m)
	if r.promised > 0 {
		r.down(kintsugi.Take{Line: r.line, View: r.view, Fence: r.promised})
	}
}

// Heard handles an answer of the one after.
func (r *Replica) Heard(m kintsugi.ReplicaMessage) {
	if s, ok := m.(kintsugi.Stable); ok && r.copies() {
		r.heardCopy(s)
		return
	}
	r.heard(r.link.Heard(m, r.applied, r.decided()))
}

// heard says what may be said now, once the one after has been told that it has caught up.
func (r *Replica) heard(said []kintsugi.ReplicaMessage, joined bool) {
	if joined {
		r.down(kintsugi.Joined{})
	}
	r.say(said)
}
