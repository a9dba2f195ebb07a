package sim

import (
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

// The chain of a shard under virtual time, as in package server: a replica connects to the one
// before it, reports its state, and obeys.

// followAgain is the pause between two attempts to reach the replica before.
const followAgain = 10 * time.Millisecond

// followCall opens a replica's connection to the one before it.
type followCall struct{ first kintsugi.Follow }

// handed is a message down the chain with its data.
type handed struct {
	from    *replica
	message kintsugi.ChainMessage
	values  []uint64 // of a snapshot, or the sums of an update; by chunk
}

// follow connects a replica to the one before it, again and again, as long as the view lasts.
func (r *replica) follow() {
	if r.t.over || r.at == 0 {
		return
	}
	before := r.c.lives[r.t.view.Servers[r.chain[r.at-1]].Incarnation]
	var e *end
	s := r.t.server
	s.attempts++
	e = r.c.open(s.proc, before.proc, followCall{r.core.Follow(s.member.Server, s.attempts)}, func(m any) {
		r.obey(e, m.(handed))
	}, func(error) {
		if r.before == e {
			r.before = nil
		}
		r.c.after(r.t.server.proc, followAgain, r.follow)
	})
	r.before = e
}

// obey executes a message of the replica before.
func (r *replica) obey(e *end, m handed) {
	if r.t.over && r.c.cfg.plant != forgottenChain {
		return
	}
	if r.core.Waits() {
		r.later = append(r.later, func() {
			if r.before == e {
				r.obey(e, m)
			}
		})
		return
	}
	if r.c.cfg.plant == forgottenChain {
		m.message = withPromise(m.message, r)
	}
	switch x := m.message.(type) {
	case kintsugi.Snapshot:
		v := r.versions.take(x.Step)
		copy(v.values, m.values)
		if r.c.cfg.Copies > 0 {
			r.versions.copied(v)
			r.released, r.reached = r.versions.current.step, x.Step
			r.c.say("%s: shard %d has a copy of step %d", r.t.server.name, r.id, x.Step)
			break
		}
		r.versions.install(v)
		r.released, r.reached, r.newest = x.Step, x.Step, nil
		r.c.say("%s: shard %d takes over step %d", r.t.server.name, r.id, x.Step)
		r.c.wants(releasedStays, r.t.view.Line, x.Step, r.chunks, v.values, "taking over")
		r.c.tookOver(r, m.from)
	case kintsugi.Update:
		r.given = m.values
		r.rollBack(x.Commit)
	case kintsugi.Commit:
		if r.c.cfg.plant == updatedTwice && x.Step == r.reached && !r.applying && r.versions.next != nil {
			for i := range r.versions.next.values {
				r.versions.next.values[i] = stepFrom(r.versions.next.values[i], &x, r.sum[i])
			}
		}
	case kintsugi.Joined:
		r.c.say("%s: shard %d has caught up", r.t.server.name, r.id)
	case kintsugi.Take:
		r.promised = max(r.promised, x.Fence)
	}
	was := r.core.CaughtUp()
	obeyed := r.core.Obey(m.message)
	if _, ok := m.message.(kintsugi.Joined); ok && obeyed && !was {
		r.t.server.caughtUp()
	}
	ready := r.core.Ready()
	r.c.checkChain(r, m, ready)
	r.carryOut(ready)
	if !obeyed && r.before == e {
		e.hear = func(any) {} // the reader of this message is about to end the stream; until then it ignores others
		r.c.after(r.t.server.proc, r.c.between(0, 2*time.Millisecond), func() {
			if r.before == e {
				r.before = nil
			}
			e.close(errCut)
			r.c.after(r.t.server.proc, followAgain, r.follow)
		})
	}
}

// rollBack notes that a step is decided anew, which voids what was applied of it.
func (r *replica) rollBack(c kintsugi.Commit) {
	if !r.c.cfg.chains() {
		return
	}
	if r.reached == c.Step && r.released+1 == c.Step && r.newest != nil && c.Decided > r.newest.Decided {
		r.newest, r.reached = nil, r.released
	}
	if p := r.pending; p != nil && p.Step == c.Step && c.Decided > p.Decided {
		r.pending = nil
	}
}

// followed serves the replica after this one.
func (r *replica) followed(e *end, f kintsugi.Follow) {
	if r.at+1 >= len(r.chain) || r.chain[r.at+1] != f.Server {
		e.close(errOver)
		return
	}
	plan, err := r.core.Followed(f)
	if err != nil {
		e.close(err)
		return
	}
	if r.after != nil {
		r.after.close(errTaken)
	}
	r.after = e
	e.hear = func(m any) {
		if r.after == e {
			r.core.Heard(m.(kintsugi.ReplicaMessage))
			r.perform()
		}
	}
	e.broke = func(error) {
		if r.after == e {
			r.after = nil
		}
	}
	for _, m := range plan {
		if _, ok := m.(kintsugi.Update); ok && r.sum == nil {
			continue // it catches up when that step is released or decided anew
		}
		r.hand(m)
	}
	r.perform()
	e.pump()
}

// hand sends a message to the replica after this one.
func (r *replica) hand(m kintsugi.ChainMessage) {
	if r.after == nil {
		return
	}
	h := handed{from: r, message: m}
	switch m := m.(type) {
	case kintsugi.Snapshot:
		h.values = slices.Clone(r.versions.at(m.Step).values)
	case kintsugi.Update:
		h.values = r.sum
		if s := r.sent; s.to == r.after && s.commit.Step == m.Commit.Step && s.commit.Decided == m.Commit.Decided {
			if s.commit.Fence == m.Commit.Fence {
				return
			}
			h.message, h.values = m.Commit, nil
		}
	}
	r.after.send(h)
}

// ahead sends the sum of a step down the chain while the step is applied, in every other step.
func (r *replica) ahead(c kintsugi.Commit, sum func() []uint64) {
	if r.after == nil || r.c.cfg.Copies > 0 || c.Fence != r.core.Promised() || (r.c.cfg.Seed+uint64(c.Step))%2 == 0 {
		return
	}
	r.sent.to, r.sent.commit = r.after, c
	r.after.send(handed{from: r, message: kintsugi.Update{Commit: c}, values: sum()})
}

// withPromise returns a message with the view of r and the fence that r has promised.
func withPromise(m kintsugi.ChainMessage, r *replica) kintsugi.ChainMessage {
	switch m := m.(type) {
	case kintsugi.Take:
		m.View, m.Fence = r.t.view.Number, max(m.Fence, r.promised)
		return m
	case kintsugi.Update:
		m.Commit.Fence = r.promised
		return m
	case kintsugi.Commit:
		m.Fence = r.promised
		return m
	case kintsugi.Released:
		m.Fence = r.promised
		return m
	}
	return m
}

// awaits reports whether there is a replica after this one.
func (r *replica) awaits() bool {
	return r.at+1 < len(r.chain) && r.c.cfg.plant != answersAlone
}

// lackingReplica returns a replica that is new on a line and has nothing yet.
func lackingReplica(t *tenure, id kintsugi.ShardID) *replica {
	r := emptyReplica(t, id, 0, true)
	if r.c.cfg.plant == halfWhole {
		r.versions.publish(r.versions.take(0))
		r.core.Obey(kintsugi.Joined{})
	}
	return r
}

// caughtUp tells the registry when every replica of the server is whole.
func (s *serverLife) caughtUp() {
	if s.tenure == nil || s.tenure.view.Newest(s.member.Server) == 0 {
		return
	}
	for _, r := range s.tenure.replicas {
		if r != nil && !r.core.CaughtUp() {
			return
		}
	}
	if home := s.tenure.replicas[s.member.Server]; s.tenure.view.Replicas > 1 || home != nil && home.at > 0 {
		s.c.outside[s.member.Server] = outside{}
	}
	since := s.tenure.view.Newest(s.member.Server)
	s.c.registry.call(s.proc, func() error {
		s.whole = since
		if p := &s.c.registry.places[s.member.Server]; p.life == s && p.whole != since {
			p.whole = since
			s.c.registry.changed()
		}
		return nil
	}, func(err error) {
		if err != nil {
			s.c.after(s.proc, redialAfter, s.caughtUp)
		}
	})
}

// pulse tells the coordinator that a server seems dead, or is alive after all: soon, late or never.
func (c *Cluster) pulse(s *serverLife, alive bool) {
	if !c.cfg.pulses() || !alive && c.chance(0.2) {
		return
	}
	s.felt = max(s.felt, c.now+c.between(0, 300*time.Millisecond)) // messages do not overtake one another
	for _, o := range slices.Concat(c.rivals, []*overseer{c.coordinator}) {
		c.at(o.proc, s.felt, func() { o.felt(s, alive) })
	}
}

// felt tells the core that the pulse of a server has changed.
func (o *overseer) felt(s *serverLife, alive bool) {
	i := s.member.Server
	if !o.leads || o.present[i].Since == 0 || o.present[i].Member != s.member {
		return
	}
	if s.doubted = !alive; alive {
		delete(o.silent, i)
		o.state.Handle(o.c.wall(), o.present[i])
	} else {
		o.c.say("%s takes %s for dead", o.name, s.name)
		o.silent[i] = s.member.Incarnation
		o.state.Handle(o.c.wall(), roster.Died{Server: i, Incarnation: s.member.Incarnation})
	}
	o.decide()
}
