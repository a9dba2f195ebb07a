package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

const (
	conductorTick = 50 * time.Millisecond
	redialAfter   = 50 * time.Millisecond
)

var errTaken = fmt.Errorf("the worker has connected again")

// conducting is the shell of the conductor core: its streams to the shards, and the table of
// workers.
type conducting struct {
	c       *Cluster
	p       *proc
	view    *kintsugi.View
	fence   kintsugi.Fence
	core    *conductor.Conductor
	shards  []*end          // by shard; nil: not connected
	workers []*workerStream // by slot; nil: none
	calls   []*end          // streams of workers
	over    bool

	// State of the checkers.
	commits map[kintsugi.Step]kintsugi.Commit // newest commit that was sent
	told    kintsugi.Step
	held    bool // it has reported that the run is held
	done    bool
}

type workerStream struct {
	e           *end
	incarnation kintsugi.Incarnation
}

func newConducting(c *Cluster, p *proc, v *kintsugi.View, fence kintsugi.Fence) *conducting {
	grace := c.cfg.StartGrace
	if v.Line > 1 || v.Continues {
		grace = c.cfg.RejoinGrace
	}
	core, err := conductor.New(conductor.Config{
		Line: v.Line, View: v.Number, Fence: fence, Model: c.layout.Agreement(), Shards: len(v.Chains), Slots: c.cfg.Workers,
		Consistency: c.cfg.Consistency, Schedule: c.cfg.schedule(), Steps: c.cfg.Steps, SaveEvery: c.cfg.SaveEvery, SaveAfter: c.cfg.SaveAfter, Interval: c.interval(), Running: c.planner(),
		StartGrace: grace, LeaveGrace: c.cfg.LeaveGrace, Continues: v.Continues,
	}, c.wall())
	if err != nil {
		c.fail(notAtFault, "new conductor: %v", err)
	}
	return &conducting{
		c: c, p: p, view: v, fence: fence, core: core,
		shards: make([]*end, len(v.Chains)), workers: make([]*workerStream, c.cfg.Workers),
		commits: make(map[kintsugi.Step]kintsugi.Commit),
	}
}

// run opens the control streams and starts the ticks.
func (x *conducting) run() {
	x.c.say("%s conducts view %d under fence %d", x.p.name, x.view.Number, x.fence)
	for i := range x.shards {
		x.hold(kintsugi.ShardID(i))
		x.listen(kintsugi.ShardID(i))
	}
	x.tick()
	x.stopRun()
}

// stopRun ends the run if that was requested.
func (x *conducting) stopRun() {
	if x.c.stopped && !x.p.dead {
		x.core.Stop(x.c.wall(), "interrupted", true)
	}
	x.perform()
}

func (x *conducting) tick() {
	if x.over {
		return
	}
	x.core.Tick(x.c.wall())
	x.perform()
	x.c.after(x.p, conductorTick, x.tick)
}

// hold keeps a control stream to a shard open.
func (x *conducting) hold(id kintsugi.ShardID) {
	if x.over {
		return
	}
	to := x.c.lives[x.view.Head(id).Incarnation]
	var e *end
	e = x.c.open(x.p, to.proc, controlCall{id}, func(m any) {
		x.answered(m.(kintsugi.ReplicaMessage))
	}, func(error) {
		if x.shards[id] == e {
			x.shards[id] = nil
		}
		x.c.after(x.p, redialAfter, func() { x.hold(id) })
	})
	x.shards[id] = e
	x.core.ShardConnected(id)
	x.perform()
}

// listen hears what the replica after the head of a shard answers to it.
func (x *conducting) listen(id kintsugi.ShardID) {
	if x.over || len(x.view.Chains[id]) < 2 || x.c.cfg.Copies > 0 {
		return
	}
	to := x.c.lives[x.view.Servers[x.view.Chains[id][1]].Incarnation]
	x.c.open(x.p, to.proc, listenCall{id}, func(m any) {
		s := m.(kintsugi.Stable)
		x.core.HandleNext(x.c.wall(), s)
		if x.c.cfg.plant == nextAlone {
			x.core.HandleReplica(x.c.wall(), s)
		}
		x.perform()
	}, func(error) {
		x.c.after(x.p, redialAfter, func() { x.listen(id) })
	})
}

func (x *conducting) answered(m kintsugi.ReplicaMessage) {
	if t, ok := m.(kintsugi.Taken); ok && x.c.cfg.plant == onlyNewest {
		t.Records = slices.Clone(t.Records)
		m = t
		for i := range t.Records {
			t.Records[i].Countable = slices.Clone(t.Records[i].Countable)
			for j := range t.Records[i].Countable {
				t.Records[i].Countable[j].Earlier = nil
			}
		}
	}
	if s, ok := m.(kintsugi.Stable); ok && x.c.cfg.plant == headAlone {
		s.Waits = false
		m = s
	}
	x.core.HandleReplica(x.c.wall(), m)
	if s, ok := m.(kintsugi.Stable); ok && x.c.cfg.plant == earlyRelease {
		for i := range x.shards {
			s.Shard = kintsugi.ShardID(i)
			x.core.HandleReplica(x.c.wall(), s)
		}
	}
	x.perform()
}

// stop ends everything: the view is over, or the process is about to end.
func (x *conducting) stop() {
	x.over = true
	for _, e := range x.shards {
		e.close(errOver)
	}
	for _, e := range x.calls {
		e.close(errOver)
	}
}

// welcome accepts a worker's stream: a hello, then tickets.
func (x *conducting) welcome(e *end) {
	if x.over {
		e.close(errOver)
		return
	}
	x.calls = append(x.calls, e)
	e.hear = func(m any) { x.greet(e, m.(kintsugi.Hello)) }
	e.pump()
}

func (x *conducting) greet(e *end, h kintsugi.Hello) {
	err := x.core.HandleHello(x.c.wall(), h)
	if err != nil {
		x.c.say("%s refuses worker/%d@%d: %v", x.p.name, h.Slot, h.Incarnation, err)
		e.close(err)
		x.perform()
		return
	}
	if old := x.workers[h.Slot]; old != nil {
		if old.incarnation == h.Incarnation {
			old.e.close(errTaken)
		} else {
			old.e.close(fmt.Errorf("%w: worker/%d has a later life", kintsugi.ErrFenced, h.Slot))
		}
	}
	w := &workerStream{e: e, incarnation: h.Incarnation}
	x.workers[h.Slot] = w
	e.hear = func(m any) {
		if _, bye := m.(goodbye); bye {
			x.core.WorkerLeft(x.c.wall(), h.Slot, h.Incarnation)
			x.workers[h.Slot] = nil
			x.perform()
			return
		}
		t := m.(kintsugi.Ticket)
		x.c.say("%s hears the ticket of %v@%d", x.p.name, t.Push, t.Push.Incarnation)
		x.core.HandleTicket(x.c.wall(), t)
		x.perform()
	}
	e.broke = func(error) {
		if x.workers[h.Slot] == w {
			x.workers[h.Slot] = nil
			x.core.WorkerGone(x.c.wall(), h.Slot, h.Incarnation)
			x.perform()
		}
	}
	x.perform()
	e.pump()
}

// perform carries out the effects of the core, in field order.
func (x *conducting) perform() {
	if x.over {
		return
	}
	ready := x.core.Ready()
	for _, m := range ready.ToShards {
		if c, ok := m.Message.(kintsugi.Commit); ok {
			x.c.checkCommit(x, c)
			x.commits[c.Step] = c
		}
		if e := x.shards[m.Shard]; e != nil {
			e.send(sealed{x, m.Message})
		}
	}
	for _, o := range ready.StartOver {
		x.c.say("%s makes worker/%d@%d start over: %s", x.p.name, o.Slot, o.Incarnation, o.Reason)
		if w := x.workers[o.Slot]; w != nil && w.incarnation == o.Incarnation {
			x.c.startedOver++
			w.e.close(errors.New(o.Reason))
			x.workers[o.Slot] = nil
			x.core.WorkerGone(x.c.wall(), o.Slot, o.Incarnation)
		}
	}
	for _, e := range ready.Events { // before the workers hear of it, as for the checkers
		x.note(e)
	}
	for _, m := range ready.ToWorkers {
		if w := x.workers[m.Slot]; w != nil && w.incarnation == m.Incarnation {
			w.e.send(m.Message)
		}
	}
	if ready.Held != nil {
		x.c.say("%s: the run stands at step %d", x.p.name, *ready.Held)
		x.c.checkHeld(x, *ready.Held)
		x.c.registry.call(x.p, func() error {
			x.c.registry.standing = x.view.Number
			x.c.registry.changed()
			return nil
		}, func(error) {})
	}
	for _, p := range ready.Publish {
		x.publish(p)
	}
}

// note passes an event of the run to the checkers.
func (x *conducting) note(e kintsugi.RunEvent) {
	switch e := e.(type) {
	case kintsugi.StepEvent:
		x.c.say("%s releases step %d of line %d: %v", x.p.name, e.Step, e.Line, e.Counted)
		x.c.checkStep(x, e)
	case kintsugi.CheckpointEvent:
		x.c.say("%s: checkpoint of step %d: %s", x.p.name, e.Step, orOK(e.Err))
	case kintsugi.PartialEvent:
		x.c.say("%s: shard %d came back alone, at step %d, the oldest chunk of %d", x.p.name, e.Shard, e.Step, e.Oldest)
		x.c.checkPartial(x, e)
	case kintsugi.Done:
		x.c.say("%s: done at step %d: %s", x.p.name, e.Step, e.Reason)
		x.c.checkDone(x, e)
	}
}

// publish publishes a run manifest in the background.
func (x *conducting) publish(p conductor.Publication) {
	m := &manifest{line: x.view.Line, step: p.Step, fence: x.fence, parts: p.Manifests}
	took := x.c.store.took()
	x.c.moment(serverAsItNames, 2*took, x.p)
	x.c.after(x.p, took, func() {
		if x.over { // the process is alive, but its context has ended
			return
		}
		err := x.c.store.publish(m)
		e := kintsugi.CheckpointEvent{Step: p.Step, Manifest: m.name, Bytes: p.Bytes, Took: p.Took}
		if err != nil {
			e.Err = err.Error()
			if errors.Is(err, errPublished) {
				x.c.fail(wholeManifest, "%s publishes %s again with other parts", x.p.name, m.name)
			}
		}
		x.core.Published(x.c.wall(), e)
		x.perform()
	})
}
