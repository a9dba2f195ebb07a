package conductor

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
)

// Waits says in words what the run is waiting for, for people who see that no step is taken.
func (c *Conductor) Waits() string {
	switch {
	case c.done:
		return "nothing: the run is over"
	case c.round == nil:
		return fmt.Sprintf("shards %v to say where they stand", c.missing(func(s int) bool { return c.taken[s] != nil }))
	case c.open != nil:
		return fmt.Sprintf("shards %v to take step %d", c.missing(func(s int) bool { return c.open.stable[s] != nil }), c.open.commit.Step)
	case c.save.step != nil && (c.hold.on || c.stop != nil || c.released >= c.cfg.Steps):
		return fmt.Sprintf("the checkpoint of step %d", *c.save.step)
	case c.admitted() < c.cfg.Slots:
		return fmt.Sprintf("workers %v, which are not in, or gradients of the others", c.absent())
	default:
		return fmt.Sprintf("gradients: %d are here", c.round.Waiting())
	}
}

// missing lists the shards that have not.
func (c *Conductor) missing(has func(shard int) bool) (list []int) {
	for s := range c.cfg.Shards {
		if !has(s) {
			list = append(list, s)
		}
	}
	return list
}

// absent lists the places of workers that are empty.
func (c *Conductor) absent() (list []int) {
	for slot := range c.cfg.Slots {
		if m := c.members[kintsugi.Slot(slot)]; m == nil || !m.admitted {
			list = append(list, slot)
		}
	}
	return list
}
