package conductor

import (
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// times are what gradients took that have ended since the last step: for the record of the run, of which nothing is
// decided.
type times struct {
	list []kintsugi.GradientTime
	push []kintsugi.PushID     // by gradient
	in   []kintsugi.WorkerTime // of those that were in time
}

// timelines is of how many steps of a run, at most, a timeline is told.
const timelines = 256

// spareTimes is how many times are kept beyond four for each member: a worker that is told again
// and again that it is too late may not fill the memory of a conductor whose step waits.
const spareTimes = 64

// note notes what a gradient took that a worker has ended.
func (c *Conductor) note(now time.Time, t kintsugi.Ticket, fate kintsugi.Fate) {
	if len(c.times.list) >= 4*len(c.members)+spareTimes {
		return
	}
	c.times.list = append(c.times.list, kintsugi.GradientTime{Slot: t.Push.Slot, Compute: t.Compute, Transfer: t.Transfer, Fate: fate})
	c.times.push = append(c.times.push, t.Push)
	if fate == kintsugi.InTime {
		c.times.in = append(c.times.in, kintsugi.WorkerTime{
			Slot: t.Push.Slot, Told: now.Sub(c.lastRelease), Compute: t.Compute, Transfer: t.Transfer, Spans: t.Spans,
		})
	}
}

// timeline returns that of a step that is released, nil if it is not told.
func (c *Conductor) timeline(o *open) *kintsugi.Timeline {
	if every := c.cfg.Steps/timelines + 1; o.commit.Step%every != 0 {
		return nil
	}
	t := &kintsugi.Timeline{Workers: slices.Clone(c.times.in)}
	for i, s := range o.stable {
		t.Shards = append(t.Shards, kintsugi.ShardTime{Shard: s.Shard, Told: o.when[i].Sub(c.lastRelease), Apply: s.Apply, Publish: s.Publish, Ahead: s.Ahead})
	}
	return t
}

// late notes that a gradient that was in time is not any more.
func (s *times) late(p kintsugi.PushID) {
	for i, have := range s.push {
		if have == p {
			s.list[i].Fate = kintsugi.Late
		}
	}
}

// take returns what was noted, and begins anew. The caller owns it.
func (s *times) take() []kintsugi.GradientTime {
	list := s.list
	s.list, s.push, s.in = nil, s.push[:0], s.in[:0]
	return list
}
