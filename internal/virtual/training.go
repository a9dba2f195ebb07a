package virtual

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/server/dbw"
	"github.com/kintsugi-ml/kintsugi/worker/kept"
)

// Training is a run that computes real gradients under virtual time: the real conductor core, one
// shard without delay, and workers whose times are drawn. Its only faults are slow and dying
// workers; for other faults see package sim. The same Training gives the same run, to the bit.
type Training struct {
	Seed        uint64
	Workers     int
	Consistency agg.Config
	Schedule    conductor.Schedule
	Steps       kintsugi.Step
	Problem     Problem

	Times Times
	Slow  []Slowdown
	Apply float64 // seconds from a commit to its release
	Ask   float64 // seconds that Pull takes to ask for the newest version

	// Lifetime is the mean number of seconds until a worker dies, exponentially distributed. The
	// worker comes back after Rebirth seconds. 0: no deaths.
	Lifetime, Rebirth float64

	// Ranked gives gradients their batches by the order in which they arrive, and not by slot. All
	// batches have the same distribution, so this changes no distribution. But with a fixed quota,
	// the model then depends only on the quota and the seed, and not on the times.
	Ranked bool

	// Anytime, if set, makes a step also count partial gradients: those that workers are still
	// computing on the same version, with the examples they have processed so far. Requesting and
	// receiving them takes the given number of seconds per step; all other costs that this would
	// have in a cluster are ignored. The Problem must be a Divisible.
	Anytime *float64

	// From, if set, are the parameters of version 0, instead of the Problem's. Kept are the paths,
	// by slot, that workers offer before they compute anything; an entry without values is no path.
	// See Through.
	From []float32
	Kept []kept.Gradient

	// Chosen, if set, is called before Each with what a controller has chosen for a released step.
	Chosen func(dbw.Choice)

	// Each is called for every released step with its event and the parameters of its version,
	// which it must not keep. The run ends when it returns false.
	Each func(e kintsugi.StepEvent, params []float32) bool
}

// Trained is the result of a Training.
type Trained struct {
	Steps   kintsugi.Step
	Seconds float64 // of virtual time
	Deaths  int
	Late    int // number of gradients that were refused, thrown away or given up
	Counted int
	Params  []float32
}

// theatre is a running Training.
type theatre struct {
	*Training
	rng      *rand.Rand
	core     *conductor.Conductor
	now      float64
	events   agenda
	order    uint64
	hands    []trainee
	released kintsugi.Step
	inVain   int // deaths since then
	arrived  int // gradients pushed on the newest version
	device   kernels.Device
	spare    [][]float32

	params, next, before []float32
	state, nextState     [2][]float32
	chosen               dbw.Choice // for the committed step
	result               Trained
	over                 bool
	err                  error
}

// trainee is a worker of a Training.
type trainee struct {
	incarnation kintsugi.Incarnation
	alive       bool
	version     kintsugi.Step // version that it computes on or has pushed on
	sequence    uint32
	working     bool
	life        uint64 // changes whenever the current work is given up
	begun       int
	since       float64 // start of the current work
	took        float64 // duration of the current work
	offset      uint64  // where it begins in a recorded trace
	grads       []float32
	loss        float64
	pushed      map[kintsugi.PushID][]float32
}

// happening is a future event.
type happening struct {
	at    float64
	order uint64
	slot  int
	life  uint64
	what  func()
}

type agenda []happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || (a[i].at == a[j].at && a[i].order < a[j].order)
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(happening)) }
func (a *agenda) Pop() any {
	old := *a
	x := old[len(old)-1]
	*a = old[:len(old)-1]
	return x
}

const simLine, simFence = 1, 1

// vain is how often each worker may die without a step in between before a Training is given up.
// Otherwise it might go on for ever.
const vain = 1000

// latest is the end of virtual time, in seconds: a time.Duration can hold 292 years.
const (
	years  = 200
	latest = years * 365.25 * 86400
)

// Train runs a Training to its end.
func Train(cfg Training) (Trained, error) {
	n := cfg.Problem.Values()
	h := &theatre{
		Training: &cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x747261696e)), hands: make([]trainee, cfg.Workers), device: kernels.Best(),
		params: make([]float32, n), next: make([]float32, n), before: make([]float32, n),
	}
	for i := range cfg.Schedule.Rule.States() {
		h.state[i], h.nextState[i] = make([]float32, n), make([]float32, n)
	}
	cfg.Problem.Init(h.params)
	copy(h.params, cfg.From)
	var err error
	h.core, err = conductor.New(conductor.Config{
		Line: simLine, View: 1, Fence: simFence, Model: 1, Shards: 1, Slots: cfg.Workers, Consistency: cfg.Consistency,
		Schedule: cfg.Schedule, Steps: cfg.Steps, StartGrace: time.Hour, LeaveGrace: time.Second,
	}, h.clock())
	if err != nil {
		return Trained{}, err
	}
	for slot := range h.hands {
		h.hands[slot] = trainee{pushed: make(map[kintsugi.PushID][]float32), offset: h.rng.Uint64N(1 << 40)}
		h.born(slot)
	}
	h.core.ShardConnected(0)
	h.perform()
	if cfg.Consistency.Controller != "" || cfg.Lifetime > 0 {
		h.tick()
	}
	for !h.over && h.err == nil && len(h.events) > 0 {
		e := heap.Pop(&h.events).(happening)
		if e.slot >= 0 && h.hands[e.slot].life != e.life {
			continue
		}
		if !(e.at <= latest) {
			return h.result, fmt.Errorf("%w: virtual time would go beyond %d years after version %d; let gradients and steps take less, and workers live longer", kintsugi.ErrUsage, years, h.released)
		}
		h.now = e.at
		e.what()
		h.perform()
	}
	h.result.Seconds, h.result.Params = h.now, h.params
	return h.result, h.err
}

func (h *theatre) clock() time.Time {
	return Epoch().Add(time.Duration(h.now * float64(time.Second)))
}

// since returns the time that has passed since at.
func (h *theatre) since(at float64) time.Duration {
	return time.Duration((h.now - at) * float64(time.Second))
}

// Epoch returns the beginning of virtual time.
func Epoch() time.Time { return time.Unix(1_000_000, 0) }

// after schedules what. If slot is not −1, it is dropped if that worker has given up its current
// work by then.
func (h *theatre) after(seconds float64, slot int, what func()) {
	h.order++
	e := happening{at: h.now + seconds, order: h.order, slot: slot, what: what}
	if slot >= 0 {
		e.life = h.hands[slot].life
	}
	heap.Push(&h.events, e)
}

// tickEvery is the interval of a conductor's ticks while something happens.
const tickEvery = 50 * time.Millisecond

// tick lets the conductor notice the time. The interval is a thousandth of the time in which
// nothing else happens, if that is longer than the conductor's tick. Otherwise hours of waiting
// would take hours to simulate.
func (h *theatre) tick() {
	h.core.Tick(h.clock())
	pause := tickEvery.Seconds()
	if len(h.events) > 0 {
		pause = max(pause, (h.events[0].at-h.now)/1000)
	}
	h.after(pause, -1, h.tick)
}

// perform carries out the effects of the core.
func (h *theatre) perform() {
	for !h.over && h.err == nil {
		ready := h.core.Ready()
		if len(ready.ToShards)+len(ready.ToWorkers)+len(ready.Events)+len(ready.Publish) == 0 {
			return
		}
		for _, m := range ready.ToShards {
			h.toShard(m.Message)
		}
		for _, e := range ready.Events {
			h.note(e)
		}
		for _, m := range ready.ToWorkers {
			if w := &h.hands[m.Slot]; w.alive && w.incarnation == m.Incarnation {
				h.toWorker(int(m.Slot), m.Message)
			}
		}
		for _, p := range ready.Publish {
			h.core.Published(h.clock(), kintsugi.CheckpointEvent{Step: p.Step})
		}
	}
}

func (h *theatre) note(e kintsugi.RunEvent) {
	switch e := e.(type) {
	case kintsugi.StepEvent:
		h.result.Steps = e.Step
		if h.Chosen != nil {
			h.Chosen(h.chosen)
		}
		h.result.Late += int(e.Late)
		h.result.Counted += len(e.Counted)
		if h.Each != nil && !h.Each(e, h.params) {
			h.over = true
		}
	case kintsugi.Done:
		h.over = true
	}
}

// toShard is the only shard: it answers a control message.
func (h *theatre) toShard(m kintsugi.ControlMessage) {
	answer := func(m kintsugi.ReplicaMessage) { h.core.HandleReplica(h.clock(), m) }
	switch m := m.(type) {
	case kintsugi.Take:
		answer(kintsugi.Taken{Fence: simFence})
	case kintsugi.Members:
		answer(kintsugi.MembersKnown{Fence: simFence, Change: m.Change})
	case kintsugi.Commit:
		h.chosen = h.core.Choice()
		took := h.Apply
		var partial []kernels.Operand
		if h.Anytime != nil {
			took += *h.Anytime
			partial = h.partial(m.Step - 1)
		}
		h.after(took, -1, func() { h.apply(m, partial) })
	case kintsugi.Released:
		h.released, h.arrived, h.inVain = m.Step, 0, 0
		for _, p := range m.Counted {
			h.free(p)
		}
		if m.Save {
			answer(kintsugi.Saved{Step: m.Step, Manifest: "none"})
		}
	}
}

func (h *theatre) free(p kintsugi.PushID) {
	pushed := h.hands[p.Slot].pushed
	if g := pushed[p]; g != nil {
		h.spare = append(h.spare, g)
		delete(pushed, p)
	}
}

// apply executes a step with the kernel of the real shards. partial are partial gradients that are
// counted too.
func (h *theatre) apply(c kintsugi.Commit, partial []kernels.Operand) {
	o := c.Optimizer
	s := kernels.Step{
		Rule: kernels.Rule(o.Rule), Scale: c.Scale, Params: h.params, Next: h.next, State: h.state, NextState: h.nextState,
		Scalars: server.Scalars(o, kintsugi.Tensor{}), WantDisplacement: c.Want&kintsugi.WantSquaredDisplacement != 0, WantDot: c.Step > 1 && c.Want&kintsugi.WantDotDisplacement != 0,
	}
	if s.WantDot {
		s.Previous = h.before
	}
	for _, w := range c.Counted {
		s.Operands = append(s.Operands, kernels.Operand{Weight: w.Weight, Values: h.hands[w.Push.Slot].pushed[w.Push]})
	}
	if len(partial) > 0 {
		examples := 1 / float64(c.Scale)
		for _, o := range partial {
			examples += float64(o.Weight)
		}
		s.Operands, s.Scale = append(s.Operands, partial...), float32(1/examples)
	}
	p, err := h.device.Step(&s)
	if err != nil {
		h.err = err
		return
	}
	h.before, h.params, h.next = h.params, h.next, h.before
	h.state, h.nextState = h.nextState, h.state
	h.core.HandleReplica(h.clock(), kintsugi.Stable{Fence: simFence, Step: c.Step, Products: []kintsugi.Products{{
		SquaredNorm: p.SquaredNorm, DotDisplacement: p.DotDisplacement, SquaredDisplacement: p.SquaredDisplacement,
	}}})
}
