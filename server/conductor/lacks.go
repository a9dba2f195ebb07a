package conductor

import (
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// A worker's ticket says that every head has its gradient, and the conductor believes it: to ask
// the heads would cost every step a message for each gradient and shard. A worker that does not
// keep to that, because of a fault in it or because it lies, leaves a step with which a shard
// cannot begin. Others may have applied it, so it stays what was decided; what is missing can come,
// for the id says which bytes those are. So the shards are asked why they have not taken a step
// that is open for long, and a worker whose push one of them lacks is made to start over: on the
// version that it has pushed on it computes the same gradient, and pushes it to all heads.

// askAfter is how long a step is open, or was asked about, before the shards that have not taken it
// are asked why. One that is applying it answers when it has.
const askAfter = 10 * time.Second

// askWhy asks the shards that keep the open step waiting where they stand. To be taken again under
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

// lacking returns the pushes of the open step that a shard has said it lacks.
func (c *Conductor) lacking(t *kintsugi.Taken) (list []kintsugi.PushID) {
	if c.open == nil || t == nil || c.open.stable[t.Shard] != nil {
		return nil
	}
	for _, w := range c.open.commit.Counted { // what it has said may be of another step
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
