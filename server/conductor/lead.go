package conductor

import (
	"fmt"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// A member's clock counts its tickets: the gradients it has finished and every shard has held, whether they are
// counted or too late. The slowest may always go on, and while the others wait for it no step makes its gradient
// late; so its clock moves, whatever the quota is, and nobody waits for ever. A gradient that its worker has
// thrown away does not count: the worker goes on without an answer, so that nothing could hold it.
//
// The conductor keeps the lead by silence. A worker begins a gradient when it hears that it is admitted, or
// what became of its push; whoever is more than the lead ahead of the slowest does not hear it yet. So there is
// no permission that could be lost or outlive its sender: after a reconnect the answer to hello is what
// waits. A conductor that takes over knows no clocks and starts all of them at 0: the bound holds from
// there on.

// tick counts a ticket. A worker sends its tickets in order, so whatever is not newer is a repetition.
func (m *member) tick(p kintsugi.PushID) {
	if m.clock == m.joined || p.Compare(m.newest) > 0 {
		m.newest = p
		m.clock++
	}
}

// slowest returns the smallest clock of the admitted members but one, which may be nil. With nobody else
// it returns 0.
func (c *Conductor) slowest(but *member) uint64 {
	least, any := uint64(0), false
	for _, m := range c.members {
		if m.admitted && m != but && (!any || m.clock < least) {
			least, any = m.clock, true
		}
	}
	return least
}

// join starts the clock of a member that is being admitted: at the minimum, or it would hold all others
// until it has made up for gradients that nobody asked of it. Before the first decision nobody has anything to
// make up for: there the order in which workers happen to arrive gives none of them a lead.
func (c *Conductor) join(m *member) {
	m.clock = 0
	if c.decided {
		m.clock = c.slowest(m)
	}
	m.joined = m.clock
}

// ahead reports whether m may not begin another gradient.
func (c *Conductor) ahead(m *member) bool {
	lead := c.cfg.Consistency.Leads()
	return lead != kintsugi.Infinite && !c.done && m.admitted && m.clock-c.slowest(nil) > uint64(lead)
}

// tell sends a member a message that lets it go on, at once or when it is no longer too far ahead.
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
	default: // it goes on without an answer, and would fill the memory of whoever keeps them
		c.ready.StartOver = append(c.ready.StartOver, StartOver{Slot: slot, Incarnation: m.incarnation,
			Reason: fmt.Sprintf("worker/%d goes on without waiting for what becomes of its gradients", slot)})
	}
}

// about returns the push that a kept message lets a worker wait for no longer; the zero id for a welcome.
func about(msg kintsugi.ConductorMessage) kintsugi.PushID {
	switch m := msg.(type) {
	case kintsugi.Released:
		return m.Counted[0]
	case kintsugi.Refused:
		return m.Push
	}
	return kintsugi.PushID{}
}

// resume tells the members what was kept from them, as far as the slowest has caught up.
func (c *Conductor) resume() {
	if c.waiting == 0 { // with thousands of members, asking each after every ticket is what a step would cost
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

// upToDate names the newest version in a message that was kept: the worker goes on from there.
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

// tellReleased tells a member of a release. That a version is there is no secret; that its own push is
// counted is what it may have to wait for.
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
