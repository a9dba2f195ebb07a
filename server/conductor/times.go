package conductor

import (
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// times has the times of the gradients that have ended since the last step. They are for the record
// of the run; no decision depends on them.
type times struct {
	list []kintsugi.GradientTime
	push []kintsugi.PushID     // by gradient
	in   []kintsugi.WorkerTime // of the gradients that were in time
}

// timelines is the largest number of steps of a run for which a timeline is reported.
const timelines = 256

// spareTimes is how many times are kept beyond four for each member. A worker that is told again
// and again that it is too late must not fill the memory of a conductor whose step waits.
const spareTimes = 64

// note records the times of a gradient that a worker has ended.
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

// timeline returns the timeline of a released step, nil if none is reported.
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

// late notes that a gradient that was in time has become late.
func (s *times) late(p kintsugi.PushID) {
	for i, have := range s.push {
		if have == p {
			s.list[i].Fate = kintsugi.Late
		}
	}
}

// take returns the recorded times and begins anew. The caller owns the result.
func (s *times) take() []kintsugi.GradientTime {
	list := s.list
	s.list, s.push, s.in = nil, s.push[:0], s.in[:0]
	return list
}
