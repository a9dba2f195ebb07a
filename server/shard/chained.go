package shard

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/chain"
)

// Place says where in its chain the replica is: follows, whether there is a replica before it, and
// after, whether there is one after it. It is called once, after Lose and before anything else.
// Without it, the replica is alone.
func (r *Replica) Place(follows, after bool) {
	r.follows, r.link = follows, chain.New(after)
	if r.standing != kintsugi.Settled || r.lacking {
		r.link = chain.Alone(after)
	}
}

// Lack makes r, which is new, wait for a snapshot: the line goes on, and r has come into it. A
// replica behind r has nothing either, and cannot follow r before r is whole. So r does not wait
// for its answers until then. Lack is called before Place.
func (r *Replica) Lack() { r.lacking = true }

// Whole reports whether r has everything that was released on its line or, where the next replica
// answers for those behind it, once had everything. A replica that is not whole must not become a
// head. A head that is Behind is not whole.
func (r *Replica) Whole() bool { return !r.lacking && (r.follows || !r.Behind()) }

// Settled reports whether the line has begun here.
func (r *Replica) Settled() bool { return r.standing == kintsugi.Settled }

// Follows reports whether r obeys a replica before it instead of the conductor.
func (r *Replica) Follows() bool { return r.follows }

// decided returns the fence under which the newest step that is applied here was decided.
func (r *Replica) decided() kintsugi.Fence { return r.decidedAt(r.applied) }

// decidedAt returns the fence under which a step was decided; 0: the step was not made on this
// line.
func (r *Replica) decidedAt(step kintsugi.Step) kintsugi.Fence {
	for _, c := range r.recordsOf(step) {
		return c.Decided
	}
	return 0
}

// Follow returns the first message of r to the replica before it. attempt is larger than in any
// earlier connection of this life of the server.
func (r *Replica) Follow(server kintsugi.ServerID, attempt uint64) kintsugi.Follow {
	return kintsugi.Follow{
		Line: r.line, View: r.view, Shard: r.id, Server: server,
		Whole: !r.lacking, Released: r.released, Applied: r.applied, Decided: r.decided(), Attempt: attempt,
	}
}

// Followable reports whether a replica can follow r now: the line has begun here, and r is whole.
func (r *Replica) Followable() bool { return r.Settled() && !r.lacking }

// Followed takes the first message of the replica after r. It returns what that replica must be
// sent before the messages in Ready.Down from now on. In a chain of copies, the snapshot that it
// needs is in Ready.Down. An error says why it cannot follow r now.
func (r *Replica) Followed(f kintsugi.Follow) ([]kintsugi.ChainMessage, error) {
	switch {
	case f.Line != r.line || f.View != r.view:
		return nil, fmt.Errorf("%w: a replica of view %d on line %d follows one of view %d on line %d", kintsugi.ErrStaleView, f.View, f.Line, r.view, r.line)
	case r.lacking:
		return nil, fmt.Errorf("%w: shard %d is not whole here yet", kintsugi.ErrStaleView, r.id)
	case !r.Settled():
		return nil, fmt.Errorf("%w: line %d has not begun here yet", kintsugi.ErrStaleView, r.line)
	case f.Attempt <= r.attempt:
		// The message came on a stream that broke. If r believed it, steps might be released
		// without a replica that has caught up since, and that others take for whole.
		return nil, fmt.Errorf("%w: server/%d has connected again since", kintsugi.ErrStaleView, f.Server)
	}
	r.attempt = f.Attempt
	if r.copies() {
		r.followedByCopy(f)
		return nil, nil
	}
	last := r.oneBehind(f)
	near := f.Whole && (f.Released == r.released || f.Released+1 == r.released && f.Applied == r.released && f.Decided == r.decidedAt(r.released))
	// A replica that may become a head is waited for, however far it is behind.
	r.say(r.link.Connected(near || r.next && f.Whole))
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

// Outpaced notes that the replica after r cannot be sent steps as fast as they are made, and that
// its connection is to end. When it connects again, steps wait for it while it catches up.
// Otherwise it never would: they would outpace it again.
func (r *Replica) Outpaced() {
	if !r.copies() {
		r.link.Wait()
	}
}

func (r *Replica) recordsOf(step kintsugi.Step) []kintsugi.Commit {
	for _, c := range r.records {
		if c.Step == step {
			return []kintsugi.Commit{c}
		}
	}
	return nil
}

// Waits reports whether the next message of the replica before has to wait until r has applied its
// open step. If that replica does not wait for r, as while r is catching up, it may say that a step
// is released before r has applied it.
func (r *Replica) Waits() bool { return r.follows && r.open != nil }

// Obey handles a message of the replica before. The sum of an Update, or the values of a Snapshot,
// are here and may be read from now on. Obey returns false if r cannot do what the message says; r
// must then connect again, to be sent what it lacks.
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

// passOn sends the replica after r the snapshot that r has jumped to, because r has not passed on
// the steps that it has skipped. A replica that comes into the chain has nothing, and nobody
// follows it yet. But where the next answers, a replica that was behind may be followed before it
// is sent what it lacks. The replica after says where it stands by its answer to Take.
func (r *Replica) passOn(m kintsugi.Snapshot) {
	r.down(m)
	if r.promised > 0 {
		r.down(kintsugi.Take{Line: r.line, View: r.view, Fence: r.promised})
	}
}

// Heard handles an answer of the replica after r.
func (r *Replica) Heard(m kintsugi.ReplicaMessage) {
	if s, ok := m.(kintsugi.Stable); ok {
		if r.copies() {
			r.heardCopy(s)
			return
		}
		r.link.Follows(s.Step, r.applied)
	}
	r.heard(r.link.Heard(m, r.applied, r.decided()))
}

// heard gives the answers that may be given now, after it has told the replica after r that it has
// caught up.
func (r *Replica) heard(said []kintsugi.ReplicaMessage, joined bool) {
	if joined {
		r.down(kintsugi.Joined{})
	}
	r.say(said)
}
