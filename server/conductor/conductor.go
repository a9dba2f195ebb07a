package conductor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// Config is what a conductor must know of its run.
type Config struct {
	Line   kintsugi.Line
	View   kintsugi.ViewNumber
	Fence  kintsugi.Fence
	Model  uint64 // Layout.Agreement
	Shards int
	Slots  int // the number of workers that the run is made for: slots are [0, Slots)

	Consistency agg.Config
	Schedule    Schedule
	Uneven      bool          // tensors have rates of their own, which a controller must know
	Steps       kintsugi.Step // the run ends when this step is released
	SaveEvery   kintsugi.Step // steps between two full checkpoints; 0: no checkpoints by step
	SaveAfter   time.Duration // time between the beginnings of two full checkpoints, the first one at the first release; 0: none by time
	Interval    Interval      // chooses that time in place of SaveAfter; nil: SaveAfter is that time
	Running     Planner       // plans the saves of the running checkpoint; nil: there is none

	// Continues says that the view goes on with the line of the one before, as in kintsugi.View.
	// The gradients that heads held may then be gone.
	Continues bool

	// Untold is what [Conductor.Untold] of the conductor of the view before returned: shards that
	// came back on this line in that view, which was over before their return was reported.
	Untold map[kintsugi.ShardID][]kintsugi.Step

	// Over is the last message of the run, if the run had ended before this conductor began; nil:
	// it had not, or that is not known. Servers may stay after the end of a run. Over keeps each
	// new conductor from saving the result once more.
	Over *kintsugi.Done

	// StartGrace is how long the first step of this conductor waits for missing workers, counted
	// from the admission of the first one. Without it, the first steps would count other sets of
	// gradients. See There.
	StartGrace time.Duration

	// LeaveGrace is how long a worker whose stream broke stays a member: a connection may come back
	// sooner than a process. A new incarnation of its slot ends the wait at once, and so does the
	// news that its process is dead. See There.
	LeaveGrace time.Duration
}

// Ready lists what the conductor has decided since the last call. The caller carries it out in the
// order of the fields.
type Ready struct {
	ToShards  []ToShard
	ToWorkers []ToWorker
	Events    []kintsugi.RunEvent
	Publish   []Publication // run manifests to publish; answer with Published
	StartOver []StartOver   // workers whose streams are to end, so that they begin again

	// Held is the step at which the run stands still, and which is durable, after Hold has been
	// called; nil: not yet, or already reported.
	Held *kintsugi.Step
}

// ToShard is a message to the head of a shard. Messages to one shard must not overtake each other.
type ToShard struct {
	Shard   kintsugi.ShardID
	Message kintsugi.ControlMessage
}

// ToWorker is a message to one incarnation of a worker. It is dropped if that incarnation is gone.
type ToWorker struct {
	Slot        kintsugi.Slot
	Incarnation kintsugi.Incarnation
	Message     kintsugi.ConductorMessage
}

// StartOver says that the stream of one incarnation of a worker must end with an error. The worker
// then connects again, reads the newest version and sends what it has to send.
type StartOver struct {
	Slot        kintsugi.Slot
	Incarnation kintsugi.Incarnation
	Reason      string
}

// Publication asks for a run manifest that names the shard manifests of a step, by shard.
type Publication struct {
	Step      kintsugi.Step
	Manifests []string
	Bytes     uint64
	Took      time.Duration // of the slowest shard
}

// member is a worker that is in the run, or about to be.
type member struct {
	incarnation kintsugi.Incarnation
	change      uint64    // number of the Members message that followed its newest hello
	admitted    bool      // every shard has known it
	greeted     bool      // every shard knows of its newest hello
	gone        time.Time // when its stream broke; zero: connected

	clock  uint64          // number of tickets it has sent, plus joined
	joined uint64          // the clock at which it was admitted
	newest kintsugi.PushID // of its newest ticket, once clock > joined
	held   []kintsugi.ConductorMessage

	kept   bool          // it offers gradients that it has kept in an outage
	oldest kintsugi.Step // if kept: the version of the oldest of them
}

// Conductor decides one line of a run under one fence. It has no lock: one goroutine may use it at
// a time.
type Conductor struct {
	cfg   Config
	round *agg.Round
	ready Ready

	steering *steering // asks the controller for quotas; nil: the configuration sets the quota

	taken    []*kintsugi.Taken // by shard; nil: no answer yet on its present stream
	released kintsugi.Step
	last     kintsugi.Released // the newest release, for shards and workers that missed it
	open     *open             // the committed step that is not released yet

	members map[kintsugi.Slot]*member
	order   []kintsugi.Slot                        // of members, ascending; nil: not known
	count   int                                    // of admitted members; −1: not known
	waiting int                                    // upper bound of the messages that are kept back from members
	lives   map[kintsugi.Slot]kintsugi.Incarnation // newest incarnation that has said hello, whether or not it has left
	change  uint64                                 // number of the newest Members message
	known   []uint64                               // by shard: newest Members message that it has answered
	begins  *kintsugi.Step                         // where a line that keeps an earlier one begins; nil: not known, or another kind of line
	lost    map[kintsugi.ShardID][]kintsugi.Step   // by lost shard: the versions of its chunks
	first   time.Time
	there   map[kintsugi.Slot]kintsugi.Incarnation // the workers whose processes are alive; nil: not known
	seen    map[kintsugi.Slot]kintsugi.Incarnation // by slot: the newest incarnation that there has ever had
	started bool                                   // every expected worker is in, or the grace is over
	decided bool                                   // this conductor has decided a step itself

	save    saving
	running *running // nil: there is no running checkpoint
	stop    *stop
	hold    hold
	done    bool

	// For the next StepEvent.
	lastRelease time.Time
	late        uint32
	dropped     uint32                     // gradients that were kept in an outage and will not be counted
	keeping     map[kintsugi.PushID]uint32 // by open ticket of kept gradients: how many gradients it stands for
	times       times
	reason      string

	pushed, pulled uint64 // bytes in this view up to the last event
}

// open is a committed step.
type open struct {
	commit    kintsugi.Commit
	tickets   []kintsugi.Ticket // as far as this conductor has seen them
	quota     int
	reason    string
	stable    []*kintsugi.Stable // by shard
	here      []*kintsugi.Stable // by shard: of its head, which still waits for the replica after it
	next      []kintsugi.Fence   // by shard: the decision that the replica after its head says it has applied; 0: it has said nothing
	when      []time.Time        // by shard: when it became stable
	committed time.Time
	asked     time.Time // when shards were last asked why they have not taken it, or when it was committed
}

// opened returns a committed step that no shard has answered yet.
func (c *Conductor) opened(now time.Time, quota int, reason string, m kintsugi.Commit) *open {
	n := c.cfg.Shards
	return &open{
		commit: m, quota: quota, reason: reason, committed: now, asked: now,
		stable: make([]*kintsugi.Stable, n), here: make([]*kintsugi.Stable, n), next: make([]kintsugi.Fence, n), when: make([]time.Time, n),
	}
}

type stop struct {
	reason string
	save   bool
}

// New returns a conductor that has not taken its shards yet. now starts its clock. It returns a
// usage error if the configuration makes no sense.
func New(cfg Config, now time.Time) (*Conductor, error) {
	if cfg.Shards < 1 || cfg.Slots < 1 {
		return nil, fmt.Errorf("%w: a run needs at least one shard and one worker, not %d and %d", kintsugi.ErrUsage, cfg.Shards, cfg.Slots)
	}
	if err := cfg.Consistency.Check(cfg.Slots); err != nil {
		return nil, err
	}
	steering, err := newSteering(cfg, now)
	if err != nil {
		return nil, err
	}
	return &Conductor{
		cfg:         cfg,
		steering:    steering,
		count:       -1,
		taken:       make([]*kintsugi.Taken, cfg.Shards),
		known:       make([]uint64, cfg.Shards),
		members:     make(map[kintsugi.Slot]*member),
		lives:       make(map[kintsugi.Slot]kintsugi.Incarnation),
		seen:        make(map[kintsugi.Slot]kintsugi.Incarnation),
		lost:        maps.Clone(cfg.Untold),
		keeping:     make(map[kintsugi.PushID]uint32),
		save:        saving{every: cfg.SaveEvery, after: cfg.SaveAfter, interval: cfg.Interval},
		running:     newRunning(cfg),
		lastRelease: now,
	}, nil
}

// Ready returns what the conductor has decided since the last call, and clears it.
func (c *Conductor) Ready() Ready {
	r := c.ready
	c.ready = Ready{}
	return r
}

// Released returns the newest released step.
func (c *Conductor) Released() kintsugi.Step { return c.released }

// Finished reports whether the run is over: Done has been sent.
func (c *Conductor) Finished() bool { return c.done }

// Stop ends the run after the open step; if save, with a last checkpoint.
func (c *Conductor) Stop(now time.Time, reason string, save bool) {
	if c.stop == nil {
		c.stop = &stop{reason: reason, save: save}
	}
	c.proceed(now)
}

// Tick tells the conductor the time, so that grace periods end.
func (c *Conductor) Tick(now time.Time) {
	for _, slot := range c.slots() {
		m := c.members[slot]
		if !m.gone.IsZero() && now.Sub(m.gone) >= c.cfg.LeaveGrace {
			c.remove(slot, m)
		}
	}
	c.askWhy(now)
	c.proceed(now)
}

// proceed does whatever has become possible: it lets workers go on, decides the next step or ends
// the run.
func (c *Conductor) proceed(now time.Time) {
	if c.round == nil || c.done {
		return
	}
	c.resume()
	if c.open != nil {
		return
	}
	if c.stop != nil || c.released >= c.cfg.Steps {
		c.finish(now)
		return
	}
	if c.hold.on {
		c.stand(now)
		return
	}
	if !c.started && !c.start(now) {
		return
	}
	c.ask(now)
	if d, ok := c.round.Decide(c.admitted()); ok {
		c.commit(now, d)
	}
}

// start reports whether the first step of this conductor may be decided.
func (c *Conductor) start(now time.Time) bool {
	n := c.admitted()
	c.started = n >= c.cfg.Slots || n > 0 && (!c.expected() || now.Sub(c.first) >= c.cfg.StartGrace)
	return c.started
}

// expected reports whether a worker may still come that the first step waits for: one whose process
// is alive. If nobody knows who is, or in the first view of a run, that may be anyone.
func (c *Conductor) expected() bool {
	if c.there == nil || c.cfg.View == 1 {
		return true
	}
	for slot := range c.there {
		if m := c.members[slot]; m == nil || !m.admitted {
			return true
		}
	}
	return false
}

// There tells the conductor which workers' processes are alive. It keeps the map, and each later
// map is newer. The first step does not wait for others, except in the first view of a run, in which
// processes are still to come. No step waits for the connection of a worker whose process is dead.
func (c *Conductor) There(now time.Time, alive map[kintsugi.Slot]kintsugi.Incarnation) {
	c.there = alive
	for slot, inc := range alive {
		c.seen[slot] = max(c.seen[slot], inc)
	}
	for _, slot := range c.slots() {
		if m := c.members[slot]; !m.gone.IsZero() && c.dead(slot, m) {
			c.remove(slot, m)
		}
	}
	c.proceed(now)
}

// dead reports whether the process of a member is known to be dead. One that has never been there
// may have come since: the news is behind what workers say themselves.
func (c *Conductor) dead(slot kintsugi.Slot, m *member) bool {
	return c.seen[slot] >= m.incarnation && c.there[slot] != m.incarnation
}

// commit sends a decided step to every shard.
func (c *Conductor) commit(now time.Time, d agg.Decision) {
	c.decided = true
	step := c.released + 1
	o := c.opened(now, d.Quota, d.Reason, kintsugi.Commit{
		Line: c.cfg.Line, Fence: c.cfg.Fence, Decided: c.cfg.Fence, Step: step,
		Scale: d.Scale, Countable: c.countable(step),
	})
	for _, choice := range d.Choices {
		o.tickets = append(o.tickets, choice.Ticket)
		o.commit.Counted = append(o.commit.Counted, kintsugi.Weighted{Push: choice.Ticket.Push, Weight: choice.Weight})
	}
	part := c.steering.commit(now, &o.commit) * c.cfg.Consistency.RatePart(len(o.commit.Counted), c.admitted())
	o.commit.Optimizer = c.cfg.Schedule.Part(step, part)
	o.commit.Want |= c.wants(step)
	c.open = o
	c.toAllShards(o.commit)
}

// release ends the open step; every shard is stable.
func (c *Conductor) release(now time.Time) {
	o := c.open
	c.open = nil
	c.released = o.commit.Step
	c.steering.released(now, o)
	rel := kintsugi.Released{Line: c.cfg.Line, Fence: c.cfg.Fence, Step: c.released}
	for _, w := range o.commit.Counted {
		rel.Counted = append(rel.Counted, w.Push)
	}
	c.last = rel
	beside := c.save.passed()
	rel.Save = c.save.due(now, c.released, c.released == c.cfg.Steps || (c.stop != nil && c.stop.save) || c.hold.on)
	if rel.Save {
		c.save.begin(now, c.released, c.cfg.Shards)
	}
	exposure := c.plan(o, rel)
	rel.Save = false
	for _, slot := range c.slots() {
		c.tellReleased(slot, rel)
	}
	late := c.round.Release(c.released)
	for _, r := range late {
		c.times.late(r.Push)
		c.refuse(r)
	}
	e := c.event(now, o)
	c.ready.Events = append(c.ready.Events, e)
	c.ready.Events = append(c.ready.Events, exposure...)
	c.running.observe(e)
	c.save.observe(e, beside)
	c.late, c.dropped, c.lastRelease = 0, 0, now
	c.admit(now) // those that waited for this step; then the next step
}

// event returns the event of a released step.
func (c *Conductor) event(now time.Time, o *open) kintsugi.StepEvent {
	e := kintsugi.StepEvent{
		Line: c.cfg.Line, Step: o.commit.Step, Time: now,
		Counted: c.last.Counted, Workers: uint32(c.admitted()), Quota: uint32(o.quota), Late: c.late, Dropped: c.dropped,
		Wait: o.committed.Sub(c.lastRelease), Apply: now.Sub(o.committed), Timeline: c.timeline(o), Times: c.times.take(),
	}
	if o.reason != c.reason {
		c.reason, e.Reason = o.reason, o.reason
	}
	loss := 0.0
	for _, w := range o.commit.Counted {
		e.Kept += c.keeping[w.Push]
		delete(c.keeping, w.Push)
	}
	for _, t := range o.tickets {
		loss += t.Loss * float64(t.Examples)
		e.Examples += t.Examples
		e.Staleness = max(e.Staleness, uint32(o.commit.Step-1-t.Push.Version))
		if c.cfg.Consistency.Clipped(t.SquaredNorm) < 1 {
			e.Clipped++
		}
	}
	e.Loss = loss / float64(max(1, e.Examples))
	norm := 0.0
	for _, s := range o.stable {
		for _, p := range s.Products {
			norm += p.SquaredNorm
		}
		e.Pushed += s.Pushed
		e.Pulled += s.Pulled
		e.Saving = max(e.Saving, s.Saving)
	}
	e.Pushed, c.pushed = e.Pushed-c.pushed, e.Pushed
	e.Pulled, c.pulled = e.Pulled-c.pulled, e.Pulled
	e.Norm = math.Sqrt(norm)
	return e
}

// finish saves the newest version if the run asks for it, and says Done once that is published.
func (c *Conductor) finish(now time.Time) {
	wantSave := c.stop == nil || c.stop.save
	// An earlier conductor has ended the run, and what it has saved is the result.
	if o := c.cfg.Over; o != nil && o.Saved && o.Step == c.released {
		wantSave, c.save.durable = false, o.Step+1
	}
	if wantSave && c.save.newest != c.released+1 && c.save.step == nil {
		c.saveNewest(now)
	}
	if c.save.step != nil {
		return // the end of the save calls proceed
	}
	c.done = true
	d := c.doneMessage()
	c.toAllShards(d)
	for _, slot := range c.slots() {
		c.toWorker(slot, d)
	}
	c.ready.Events = append(c.ready.Events, d)
}

func (c *Conductor) doneMessage() kintsugi.Done {
	d := kintsugi.Done{Step: c.released, Reason: kintsugi.AllSteps, Saved: c.save.durable == c.released+1}
	if c.stop != nil {
		d.Reason = c.stop.reason
	}
	return d
}

// slots returns the members' slots in order, so that the same events give the same messages. The
// caller must not change the result.
func (c *Conductor) slots() []kintsugi.Slot {
	if c.order == nil {
		c.order = slices.Sorted(maps.Keys(c.members))
	}
	return c.order
}

// changed notes that members have come, gone or been admitted.
func (c *Conductor) changed() { c.order, c.count = nil, -1 }

func (c *Conductor) toAllShards(m kintsugi.ControlMessage) {
	for i := range c.cfg.Shards {
		c.toShard(kintsugi.ShardID(i), m)
	}
}

// toShard sends a message to a shard that is taken. For any other shard, resend makes up for it
// later.
func (c *Conductor) toShard(s kintsugi.ShardID, m kintsugi.ControlMessage) {
	if c.taken[s] == nil {
		return
	}
	c.ready.ToShards = append(c.ready.ToShards, ToShard{Shard: s, Message: m})
}

func (c *Conductor) toWorker(slot kintsugi.Slot, m kintsugi.ConductorMessage) {
	c.ready.ToWorkers = append(c.ready.ToWorkers, ToWorker{Slot: slot, Incarnation: c.members[slot].incarnation, Message: m})
}

// refuse tells a worker that its push will never be counted. The worker is a member: tickets of
// others are not taken, and leave forgets those of processes that have gone.
func (c *Conductor) refuse(r kintsugi.Refused) {
	c.late++
	c.dropped += c.keeping[r.Push]
	delete(c.keeping, r.Push)
	c.tell(r.Push.Slot, r)
}

// Fence returns the fence under which the conductor decides.
func (c *Conductor) Fence() kintsugi.Fence { return c.cfg.Fence }
