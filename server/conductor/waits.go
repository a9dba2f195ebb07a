package conductor

import (
	"fmt"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Gathers returns for how long the first step has waited for workers that are not in, while others
// are, and how long it will still wait for them; or zeros if it does not.
func (c *Conductor) Gathers(now time.Time) (lasts, left time.Duration) {
	if c.started || c.round == nil || c.done || c.stop != nil || c.hold.on || c.admitted() == 0 || !c.expected() {
		return 0, 0
	}
	lasts = now.Sub(c.first)
	return lasts, max(0, c.cfg.StartGrace-lasts)
}

// Waits says in words what the run is waiting for, for people who see that it makes no steps.
func (c *Conductor) Waits(now time.Time) string {
	_, left := c.Gathers(now)
	switch {
	case c.done:
		return "nothing: the run is over"
	case c.round == nil:
		return fmt.Sprintf("shards %v to say where they stand", c.missing(func(s int) bool { return c.taken[s] != nil }))
	case c.open != nil:
		return fmt.Sprintf("shards %v to take step %d", c.missing(func(s int) bool { return c.open.stable[s] != nil }), c.open.commit.Step) + c.brokenWords()
	case c.save.step != nil && (c.hold.on || c.stop != nil || c.released >= c.cfg.Steps):
		return fmt.Sprintf("the checkpoint of step %d", *c.save.step)
	case left > 0:
		return fmt.Sprintf("workers %s, which are not in; in %v steps begin without those that are missing then", some(c.absent()), max(left.Round(time.Second), time.Second))
	case c.admitted() < c.cfg.Slots:
		return fmt.Sprintf("workers %s, which are not in, or gradients of the others: %s", some(c.absent()), c.owing())
	default:
		return "gradients: " + c.owing()
	}
}

// brokenWords says which gradients of the open step shards lack, or returns "" if none is known.
func (c *Conductor) brokenWords() string {
	var words []string
	for _, t := range c.taken {
		for _, p := range c.lacking(t) {
			words = append(words, brokenWord(t.Shard, p))
		}
	}
	if len(words) == 0 {
		return ""
	}
	const most = 4
	more := ""
	if n := len(words) - most; n > 0 {
		words, more = words[:most], fmt.Sprintf("; and %d more", n)
	}
	return ": " + strings.Join(words, "; ") + more +
		". It is made to push again; if that does not help, end this worker, and then start the server again that heads the shard, so that the step is decided anew"
}

// owing says how many gradients are here, and which members have sent none.
func (c *Conductor) owing() string {
	var owe, gone []int
	for _, slot := range c.slots() {
		switch m := c.members[slot]; {
		case !m.admitted:
		case !m.gone.IsZero():
			gone = append(gone, int(slot))
		case c.round.Has(slot) == 0:
			owe = append(owe, int(slot))
		}
	}
	said := fmt.Sprintf("%d are here", c.round.Waiting())
	if len(owe) > 0 {
		said += fmt.Sprintf(", none of workers %s, which are connected", some(owe))
	}
	if len(gone) > 0 {
		said += fmt.Sprintf("; the streams of workers %s broke", some(gone))
	}
	return said
}

// some lists the first few of many numbers.
func some(list []int) string {
	const most = 16
	if n := len(list) - most; n > 0 {
		return fmt.Sprintf("%v and %d more", list[:most], n)
	}
	return fmt.Sprint(list)
}

// missing lists the shards for which has returns false.
func (c *Conductor) missing(has func(shard int) bool) (list []int) {
	for s := range c.cfg.Shards {
		if !has(s) {
			list = append(list, s)
		}
	}
	return list
}

// absent lists the slots that have no worker.
func (c *Conductor) absent() (list []int) {
	for slot := range c.cfg.Slots {
		if m := c.members[kintsugi.Slot(slot)]; m == nil || !m.admitted {
			list = append(list, slot)
		}
	}
	return list
}
