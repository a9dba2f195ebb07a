package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

var errNoCopy = errors.New("the view relies on a copy that is not here")

var errOver = fmt.Errorf("%w: the view is over", kintsugi.ErrStaleView)

// The first message of a stream, which says what the stream is for.
type (
	controlCall struct{ shard kintsugi.ShardID }
	listenCall  struct{ shard kintsugi.ShardID }
	pushCall    struct{ shard kintsugi.ShardID }
	readCall    struct{ shard kintsugi.ShardID }
	workCall    struct{}
)

// serverLife is one life of a server's process: the shell of package server under virtual time.
type serverLife struct {
	*proc
	c       *Cluster
	member  kintsugi.Member
	holds   kintsugi.Line // line of the state that it has found outside its process
	tenure  *tenure
	left    *tenure        // the last tenure, while there is no current one
	queued  *kintsugi.View // the newest known view, which is not entered yet
	seen    kintsugi.ViewNumber
	whole   kintsugi.ViewNumber // the view that took it in and in which it has caught up
	busy    bool                // it is entering a view
	felt    time.Duration       // when the coordinator last heard its pulse
	doubted bool                // the coordinator has taken this life for dead

	attempts uint64 // number of attempts of its replicas to follow another one
	waiting  []call

	leaving, holding bool // see place
	apart            []kintsugi.Life
}

// call is a stream that waits for a view.
type call struct {
	e     *end
	first any
}

// tenure is what a server holds in one view.
type tenure struct {
	server    *serverLife
	view      *kintsugi.View
	replicas  []*replica // by shard; nil: not on this server
	conductor *conducting
	streams   []*end
	over      bool
}

func (c *Cluster) startServer(id int) {
	c.incarnation++
	m := kintsugi.Member{Server: kintsugi.ServerID(id), Incarnation: c.incarnation, Address: fmt.Sprintf("life-%d", c.incarnation)}
	s := &serverLife{proc: c.newProc(fmt.Sprintf("server/%d@%d", id, c.incarnation)), c: c, member: m}
	s.accept, s.holds = s.take, c.holds(m.Server)
	c.servers[id] = s
	c.lives[c.incarnation] = s
	c.say("%s starts", s.name)
	s.stayRegistered()
	c.registry.observe(s.proc, s.look)
}

// stayRegistered keeps the server's lease, and ends the process if a later life has taken its
// place.
func (s *serverLife) stayRegistered() {
	s.c.registry.call(s.proc, func() error { return s.c.registry.register(s) }, func(err error) {
		if errors.Is(err, kintsugi.ErrFenced) {
			s.c.kill(s.proc, "a later life has its place")
			return
		}
		s.c.after(s.proc, leaseTime/3, s.stayRegistered)
	})
}

// look reacts to a new view.
func (s *serverLife) look() {
	v := s.c.registry.view
	if s.heed(); s.dead || v == nil || v.Number <= s.seen {
		return
	}
	s.seen, s.queued = v.Number, v
	s.enter()
}

// enter leaves the current view and takes the shards that the queued view assigns to this server.
func (s *serverLife) enter() {
	if s.busy || s.queued == nil {
		return
	}
	v := s.queued
	s.queued = nil
	s.leave()
	if v.Servers[s.member.Server].Incarnation != s.member.Incarnation {
		return // the view names an earlier life: the coordinator will make another one
	}
	if !slices.Contains(slices.Concat(v.Chains...), s.member.Server) {
		s.left = nil
		s.goes("the view goes on without it")
		return
	}
	s.busy = true
	took := s.c.store.took()
	if s.left != nil && s.left.view.Line == v.Line {
		took = 0 // nothing is loaded
	}
	s.c.after(s.proc, took, func() {
		t := &tenure{server: s, view: v, replicas: make([]*replica, len(v.Chains))}
		for i := range v.Chains {
			at := slices.Index(v.Chains[i], s.member.Server)
			if at < 0 {
				continue
			}
			r, err := t.hold(kintsugi.ShardID(i), at)
			if err != nil {
				s.c.kill(s.proc, "it cannot load its shard: "+err.Error())
				return
			}
			t.replicas[i] = r
			if at == 0 && !r.core.Whole() {
				s.c.kill(s.proc, "it is not whole and must be a head")
				return
			}
		}
		if v.Conductor != s.member.Server {
			s.serve(t)
			return
		}
		s.c.conductorFence(s.proc, v, func(fence kintsugi.Fence, err error) {
			switch {
			case err == nil:
				t.conductor = newConducting(s.c, s.proc, v, fence)
			case !errors.Is(err, errOtherView): // otherwise the next view follows, and nobody conducts this one
				s.c.kill(s.proc, "it gets no fence: "+err.Error())
				return
			}
			s.serve(t)
		})
	})
}

// hold returns the replica of a shard: the one of the last view, if the line continues with it, and
// otherwise a newly loaded one.
func (t *tenure) hold(id kintsugi.ShardID, at int) (*replica, error) {
	s, v := t.server, t.view
	chunks := s.c.shards[id]
	since, lost := v.Since(id, s.member.Server), slices.Contains(v.Lost, id)
	if left := s.left; left != nil && left.replicas[id] != nil {
		old, line := left.replicas[id], left.view.Line
		switch {
		case v.Continues && line == v.Line && left.view.Number >= since:
			return wentOn(t, old, at), nil
		case v.Keeps != 0 && v.Keeps <= line && line < v.Line && at == 0 && (s.c.cfg.Copies > 0 || s.c.cfg.NextAnswers && lost) && old.at > 0 && old.core.Whole():
			return fallenBack(t, old), nil
		case v.Keeps != 0 && v.Keeps <= line && line < v.Line && at == 0 && (!lost || s.c.cfg.Copies > 0 || s.c.cfg.NextAnswers) && old.core.Whole():
			return continued(t, old), nil
		}
	}
	switch {
	case since != 0 && at > 0:
		return lackingReplica(t, id), nil
	case (s.c.cfg.Copies > 0 || s.c.cfg.NextAnswers) && v.Keeps != 0 && at == 0:
		return nil, errNoCopy
	case lost && at == 0 && !(v.Continues && t.hasOutside(id) && s.c.holds(s.member.Server) == v.Line):
		values, saved, err := s.c.store.readRunning(v, chunks)
		if err != nil {
			return nil, err
		}
		return lostReplica(t, id, values, saved), nil
	case v.Keeps == 0 && (!v.Continues || since == 0 && !t.hasOutside(id)):
		values, step, err := s.c.store.read(v, chunks)
		if err != nil {
			return nil, err
		}
		return newReplica(t, id, values, step), nil
	}
	return foundReplica(t, id)
}

// takeFence requests a fence that is larger than all before.
func (c *Cluster) takeFence(p *proc, v *kintsugi.View, then func(kintsugi.Fence, error)) {
	var fence kintsugi.Fence
	c.registry.call(p, func() error { fence = c.registry.nextFence(v.Fence); return nil }, func(err error) { then(fence, err) })
}

// conductorFence requests a fence, which is given only while v is the view that counts.
func (c *Cluster) conductorFence(p *proc, v *kintsugi.View, then func(kintsugi.Fence, error)) {
	var fence kintsugi.Fence
	take := func() error {
		if c.registry.view.Number != v.Number {
			return errOtherView
		}
		fence = c.registry.nextFence(v.Fence)
		return nil
	}
	c.after(p, c.registry.lag(), func() {
		c.registry.call(p, take, func(err error) { then(fence, err) })
	})
}

// serve begins a tenure and accepts the streams that have waited for it.
func (s *serverLife) serve(t *tenure) {
	s.busy, s.tenure, s.left = false, t, nil
	s.c.say("%s serves view %d: line %d from step %d", s.name, t.view.Number, t.view.Line, t.view.RestoreStep)
	for _, r := range t.replicas {
		if r != nil {
			r.follow()
		}
	}
	if s.whole != t.view.Newest(s.member.Server) {
		s.caughtUp() // it may have caught up in the last view, which was over before it could say so
	}
	if t.conductor != nil {
		t.conductor.run()
	}
	s.heed()
	waiting := s.waiting
	s.waiting = nil
	for _, x := range waiting {
		s.take(x.e, x.first)
	}
	s.enter()
}

// leave ends the tenure and everything in it.
func (s *serverLife) leave() {
	t := s.tenure
	if t == nil {
		return
	}
	s.tenure, s.left, t.over = nil, t, true
	if t.conductor != nil {
		t.conductor.stop()
	}
	for _, r := range t.replicas {
		if r != nil && r.before != nil && s.c.cfg.plant != forgottenChain {
			r.before.close(errOver)
		}
	}
	for _, e := range t.streams {
		e.close(errOver)
	}
}

// take serves a stream as soon as there is a view.
func (s *serverLife) take(e *end, first any) {
	t := s.tenure
	f, follows := first.(followCall)
	if t == nil || follows && f.first.View > t.view.Number {
		s.waiting = append(s.waiting, call{e, first})
		return
	}
	t.track(e)
	if _, ok := first.(workCall); ok {
		if t.conductor == nil {
			e.close(errOver)
			return
		}
		t.conductor.welcome(e)
		return
	}
	if follows {
		if r := t.replicas[f.first.Shard]; r != nil && f.first.View == t.view.Number {
			r.followed(e, f.first)
		} else {
			e.close(errOver)
		}
		return
	}
	r := t.replica(first)
	if _, ok := first.(listenCall); ok {
		if r == nil || r.at == 0 {
			e.close(errOver)
			return
		}
		e.hear = func(any) {}
		r.hearing = append(r.hearing, e)
		e.pump()
		return
	}
	if r == nil || r.at > 0 {
		e.close(errOver)
		return
	}
	switch first.(type) {
	case controlCall:
		e.hear = func(m any) { r.control(e, m.(sealed)) }
	case pushCall:
		in := &landing{r: r, e: e}
		e.hear = func(m any) { in.land(m.(*frame)) }
	case readCall:
		e.hear = func(m any) { r.answer(e, m.(readRequest)) }
	}
	e.pump()
}

// track registers an open stream, so that it ends with the tenure.
func (t *tenure) track(e *end) {
	if len(t.streams) == cap(t.streams) {
		open := t.streams[:0]
		for _, x := range t.streams {
			if !x.closed {
				open = append(open, x)
			}
		}
		t.streams = open
	}
	t.streams = append(t.streams, e)
}

func (t *tenure) replica(first any) *replica {
	id := kintsugi.ShardID(0)
	switch x := first.(type) {
	case controlCall:
		id = x.shard
	case listenCall:
		id = x.shard
	case pushCall:
		id = x.shard
	case readCall:
		id = x.shard
	}
	if int(id) >= len(t.replicas) {
		return nil
	}
	return t.replicas[id]
}
