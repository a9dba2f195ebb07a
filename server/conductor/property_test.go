package conductor_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// hand is a worker as its shell behaves: it says hello, reads the newest version, pushes to every
// shard, sends the ticket, and waits until it has credit for another push. If anything breaks, it
// begins a new session.
type hand struct {
	slot        kintsugi.Slot
	incarnation kintsugi.Incarnation
	wire        *wire
	doing       doing
	atLeast     kintsugi.Step     // while reading: the version must be at least this
	push        kintsugi.PushID   // while pushing and waiting
	landing     []landing         // by shard
	ticket      *kintsugi.Ticket  // the newest of this session
	open        []kintsugi.PushID // pushes of this session whose fates it does not know
	known       kintsugi.Step     // newest version that this session has heard of
	finished    bool
	counted     int // number of releases that named one of its pushes
}

// restless is an interval that changes after each step, between zero and four seconds.
type restless struct{ steps int }

func (r *restless) Step(kintsugi.StepEvent, bool)  { r.steps++ }
func (r *restless) Saved(kintsugi.CheckpointEvent) {}
func (r *restless) After() time.Duration           { return time.Duration(3*r.steps%5) * time.Second }

type doing uint8

const (
	away doing = iota
	joining
	reading
	pushing
	waiting
)

type landing uint8

const (
	unsent landing = iota
	begun
	received
)

// bench is a world with workers, and the moves that are possible in it.
type bench struct {
	*world
	hands  []*hand
	chosen *seat // the conductor to which workers connect
	faults int   // number of faults that are left
}

type move struct {
	what string
	do   func()
}

// moves lists what can happen next, in an order that depends only on the state.
func (b *bench) moves() []move {
	var all []move
	add := func(do func(), format string, args ...any) {
		all = append(all, move{what: fmt.Sprintf(format, args...), do: do})
	}
	for _, s := range b.seats {
		for i, l := range s.links {
			if l == nil {
				add(func() { b.open(s, i) }, "conductor %d opens shard %d", s.Fence(), i)
				continue
			}
			if len(l.down) > 0 {
				add(func() { b.toShard(l) }, "conductor %d to shard %d", s.Fence(), i)
			}
			if len(l.up) > 0 {
				add(func() { b.fromShard(l) }, "shard %d to conductor %d", i, s.Fence())
			}
		}
		if len(s.publishing) > 0 {
			add(func() { b.publish(s, "") }, "conductor %d publishes", s.Fence())
		}
	}
	for _, r := range b.replica {
		if r.applying != nil {
			add(r.apply, "shard %d applies", r.id)
		}
		if len(r.saving) > 0 {
			add(func() { r.save("") }, "shard %d saves", r.id)
		}
	}
	for _, x := range b.wires {
		switch {
		case len(x.up) > 0:
			add(func() { b.fromWorker(x) }, "worker/%d@%d to conductor %d", x.slot, x.incarnation, x.seat.Fence())
		case x.cut && !x.over:
			add(func() { b.hangUp(x) }, "conductor %d sees worker/%d@%d hang up", x.seat.Fence(), x.slot, x.incarnation)
		}
	}
	for _, h := range b.hands {
		all = append(all, b.handMoves(h)...)
	}
	return all
}

// handMoves lists what a worker can do next.
func (b *bench) handMoves(h *hand) []move {
	var all []move
	add := func(what string, do func()) {
		all = append(all, move{what: fmt.Sprintf("worker/%d %s", h.slot, what), do: do})
	}
	if h.finished {
		return nil
	}
	if h.wire != nil && len(h.wire.down) > 0 {
		add("hears", func() { b.hear(h, b.toWorker(h.wire)) })
	}
	if h.wire != nil && h.wire.refused != nil {
		add("is turned away", func() { b.turnedAway(h) })
	}
	switch h.doing {
	case away:
		if !b.chosen.Finished() || b.chosen.done != nil {
			add("connects", func() {
				h.wire, h.doing = b.connect(b.chosen, h.slot, h.incarnation), joining
			})
		}
	case reading:
		if v, ok := b.readable(); ok && v >= h.atLeast {
			add("reads", func() {
				h.doing, h.landing = pushing, make([]landing, len(b.replica))
				h.push = kintsugi.PushID{Line: b.cfg.Line, Slot: h.slot, Incarnation: h.incarnation, Version: v}
			})
		}
	case pushing:
		if h.known > 0 && h.push.Version < b.cfg.Consistency.Oldest(h.known) {
			add("throws its gradient away", func() { b.throwAway(h, h.known) })
		}
		whole := true
		for i, r := range b.replica {
			if r.empty || h.landing[i] == received {
				continue
			}
			whole = false
			add(fmt.Sprintf("pushes to shard %d", i), func() { b.land(h, i) })
		}
		if whole {
			add("sends its ticket", func() {
				h.doing = waiting
				h.ticket = &kintsugi.Ticket{
					Push: h.push, Views: slices.Repeat([]kintsugi.ViewNumber{b.cfg.View}, len(b.replica)),
					Loss: 1, Examples: 8, SquaredNorm: 1,
				}
				h.wire.up = append(h.wire.up, *h.ticket)
				h.open = append(h.open, h.push)
				b.goOn(h)
			})
		}
	case joining, waiting:
	}
	return all
}

// readable returns the version that every shard publishes.
func (b *bench) readable() (kintsugi.Step, bool) {
	v := b.replica[0].core.Released()
	for _, r := range b.replica {
		if r.core.Released() != v {
			return 0, false
		}
	}
	return v, true
}

// land advances the push to one shard: first to its first frame, then to its last.
func (b *bench) land(h *hand, i int) {
	r := b.replica[i]
	refusal := ""
	if h.landing[i] == unsent {
		refusal = r.begin(h.push)
		h.landing[i] = begun
		if r.held[h.push] {
			h.landing[i] = received
		}
	} else {
		refusal = r.complete(h.push)
		h.landing[i] = received
	}
	if refusal == "" {
		return
	}
	if r.core.Released() > h.push.Version {
		b.throwAway(h, r.core.Released())
	} else {
		b.endSession(h)
	}
}

// throwAway sends the ticket of a gradient that is not pushed, and reads the newest version.
func (b *bench) throwAway(h *hand, newest kintsugi.Step) {
	h.wire.up = append(h.wire.up, kintsugi.Ticket{Push: h.push})
	h.doing, h.atLeast = reading, newest
}

// goOn begins another gradient if the worker waits and has credit. It reads a newer version first
// if it knows of one.
func (b *bench) goOn(h *hand) {
	if h.doing != waiting || len(h.open) >= b.cfg.Consistency.Pace().Credit {
		return
	}
	if h.known > h.push.Version {
		h.doing, h.atLeast = reading, h.known
		return
	}
	h.push.Sequence++
	h.doing, h.landing = pushing, make([]landing, len(b.replica))
}

// hear handles a message of the conductor.
func (b *bench) hear(h *hand, m kintsugi.ConductorMessage) {
	switch m := m.(type) {
	case kintsugi.Admitted:
		if h.doing == joining {
			h.doing, h.atLeast = reading, m.Step
		}
	case kintsugi.Released:
		h.known = max(h.known, m.Step)
		h.open = slices.DeleteFunc(h.open, func(p kintsugi.PushID) bool {
			if !slices.Contains(m.Counted, p) {
				return false
			}
			h.counted++
			return true
		})
		b.goOn(h)
	case kintsugi.Refused:
		h.known = max(h.known, m.Step)
		h.open = slices.DeleteFunc(h.open, func(p kintsugi.PushID) bool { return p == m.Push })
		b.goOn(h)
	case kintsugi.Done:
		h.finished = true
	}
}

func (b *bench) turnedAway(h *hand) {
	err := h.wire.refused
	h.wire, h.doing, h.open, h.known = nil, away, nil, 0
	if !errors.Is(err, kintsugi.ErrFenced) {
		b.t.Fatalf("worker/%d is turned away: %v", h.slot, err)
	}
}

// endSession ends a worker's streams. The conductor notices later.
func (b *bench) endSession(h *hand) {
	if h.wire != nil {
		h.wire.cut, h.wire.down = true, nil
	}
	h.wire, h.doing, h.ticket = nil, away, nil
	h.open, h.known = nil, 0
}

// faultMoves lists what can go wrong next.
func (b *bench) faultMoves() []move {
	var all []move
	add := func(do func(), format string, args ...any) {
		all = append(all, move{what: fmt.Sprintf(format, args...), do: do})
	}
	for _, s := range b.seats {
		for i, l := range s.links {
			if l != nil {
				add(func() { b.cut(s, i) }, "the stream of conductor %d to shard %d breaks", s.Fence(), i)
			}
		}
	}
	for _, h := range b.hands {
		if h.wire != nil {
			add(func() { b.endSession(h) }, "the streams of worker/%d break", h.slot)
			add(func() { b.endSession(h); h.incarnation++ }, "worker/%d restarts", h.slot)
		}
		if h.ticket != nil {
			add(func() { h.wire.up = append(h.wire.up, *h.ticket) }, "worker/%d sends its ticket again", h.slot)
		}
	}
	for _, x := range b.wires {
		if x.cut && len(x.up) > 0 {
			add(func() { x.up = nil }, "what worker/%d@%d said last is lost", x.slot, x.incarnation)
		}
	}
	for _, r := range b.replica {
		if len(r.saving) > 0 {
			add(func() { r.save("disk full") }, "shard %d does not save", r.id)
		}
	}
	for _, s := range b.seats {
		if len(s.publishing) > 0 {
			add(func() { b.publish(s, "the store is away") }, "conductor %d does not publish", s.Fence())
		}
	}
	add(func() { b.tick(time.Second) }, "a second passes")
	if len(b.seats) < 3 {
		add(func() { b.chosen = b.newConductor(b.chosen.Fence() + 3) }, "another conductor comes")
	}
	return all
}

// drawBench draws a run.
func drawBench(t *rapid.T, faults int) *bench {
	workers := rapid.IntRange(1, 3).Draw(t, "workers")
	consistency := rapid.SampledFrom([]agg.Config{
		{},
		{Quota: max(1, workers-1)},
		{Quota: max(1, workers-1), Lead: kintsugi.Infinite},
		{Backup: workers - 1, Lead: kintsugi.Infinite},
		{Quota: 1, Late: agg.Apply, Staleness: kintsugi.Infinite, PerWorker: 1 << 30, Lead: kintsugi.Infinite},
		{Quota: 1, Late: agg.Apply, Staleness: kintsugi.Infinite, PerWorker: 1 << 30, Lead: kintsugi.Infinite, Credit: 2},
		{Quota: 1, Late: agg.Apply, Staleness: kintsugi.Infinite, Lead: 1},
		{Quota: 1, Late: agg.Apply, Staleness: kintsugi.Infinite, Lead: 2},
		{Quota: 3, PerWorker: 3, Credit: 3, Lead: kintsugi.Infinite},
		{Quota: 2, PerWorker: 2, Credit: 3, Late: agg.Apply, Staleness: 1, Lead: kintsugi.Infinite},
		{Quota: 1, Late: agg.Apply, Staleness: 2, Discount: true},
		{Quota: workers, Late: agg.Apply, Staleness: 1, Scale: agg.Sum},
		{Quota: workers, Late: agg.Apply, Staleness: kintsugi.Infinite, PerWorker: 1 << 30},
		{Controller: "dbw", Lead: kintsugi.Infinite},
		{Controller: "adasync:2", Lead: kintsugi.Infinite},
	}).Draw(t, "consistency")
	cfg := conductor.Config{
		Line: 2, View: 5, Model: 7, Slots: workers, Consistency: consistency,
		Schedule: conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 0.1},
		Steps:    kintsugi.Step(rapid.IntRange(1, 6).Draw(t, "steps")), SaveEvery: kintsugi.Step(rapid.IntRange(0, 3).Draw(t, "save every")),
		SaveAfter:  time.Duration(rapid.IntRange(0, 3).Draw(t, "save after")) * time.Second,
		StartGrace: 3 * time.Second, LeaveGrace: 2 * time.Second,
	}
	if rapid.Bool().Draw(t, "save by interval") {
		cfg.Interval = &restless{}
	}
	chunks := rapid.SampledFrom([][]int{{1}, {1, 1}, {2, 0}, {1, 1, 1}}).Draw(t, "chunks")
	b := &bench{world: newWorld(t, cfg, chunks), faults: faults}
	b.say = t.Logf
	for i := range workers {
		b.hands = append(b.hands, &hand{slot: kintsugi.Slot(i), incarnation: 1})
	}
	b.chosen = b.newConductor(1)
	return b
}

// wander makes n moves, drawn from those that are possible. Faults are rare, so that the run
// advances between them.
func (b *bench) wander(t *rapid.T, n int) {
	for range n {
		all := b.moves()
		if b.faults > 0 && (len(all) == 0 || rapid.IntRange(0, 9).Draw(t, "luck") == 0) {
			all = b.faultMoves()
			b.faults--
		}
		if len(all) == 0 {
			return
		}
		m := all[rapid.IntRange(0, len(all)-1).Draw(t, "move")]
		t.Logf("-- %s", m.what)
		m.do()
	}
}

// calm makes every possible move, in turn, until the run is over. Time passes only when nothing
// else can happen.
func (b *bench) calm(limit int) {
	b.t.Helper()
	b.faults = 0
	b.seats = []*seat{b.chosen} // superseded conductors have ended
	for _, h := range b.hands {
		if h.wire != nil && h.wire.seat != b.chosen {
			b.endSession(h)
		}
	}
	b.wires = slices.DeleteFunc(b.wires, func(x *wire) bool { return x.seat != b.chosen })
	idle := 0
	for i := 0; !b.over(); {
		all := b.moves()
		if len(all) == 0 {
			if idle++; idle > 10 {
				b.t.Fatalf("stuck:\n%s", b.picture())
			}
			b.tick(time.Second)
			continue
		}
		idle = 0
		for _, m := range all {
			if i++; i > limit {
				b.t.Fatalf("not over after %d moves:\n%s", limit, b.picture())
			}
			if slices.ContainsFunc(b.moves(), func(still move) bool { return still.what == m.what }) {
				m.do()
			}
		}
	}
	if d := b.chosen.done; d.Step != b.cfg.Steps {
		b.t.Fatalf("the run ends at step %d, not %d", d.Step, b.cfg.Steps)
	}
}

// over reports whether everyone knows that the run is over.
func (b *bench) over() bool {
	return b.chosen.Finished() && !slices.ContainsFunc(b.hands, func(h *hand) bool { return !h.finished })
}

func (b *bench) picture() string {
	s := fmt.Sprintf("conductor %d has released %d, finished: %v\n", b.chosen.Fence(), b.chosen.Released(), b.chosen.Finished())
	for _, r := range b.replica {
		s += fmt.Sprintf("shard %d: released %d, applied %d, holds %v\n", r.id, len(r.steps), r.reached(), r.held)
	}
	for _, h := range b.hands {
		s += fmt.Sprintf("worker/%d@%d: %+v\n", h.slot, h.incarnation, *h)
	}
	return s
}

func TestWithoutFaultsEveryRunFinishes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBench(t, 0)
		b.wander(t, 150)
		b.calm(5000)
		b.checkCounted()
	})
}

func TestAfterFaultsEveryRunFinishesAndCountsEachPushOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBench(t, rapid.IntRange(0, 12).Draw(t, "faults"))
		b.wander(t, 250)
		b.calm(5000)
		b.checkCounted()
	})
}
