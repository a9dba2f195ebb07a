package conductor

import (
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// A worker's ticket says that every head has its gradient, and the conductor believes it: asking
// the heads would cost a message for each gradient and shard in every step. If a worker's ticket is
// false, because of a fault or a lie, a shard cannot begin the step that counts it. Other shards
// may have applied the step, so the decision stays. What is missing can still arrive, since the
// push id determines the bytes. So the conductor asks the shards why they have not taken a step
// that has been open for long, and makes each worker start over whose push a shard lacks. The
// worker computes the same gradient again on the version of that push, and pushes it to all heads.

// askAfter is how long a step must have been open, or since the last question, before the shards
// that have not taken it are asked why. A shard that is applying the step answers when it has
// finished.
const askAfter = 10 * time.Second

// askWhy asks the shards that have not applied the open step where they stand. A second Take under
// the same fence changes nothing for them.
func (c *Conductor) askWhy(now time.Time) {
	if c.open == nil || c.done || now.Sub(c.open.asked) < askAfter {
		return
	}
	c.open.asked = now
	for s, t := range c.taken {
		if t != nil && c.open.stable[s] == nil {
			c.toShard(kintsugi.ShardID(s), kintsugi.Take{Line: c.cfg.Line, View: c.cfg.View, Fence: c.cfg.Fence})
		}
	}
}

// lacking returns the pushes of the open step that a shard says it lacks.
func (c *Conductor) lacking(t *kintsugi.Taken) (list []kintsugi.PushID) {
	if c.open == nil || t == nil || c.open.stable[t.Shard] != nil {
		return nil
	}
	for _, w := range c.open.commit.Counted { // the answer may be about another step
		if slices.Contains(t.Lacks, w.Push) {
			list = append(list, w.Push)
		}
	}
	return list
}

// startOver makes the workers start over whose pushes a shard lacks.
func (c *Conductor) startOver(t kintsugi.Taken) {
	for _, p := range c.lacking(&t) {
		if m := c.members[p.Slot]; m != nil && m.incarnation == p.Incarnation && m.gone.IsZero() {
			c.ready.StartOver = append(c.ready.StartOver, StartOver{Slot: p.Slot, Incarnation: p.Incarnation, Reason: brokenWord(t.Shard, p)})
		}
	}
}

// brokenWord says what is wrong with a push that a shard lacks.
func brokenWord(s kintsugi.ShardID, p kintsugi.PushID) string {
	return fmt.Sprintf("shard %d lacks the gradient %v, of which the worker has said that every head has it", s, p)
}
