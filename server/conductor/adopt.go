package conductor

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// A line that begins with a partial restore begins at the step where the shards that outlived the
// line before stand. Only the shards know that step, because the conductor of that line may be what
// died.

// adopted reports whether every shard stands on the line. When all shards have said where they
// stand, it decides where the line begins and tells those that do not stand on it yet.
func (c *Conductor) adopted() bool {
	all := !slices.ContainsFunc(c.taken, waits)
	if c.begins == nil {
		if len(c.lost) == 0 && all {
			return true
		}
		step := c.beginning()
		c.begins = &step
		for _, t := range c.taken {
			c.adopt(*t)
		}
	}
	if all {
		c.tellLost()
	}
	return all
}

// waits reports whether a shard does not stand on the line yet.
func waits(t *kintsugi.Taken) bool { return t.Standing != kintsugi.Settled }

// adopt tells a shard at which step the line begins, if it waits for that.
func (c *Conductor) adopt(t kintsugi.Taken) {
	if !waits(&t) {
		return
	}
	if t.Standing == kintsugi.Lost {
		if c.lost == nil {
			c.lost = make(map[kintsugi.ShardID][]kintsugi.Step)
		}
		c.lost[t.Shard] = t.Saved
	}
	c.toShard(t.Shard, kintsugi.Adopt{Line: c.cfg.Line, Fence: c.cfg.Fence, Step: *c.begins})
}

// beginning returns the step at which the line begins. If an earlier conductor has begun the line,
// that is where it stands. Otherwise it is the newest step that every kept shard has applied under
// the last decision about it. That takes no released step back: a step that was released on any
// shard is applied on all. One shard may have gone a step further, or have applied an earlier
// decision about the same step; that step was not released, and the shard still has the version
// before it. If no shard was kept, the line begins at the newest version of the chunks that came
// back.
func (c *Conductor) beginning() kintsugi.Step {
	var settled, kept, newest *kintsugi.Step
	for _, t := range c.taken {
		switch t.Standing {
		case kintsugi.Settled:
			settled = &t.Released
		case kintsugi.Kept:
			if kept == nil || t.Applied < *kept {
				kept = &t.Applied
			}
		case kintsugi.Lost:
			for _, s := range t.Saved {
				if newest == nil || s > *newest {
					newest = &s
				}
			}
		}
	}
	if settled == nil && kept != nil && !c.decidedOnce(*kept) {
		before := *kept - 1
		kept = &before
	}
	for _, step := range []*kintsugi.Step{settled, kept, newest} {
		if step != nil {
			return *step
		}
	}
	return 0
}

// decidedOnce reports whether all kept shards that know the commit of a step have applied the same
// decision.
func (c *Conductor) decidedOnce(step kintsugi.Step) bool {
	var fences []kintsugi.Fence
	for _, t := range c.taken {
		for _, r := range t.Records {
			if t.Standing == kintsugi.Kept && r.Step == step && t.Applied >= step {
				fences = append(fences, r.Decided)
			}
		}
	}
	return len(slices.Compact(fences)) <= 1
}

// Untold returns the lost shards whose return has not been reported yet: by shard, the versions of
// their chunks.
func (c *Conductor) Untold() map[kintsugi.ShardID][]kintsugi.Step { return c.lost }

// tellLost reports the return of each shard that was lost and has come back.
func (c *Conductor) tellLost() {
	defer func() { c.lost = nil }()
	for i := range c.taken {
		saved, ok := c.lost[kintsugi.ShardID(i)]
		if !ok {
			continue
		}
		// A shard with two copies chooses between them when it knows the step.
		if now := c.taken[i].Saved; len(now) == len(saved) {
			saved = now
		}
		e := kintsugi.PartialEvent{Line: c.cfg.Line, Step: *c.begins, Shard: kintsugi.ShardID(i), Chunks: uint32(len(saved)), Oldest: *c.begins}
		for _, s := range saved {
			e.Oldest = min(e.Oldest, s)
			e.Age += uint64(*c.begins - min(s, *c.begins))
		}
		c.ready.Events = append(c.ready.Events, e)
	}
}
