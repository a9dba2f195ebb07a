package conductor

import (
	"fmt"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// A member's clock counts its tickets: the gradients that it has finished and that every shard has
// held, whether they are counted or too late. The slowest member may always go on. While the others
// wait for it, no step makes its gradient late. So its clock moves, whatever the quota is, and
// nobody waits for ever. A gradient that its worker has thrown away does not count, because the
// worker goes on without an answer, and nothing could hold it back.
//
// The conductor enforces the lead by not answering. A worker begins a gradient when it hears that
// it is admitted, or what became of its push. A worker that is more than the lead ahead of the
// slowest does not hear it yet. So there is no permission that could be lost or outlive its sender.
// After a reconnection, the answer to hello is what is kept back. A conductor that takes over knows
// no clocks and starts all of them at 0; the bound holds from then on.

// tick counts a ticket. A worker sends its tickets in order, so a ticket that is not newer is a
// repetition.
func (m *member) tick(p kintsugi.PushID) {
	if m.clock == m.joined || p.Compare(m.newest) > 0 {
		m.newest = p
		m.clock++
	}
}

// slowest returns the smallest clock of all admitted members but one, which may be nil. If there
// are no others, it returns 0.
func (c *Conductor) slowest(but *member) uint64 {
	least, any := uint64(0), false
	for _, m := range c.members {
		if m.admitted && m != but && (!any || m.clock < least) {
			least, any = m.clock, true
		}
	}
	return least
}

// join starts the clock of a member that is being admitted. It starts at the minimum; otherwise the
// member would hold up all others until it had made up for gradients that it never had to compute.
// Before the first decision all clocks start at 0, so that no worker gets a lead by arriving early.
func (c *Conductor) join(m *member) {
	if c.decided {
		m.clock = c.slowest(m)
	}
	m.joined = m.clock
}

// ahead reports whether m may not begin another gradient yet.
func (c *Conductor) ahead(m *member) bool {
	lead := c.cfg.Consistency.Leads()
	return lead != kintsugi.Infinite && !c.done && m.admitted && m.clock-c.slowest(nil) > uint64(lead)
}

// tell sends a member a message that lets it go on, either at once or when it is no longer too far
// ahead.
func (c *Conductor) tell(slot kintsugi.Slot, msg kintsugi.ConductorMessage) {
	m := c.members[slot]
	if !c.ahead(m) {
		c.toWorker(slot, msg)
		return
	}
	same := func(kept kintsugi.ConductorMessage) bool { return about(kept) == about(msg) }
	switch {
	case slices.ContainsFunc(m.held, same): // a worker that asks again and again is told once
	case len(m.held) < c.cfg.Consistency.Held():
		m.held = append(m.held, msg)
		c.waiting++
	default: // it goes on without an answer, and its kept messages would fill the memory
		c.ready.StartOver = append(c.ready.StartOver, StartOver{Slot: slot, Incarnation: m.incarnation,
			Reason: fmt.Sprintf("worker/%d goes on without waiting for what becomes of its gradients", slot)})
	}
}

// about returns the push whose answer a kept message is, or the zero id for a welcome.
func about(msg kintsugi.ConductorMessage) kintsugi.PushID {
	switch m := msg.(type) {
	case kintsugi.Released:
		return m.Counted[0]
	case kintsugi.Refused:
		return m.Push
	}
	return kintsugi.PushID{}
}

// resume sends members the messages that were kept back, as far as the slowest member has caught
// up.
func (c *Conductor) resume() {
	// With thousands of members, a look at each after every ticket would cost as much as a step.
	if c.waiting == 0 {
		return
	}
	c.waiting = 0
	for _, slot := range c.slots() {
		m := c.members[slot]
		if len(m.held) == 0 {
			continue
		}
		if c.ahead(m) {
			c.waiting += len(m.held)
			continue
		}
		for _, msg := range m.held {
			c.toWorker(slot, c.upToDate(msg))
		}
		m.held = nil
	}
}

// upToDate names the newest version in a message that was kept back, because the worker goes on
// from there.
func (c *Conductor) upToDate(msg kintsugi.ConductorMessage) kintsugi.ConductorMessage {
	switch m := msg.(type) {
	case kintsugi.Admitted:
		m.Step = c.released
		return m
	case kintsugi.Released:
		m.Step = c.released
		return m
	case kintsugi.Refused:
		m.Step = c.released
		return m
	}
	return msg
}

// tellReleased tells a member of a release. Every member may know that the version is there; only
// the news that its own push is counted may be kept back.
func (c *Conductor) tellReleased(slot kintsugi.Slot, rel kintsugi.Released) {
	if c.ahead(c.members[slot]) {
		own := rel
		own.Counted = slices.DeleteFunc(slices.Clone(rel.Counted), func(p kintsugi.PushID) bool { return p.Slot != slot })
		if len(own.Counted) > 0 {
			c.tell(slot, own)
			rel.Counted = slices.DeleteFunc(slices.Clone(rel.Counted), func(p kintsugi.PushID) bool { return p.Slot == slot })
		}
	}
	c.toWorker(slot, rel)
}
