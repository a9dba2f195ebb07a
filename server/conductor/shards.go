package conductor

import (
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// ShardConnected notes that a new control stream to a shard is open; what was sent on the one
// before may be lost. The shard is sent nothing but Take until it has answered that, and until
// every shard has answered its first one. A Members message that overtook a commit would void the
// pushes that the commit names.
func (c *Conductor) ShardConnected(s kintsugi.ShardID) {
	c.taken[s] = nil
	c.running.lose(s)
	take := kintsugi.Take{Line: c.cfg.Line, View: c.cfg.View, Fence: c.cfg.Fence}
	c.ready.ToShards = append(c.ready.ToShards, ToShard{Shard: s, Message: take})
}

// HandleReplica handles a message of a shard's replica. It ignores messages under another fence,
// which are for an earlier conductor.
func (c *Conductor) HandleReplica(now time.Time, msg kintsugi.ReplicaMessage) {
	switch m := msg.(type) {
	case kintsugi.Taken:
		if m.Fence == c.cfg.Fence && int(m.Shard) < c.cfg.Shards {
			c.handleTaken(now, m)
		}
	case kintsugi.MembersKnown:
		if m.Fence == c.cfg.Fence && int(m.Shard) < c.cfg.Shards {
			c.known[m.Shard] = max(c.known[m.Shard], m.Change)
			c.admit(now)
		}
	case kintsugi.Stable:
		if m.Fence == c.cfg.Fence && int(m.Shard) < c.cfg.Shards {
			c.handleStable(now, m)
		}
	case kintsugi.Saved:
		if int(m.Shard) < c.cfg.Shards {
			c.handleSaved(now, m)
		}
	default:
		panic("conductor: unknown replica message")
	}
}

func (c *Conductor) handleTaken(now time.Time, m kintsugi.Taken) {
	c.taken[m.Shard] = &m
	if c.round != nil {
		c.resend(m)
		c.startOver(m)
		return
	}
	// Tell it at once: some shard may be away by now, and when that answers, this one may be away.
	if c.begins != nil {
		c.adopt(m)
	}
	for _, t := range c.taken {
		if t == nil {
			return
		}
	}
	if c.adopted() {
		c.takeOver(now)
	}
}

// takeOver starts deciding, because every shard has promised the fence. The shards' answers say
// where the run stands: a step that was released on any shard is stable on all, and at most one
// step lies beyond it.
func (c *Conductor) takeOver(now time.Time) {
	var records []kintsugi.Commit
	for _, t := range c.taken {
		c.released = max(c.released, t.Released)
		records = append(records, t.Records...)
	}
	c.round = agg.NewRound(c.cfg.Consistency, c.released)
	c.last = kintsugi.Released{Line: c.cfg.Line, Fence: c.cfg.Fence, Step: c.released}
	var next *kintsugi.Commit
	for _, r := range records {
		if r.Step == c.released || r.Step == c.released+1 {
			c.round.Remember(countedBefore(r))
		}
		if r.Step == c.released {
			c.last.Counted = c.last.Counted[:0]
			for _, w := range r.Counted {
				c.last.Counted = append(c.last.Counted, w.Push)
			}
		}
		if r.Step == c.released+1 && (next == nil || r.Decided > next.Decided) {
			next = &r
		}
	}
	c.round.Remember(c.last.Counted)
	if next != nil && c.cfg.Continues && !c.everywhere(*next) {
		// Some shard lacks the gradients that it counts. The step is decided anew, and the new
		// decision replaces it where it is applied.
		next = nil
	}
	if next != nil {
		commit := *next
		commit.Fence = c.cfg.Fence
		c.open = c.opened(now, len(commit.Counted), "what the conductor before has decided", commit)
		c.round.Adopt(commit.Counted)
	}
	for _, slot := range c.slots() {
		c.begin(slot)
	}
	c.lastRelease = now
	c.running.begin(c.released, c.taken)
	for _, t := range c.taken {
		c.resend(*t)
	}
	c.proceed(now)
}

// countedBefore returns the newest pushes of each worker that had been counted when a step was
// decided.
func countedBefore(m kintsugi.Commit) (list []kintsugi.PushID) {
	for _, x := range m.Countable {
		if x.Next == 0 {
			continue
		}
		for _, p := range slices.Concat(x.Earlier, []kintsugi.Counted{{Version: x.Version, Sequence: x.Next - 1}}) {
			list = append(list, kintsugi.PushID{Line: m.Line, Slot: x.Slot, Incarnation: x.Incarnation, Version: p.Version, Sequence: p.Sequence})
		}
	}
	return list
}

// everywhere reports whether every shard has applied a commit under the same decision.
func (c *Conductor) everywhere(m kintsugi.Commit) bool {
	return !slices.ContainsFunc(c.taken, func(t *kintsugi.Taken) bool {
		return t.Applied < m.Step || !slices.ContainsFunc(t.Records, func(r kintsugi.Commit) bool { return r.Step == m.Step && r.Decided == m.Decided })
	})
}

// resend sends a shard whatever it may have missed. All messages are idempotent: a shard that has
// one already answers again.
func (c *Conductor) resend(t kintsugi.Taken) {
	if t.Released < c.released {
		c.toShard(t.Shard, c.last)
	}
	if c.open != nil {
		c.toShard(t.Shard, c.open.commit)
	}
	if c.change > 0 {
		c.toShard(t.Shard, c.membersMessage())
	}
	if c.save.step != nil && c.save.shards[t.Shard] == nil {
		wish := c.last // for a step before the newest, it only asks what became of the save
		wish.Step, wish.Save = *c.save.step, true
		c.toShard(t.Shard, wish)
	}
	if c.done {
		c.toShard(t.Shard, c.doneMessage())
	}
}

// HandleNext handles what the replica after the head of a shard has answered to that head. If the
// head has said that it waits for this answer, the shard is stable: the conductor need not wait until
// the head passes the answer on. Nothing else depends on it, so it may be lost. It ignores messages
// under another fence.
func (c *Conductor) HandleNext(now time.Time, m kintsugi.Stable) {
	o := c.open
	if m.Fence != c.cfg.Fence || int(m.Shard) >= c.cfg.Shards || o == nil || m.Step != o.commit.Step || o.stable[m.Shard] != nil {
		return
	}
	o.next[m.Shard] = m.Decided
	if s := o.here[m.Shard]; s != nil {
		c.handleStable(now, *s)
	}
}

func (c *Conductor) handleStable(now time.Time, m kintsugi.Stable) {
	o := c.open
	if o == nil || m.Step != o.commit.Step {
		return
	}
	if next := o.next[m.Shard]; m.Waits && (next == 0 || next != m.Decided) {
		o.here[m.Shard] = &m
		return
	}
	if s := o.here[m.Shard]; s != nil && s.Decided == m.Decided {
		m = *s // it has the durations since the answer before
	}
	o.stable[m.Shard], o.when[m.Shard] = &m, now
	for _, s := range c.open.stable {
		if s == nil {
			return
		}
	}
	c.release(now)
}
