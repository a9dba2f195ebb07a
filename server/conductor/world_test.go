package conductor_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// tester has the methods that the world needs of *testing.T and of *rapid.T.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// world couples conductor cores with shard cores as the shells do: with queues that keep their
// order, streams that break, and a kernel that makes strings. It checks the promises of both after
// every event.
type world struct {
	t       tester
	cfg     conductor.Config
	now     time.Time
	replica []*replica
	seats   []*seat
	wires   []*wire
	untrue  map[kintsugi.PushID]bool            // pushes whose tickets a story has sent although some shard lacks them
	agreed  int                                 // number of steps that were compared on all shards
	told    map[kintsugi.Step][]kintsugi.PushID // what step events have reported
	say     func(format string, args ...any)
}

// seat is a conductor and its streams.
type seat struct {
	*conductor.Conductor
	links      []*link // by shard; nil: broken
	publishing []conductor.Publication
	clocks     clocks
	told       kintsugi.Step // newest released step of its events
	done       *kintsugi.Done
}

// link is a control stream.
type link struct {
	seat      *seat
	shard     int
	down      []kintsugi.ControlMessage
	up        []kintsugi.ReplicaMessage
	downWaits bool // a script holds messages to the shard back
	upWaits   bool
}

// wire is a worker's stream to a conductor.
type wire struct {
	seat        *seat
	slot        kintsugi.Slot
	incarnation kintsugi.Incarnation
	up          []kintsugi.WorkerMessage
	down        []kintsugi.ConductorMessage
	refused     error // the answer to hello
	cut         bool  // the worker's end is closed
	over        bool  // and the conductor knows it
}

// replica is a shard's core, with what its shell holds. A version is the list of steps that led to
// it.
type replica struct {
	world    *world
	core     *shard.Replica
	id       int
	empty    bool
	answers  *link // the newest stream that took the replica
	promised kintsugi.Fence
	held     map[kintsugi.PushID]bool // true: complete
	applying *kintsugi.Commit
	applied  *kintsugi.Commit  // not released yet
	steps    []kintsugi.Commit // released
	saving   []kintsugi.Step
	slow     bool // a script holds the kernel back
	slowSave bool
}

func newWorld(t tester, cfg conductor.Config, chunks []int) *world {
	w := &world{t: t, cfg: cfg, now: time.Unix(1000, 0), told: make(map[kintsugi.Step][]kintsugi.PushID), untrue: make(map[kintsugi.PushID]bool), say: func(string, ...any) {}}
	for i, n := range chunks {
		w.replica = append(w.replica, &replica{
			world: w, id: i, empty: n == 0, held: make(map[kintsugi.PushID]bool),
			core: shard.New(kintsugi.ShardID(i), n, cfg.Line, cfg.View, 0),
		})
	}
	for _, r := range w.replica {
		r.core.Hold(cfg.Consistency.Held())
	}
	return w
}

// newConductor adds a conductor under a fence and opens its control streams to the given shards.
func (w *world) newConductor(fence kintsugi.Fence) *seat {
	w.t.Helper()
	cfg := w.cfg
	cfg.Fence, cfg.Shards = fence, len(w.replica)
	core, err := conductor.New(cfg, w.now)
	if err != nil {
		w.t.Fatalf("new conductor: %v", err)
	}
	s := &seat{Conductor: core, links: make([]*link, len(w.replica)), clocks: clocks{members: make(map[kintsugi.Slot]*clock)}}
	w.seats = append(w.seats, s)
	return s
}

// open opens a control stream.
func (w *world) open(s *seat, i int) {
	s.links[i] = &link{seat: s, shard: i}
	s.ShardConnected(kintsugi.ShardID(i))
	w.perform(s)
}

// cut breaks a control stream. Messages on the way in either direction are lost.
func (w *world) cut(s *seat, i int) {
	l := s.links[i]
	for _, m := range l.down {
		w.say("lost on the way to shard %d: %s", i, describe(m))
	}
	for _, m := range l.up {
		w.say("lost on the way to conductor %d: shard %d, %s", s.Fence(), i, describe(m))
	}
	s.links[i] = nil
	if w.replica[i].answers == l {
		w.replica[i].answers = nil
	}
}

// perform carries out what a conductor's Ready says.
func (w *world) perform(s *seat) {
	w.t.Helper()
	ready := s.Ready()
	for _, m := range ready.ToShards {
		if c, ok := m.Message.(kintsugi.Commit); ok {
			w.checkCommit(s, int(m.Shard), c)
		}
		if l := s.links[m.Shard]; l != nil {
			l.down = append(l.down, m.Message)
		}
	}
	for _, m := range ready.ToWorkers {
		s.clocks.sent(w, s, m.Message, m.Slot, m.Incarnation)
		if x := w.wire(s, m.Slot); x != nil && x.incarnation == m.Incarnation && !x.cut {
			x.down = append(x.down, m.Message)
		}
	}
	for _, o := range ready.StartOver {
		w.say("conductor %d ends the stream of worker/%d: %s", s.Fence(), o.Slot, o.Reason)
		if x := w.wire(s, o.Slot); x != nil && x.incarnation == o.Incarnation {
			w.hangUp(x)
		}
	}
	for _, m := range ready.ToShards { // a decision depends on who is admitted
		if c, ok := m.Message.(kintsugi.Commit); ok && c.Decided == s.Fence() {
			s.clocks.decided = true
		}
	}
	for _, e := range ready.Events {
		switch e := e.(type) {
		case kintsugi.StepEvent:
			if e.Step <= s.told || s.done != nil {
				w.t.Fatalf("conductor %d tells of step %d after step %d", s.Fence(), e.Step, s.told)
			}
			s.told = e.Step
			if before, ok := w.told[e.Step]; ok && !slices.Equal(before, e.Counted) {
				w.t.Fatalf("conductor %d says that step %d counts %v, one before it said %v", s.Fence(), e.Step, e.Counted, before)
			}
			w.told[e.Step] = e.Counted
		case kintsugi.Done:
			if s.done != nil {
				w.t.Fatalf("conductor %d says done twice", s.Fence())
			}
			s.done = &e
		}
		w.say("conductor %d: %s", s.Fence(), describe(e))
	}
	s.publishing = append(s.publishing, ready.Publish...)
	if ready.Held != nil {
		w.say("conductor %d: stands at step %d, which is durable", s.Fence(), *ready.Held)
	}
}

// wire returns the newest stream of a slot to a conductor.
func (w *world) wire(s *seat, slot kintsugi.Slot) *wire {
	for _, x := range slices.Backward(w.wires) {
		if x.seat == s && x.slot == slot && x.refused == nil {
			return x
		}
	}
	return nil
}

// connect opens a worker's stream and says hello on it.
func (w *world) connect(s *seat, slot kintsugi.Slot, n kintsugi.Incarnation) *wire {
	x := &wire{seat: s, slot: slot, incarnation: n}
	x.up = append(x.up, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Model: w.cfg.Model, Line: w.cfg.Line, Slot: slot, Incarnation: n})
	w.wires = append(w.wires, x)
	return x
}

// hangUp tells the conductor that a stream has ended, unless the worker has a newer one.
func (w *world) hangUp(x *wire) {
	x.cut, x.over, x.up = true, true, nil
	if w.wire(x.seat, x.slot) == x {
		x.seat.clocks.hangUp(x.slot, x.incarnation, w.now)
		x.seat.WorkerGone(w.now, x.slot, x.incarnation)
		w.perform(x.seat)
	}
}

// Deliveries: each delivers the oldest message of one queue.

func (w *world) toShard(l *link) {
	w.t.Helper()
	m := l.down[0]
	l.down = l.down[1:]
	w.say("conductor %d to shard %d: %s", l.seat.Fence(), l.shard, describe(m))
	r := w.replica[l.shard]
	counts := r.core.Handle(m)
	if take, ok := m.(kintsugi.Take); ok && counts {
		r.answers, r.promised = l, take.Fence
	}
	r.perform()
}

func (w *world) fromShard(l *link) {
	w.t.Helper()
	m := l.up[0]
	l.up = l.up[1:]
	w.say("shard %d to conductor %d: %s", l.shard, l.seat.Fence(), describe(m))
	l.seat.HandleReplica(w.now, m)
	w.perform(l.seat)
}

func (w *world) fromWorker(x *wire) {
	w.t.Helper()
	m := x.up[0]
	x.up = x.up[1:]
	w.say("worker/%d to conductor %d: %s", x.slot, x.seat.Fence(), describe(m))
	switch m := m.(type) {
	case kintsugi.Hello:
		if x.refused = x.seat.HandleHello(w.now, m); x.refused != nil {
			w.say("conductor %d to worker/%d: %v", x.seat.Fence(), x.slot, x.refused)
			x.cut, x.over = true, true
		} else {
			x.seat.clocks.hello(x.slot, x.incarnation)
		}
	case kintsugi.Ticket:
		x.seat.clocks.ticket(m)
		x.seat.HandleTicket(w.now, m)
	}
	w.perform(x.seat)
}

func (w *world) toWorker(x *wire) kintsugi.ConductorMessage {
	m := x.down[0]
	x.down = x.down[1:]
	w.say("conductor %d to worker/%d: %s", x.seat.Fence(), x.slot, describe(m))
	return m
}

func (w *world) publish(s *seat, failure string) {
	p := s.publishing[0]
	s.publishing = s.publishing[1:]
	e := kintsugi.CheckpointEvent{Step: p.Step, Bytes: p.Bytes, Took: p.Took, Err: failure}
	if failure == "" {
		e.Manifest = fmt.Sprintf("run-%d", p.Step)
		if len(p.Manifests) != len(w.replica) {
			w.t.Fatalf("the checkpoint of step %d names %d shards of %d", p.Step, len(p.Manifests), len(w.replica))
		}
		for i, m := range p.Manifests {
			if want := fmt.Sprintf("shard-%d-%d", i, p.Step); m != want {
				w.t.Fatalf("the checkpoint of step %d names %q for shard %d, want %q", p.Step, m, i, want)
			}
		}
	}
	s.Published(w.now, e)
	w.perform(s)
}

func (w *world) tick(d time.Duration) {
	w.now = w.now.Add(d)
	for _, s := range w.seats {
		s.clocks.pass(w.now, w.cfg.LeaveGrace)
		s.Tick(w.now)
		w.perform(s)
	}
}

// perform carries out what a replica's Ready says, in the order of the fields.
func (r *replica) perform() {
	w := r.world
	w.t.Helper()
	ready := r.core.Ready()
	for _, p := range ready.Free {
		named := r.names(r.applying, p) || (r.names(r.applied, p) && (ready.Publish == nil || *ready.Publish != r.applied.Step))
		if named {
			w.t.Fatalf("shard %d frees %v, which an unreleased step counts", r.id, p)
		}
		delete(r.held, p)
	}
	if len(ready.Free) > 0 {
		w.say("shard %d: frees %s", r.id, list(ready.Free))
	}
	if p := ready.Publish; p != nil {
		if r.applied == nil || r.applied.Step != *p || int(*p) != len(r.steps)+1 {
			w.t.Fatalf("shard %d publishes %d, which it has not applied", r.id, *p)
		}
		r.steps = append(r.steps, *r.applied)
		r.applied = nil
		w.say("shard %d: version %d may be read", r.id, *p)
	}
	if c := ready.Apply; c != nil {
		if r.applying != nil || int(c.Step) != len(r.steps)+1 {
			w.t.Fatalf("shard %d applies step %d on version %d while applying %v", r.id, c.Step, len(r.steps), r.applying)
		}
		for _, p := range c.Counted {
			if !r.held[p.Push] && !r.empty {
				w.t.Fatalf("shard %d applies %v without its bytes", r.id, p.Push)
			}
		}
		r.applying = c
	}
	if ready.Save != nil {
		if int(*ready.Save) != len(r.steps) {
			w.t.Fatalf("shard %d is to save version %d and stands at %d", r.id, *ready.Save, len(r.steps))
		}
		if slices.Contains(r.saving, *ready.Save) {
			w.t.Fatalf("shard %d is to save version %d twice at once", r.id, *ready.Save)
		}
		r.saving = append(r.saving, *ready.Save)
	}
	for _, m := range ready.Replies {
		if r.answers != nil {
			r.answers.up = append(r.answers.up, m)
		}
	}
	w.check()
}

func (r *replica) names(c *kintsugi.Commit, p kintsugi.PushID) bool {
	return c != nil && !r.empty && slices.ContainsFunc(c.Counted, func(x kintsugi.Weighted) bool { return x.Push == p })
}

// apply completes the kernel's work.
func (r *replica) apply() {
	c := r.applying
	r.applying, r.applied = nil, c
	r.world.say("shard %d: has applied step %d", r.id, c.Step)
	p := kintsugi.Products{SquaredNorm: 4}
	if c.Want != 0 {
		p.DotDisplacement, p.SquaredDisplacement = -0.1, 0.04
	}
	r.core.Applied(c.Decided, []kintsugi.Products{p}, time.Millisecond, 0, 0)
	r.perform()
}

// save completes a save, or makes it fail.
func (r *replica) save(failure string) {
	step := r.saving[0]
	r.saving = r.saving[1:]
	m := kintsugi.Saved{Shard: kintsugi.ShardID(r.id), Step: step, Err: failure}
	if failure == "" {
		m.Manifest, m.Bytes = fmt.Sprintf("shard-%d-%d", r.id, step), 100
	}
	r.core.Saved(m)
	r.perform()
}

// push delivers a whole push to a shard and returns the answer: "", or why it is refused.
func (r *replica) push(p kintsugi.PushID) string {
	if refusal := r.begin(p); refusal != "" {
		return refusal
	}
	return r.complete(p)
}

func (r *replica) begin(p kintsugi.PushID) string {
	verdict, reason := r.core.Begin(p)
	if verdict == shard.Accept {
		r.held[p] = false
	}
	r.perform()
	return reason
}

func (r *replica) complete(p kintsugi.PushID) string {
	ok, reason := r.core.Complete(p)
	if ok {
		r.held[p] = true
	}
	r.perform()
	return reason
}
