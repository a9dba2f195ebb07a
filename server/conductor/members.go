package conductor

import (
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// HandleHello begins or renews a worker's membership. An error refuses the worker. If it is
// kintsugi.ErrStaleView, another try may succeed; after any other error it will not.
func (c *Conductor) HandleHello(now time.Time, h kintsugi.Hello) error {
	switch {
	case h.Protocol != kintsugi.ProtocolVersion:
		return fmt.Errorf("%w: worker/%d speaks protocol %d, this server %d; run the same release everywhere",
			kintsugi.ErrOtherModel, h.Slot, h.Protocol, kintsugi.ProtocolVersion)
	case h.Model != c.cfg.Model:
		return fmt.Errorf("%w: worker/%d has a model with fingerprint %016x, this run's is %016x; start it with the run's configuration",
			kintsugi.ErrOtherModel, h.Slot, h.Model, c.cfg.Model)
	case h.Line != c.cfg.Line:
		return fmt.Errorf("%w: worker/%d is on line %d, the run on line %d", kintsugi.ErrStaleView, h.Slot, h.Line, c.cfg.Line)
	case h.View > c.cfg.View:
		// An admitted worker relies on every head being in its view, or in a later one: it writes to the
		// memory that heads read in earlier views.
		return fmt.Errorf("%w: worker/%d is in view %d, this conductor in view %d", kintsugi.ErrStaleView, h.Slot, h.View, c.cfg.View)
	case int(h.Slot) >= c.cfg.Slots:
		return fmt.Errorf("%w: there is no slot %d: the run is made for %d workers", kintsugi.ErrUsage, h.Slot, c.cfg.Slots)
	}
	if newest := c.lives[h.Slot]; newest > h.Incarnation {
		return fmt.Errorf("%w: incarnation %d of worker/%d has taken the place of %d", kintsugi.ErrFenced, newest, h.Slot, h.Incarnation)
	}
	c.lives[h.Slot] = h.Incarnation
	m := c.members[h.Slot]
	if m == nil || m.incarnation != h.Incarnation {
		c.leave(h.Slot, h.Incarnation)
		m = &member{incarnation: h.Incarnation}
		c.members[h.Slot] = m
		c.changed()
	}
	m.gone, m.held = time.Time{}, nil // it does not expect answers to the stream before
	m.kept, m.oldest = h.Kept > 0, h.Oldest
	c.change++
	m.change, m.greeted = c.change, false
	// Nothing will be counted any more. Shards need not know of the worker, and some may be gone.
	if c.done {
		m.greeted = true
		c.welcome(h.Slot)
		return nil
	}
	if c.round != nil { // otherwise takeOver does the same, after it has sent the open commit again
		c.begin(h.Slot)
		c.toAllShards(c.membersMessage())
	}
	c.proceed(now) // the step may have waited for an earlier life
	return nil
}

// begin notes that a member starts from the newest version, or from the oldest version of what it
// has kept.
func (c *Conductor) begin(slot kintsugi.Slot) {
	if m := c.members[slot]; m.kept {
		c.round.BeginFrom(slot, m.oldest)
	} else {
		c.round.Begin(slot)
	}
}

// WorkerGone notes that the stream of a worker's incarnation broke. It may come back until
// LeaveGrace is over, unless its process is dead.
func (c *Conductor) WorkerGone(now time.Time, slot kintsugi.Slot, inc kintsugi.Incarnation) {
	m := c.members[slot]
	if m == nil || m.incarnation != inc || !m.gone.IsZero() {
		return
	}
	m.gone = now
	if c.dead(slot, m) {
		c.remove(slot, m)
		c.proceed(now)
	}
}

// WorkerLeft notes that a worker's incarnation has said good-bye, after it has heard what became of
// all its pushes. No step waits for it any more.
func (c *Conductor) WorkerLeft(now time.Time, slot kintsugi.Slot, inc kintsugi.Incarnation) {
	if m := c.members[slot]; m != nil && m.incarnation == inc {
		c.remove(slot, m)
		c.proceed(now)
	}
}

// remove ends a membership.
func (c *Conductor) remove(slot kintsugi.Slot, m *member) {
	delete(c.members, slot)
	c.changed()
	c.leave(slot, m.incarnation+1)
}

// HandleTicket handles a worker's ticket. Tickets of earlier lines and incarnations are dropped,
// because nobody waits for the answer.
func (c *Conductor) HandleTicket(now time.Time, t kintsugi.Ticket) {
	m := c.members[t.Push.Slot]
	if c.round == nil || c.done || m == nil || !m.admitted || t.Push.Line != c.cfg.Line || t.Push.Incarnation != m.incarnation {
		return
	}
	for _, v := range t.Views {
		if v != c.cfg.View {
			if c.round.Counts(t.Push) {
				// It was counted in an earlier view, by a step that this one goes on with too. The
				// worker must not hear that its gradient is lost.
				break
			}
			c.refuse(kintsugi.Refused{Push: t.Push, Step: c.released, Reason: fmt.Sprintf("received in view %d, the view is %d", v, c.cfg.View)})
			return
		}
	}
	c.arrived(now, t)
	if len(t.Views) == 0 { // thrown away: no shard holds it, and the worker has gone on
		c.late++
		c.dropped += t.Kept
		if t.Examples == 0 {
			c.note(now, t, kintsugi.GivenUp)
		} else {
			c.note(now, t, kintsugi.Late)
		}
		return
	}
	m.tick(t.Push)
	if t.Kept > 0 && !c.round.Released(t.Push) {
		c.keeping[t.Push] = t.Kept
	}
	switch verdict, reason := c.round.Offer(t); verdict {
	case agg.Refuse:
		c.note(now, t, kintsugi.Late)
		c.refuse(kintsugi.Refused{Push: t.Push, Step: c.released, Reason: reason})
	case agg.Counted:
		c.tell(t.Push.Slot, kintsugi.Released{Line: c.cfg.Line, Fence: c.cfg.Fence, Step: c.released, Counted: []kintsugi.PushID{t.Push}})
	case agg.Duplicate:
		c.adoptTicket(t)
	case agg.Open:
		c.note(now, t, kintsugi.InTime)
	}
	c.proceed(now)
}

// adoptTicket remembers the ticket of a push that an earlier conductor counted in the open step,
// because its loss belongs in the event of that step.
func (c *Conductor) adoptTicket(t kintsugi.Ticket) {
	if c.open == nil {
		return
	}
	for _, have := range c.open.tickets {
		if have.Push == t.Push {
			return
		}
	}
	for _, w := range c.open.commit.Counted {
		if w.Push == t.Push {
			c.open.tickets = append(c.open.tickets, t)
		}
	}
}

// admit makes members of the workers that every shard knows, and answers their hello. If the open
// step counts a gradient of an earlier life of a worker, the new life waits for its release. On the
// version before it would compute the same gradient, and that would count a second time where late
// gradients are applied.
func (c *Conductor) admit(now time.Time) {
	for _, slot := range c.slots() {
		m := c.members[slot]
		if m.greeted || !c.everyShardKnows(m.change) || c.countsEarlierLife(slot, m.incarnation) {
			continue
		}
		if !m.admitted {
			c.join(m)
		}
		m.admitted, m.greeted = true, true
		c.changed()
		if c.first.IsZero() {
			c.first = now
		}
		c.welcome(slot)
	}
	c.proceed(now)
}

// countsEarlierLife reports whether the open step counts a gradient of a life of slot before inc.
func (c *Conductor) countsEarlierLife(slot kintsugi.Slot, inc kintsugi.Incarnation) bool {
	return c.open != nil && slices.ContainsFunc(c.open.commit.Counted, func(w kintsugi.Weighted) bool {
		return w.Push.Slot == slot && w.Push.Incarnation < inc
	})
}

func (c *Conductor) everyShardKnows(change uint64) bool {
	for _, k := range c.known {
		if k < change {
			return false
		}
	}
	return true
}

func (c *Conductor) welcome(slot kintsugi.Slot) {
	c.tell(slot, kintsugi.Admitted{Line: c.cfg.Line, Step: c.released})
	if c.done {
		c.toWorker(slot, c.doneMessage())
	}
}

// leave forgets the open tickets of the lives of slot before next.
func (c *Conductor) leave(slot kintsugi.Slot, next kintsugi.Incarnation) {
	for p := range c.keeping {
		if p.Slot == slot && p.Incarnation < next {
			delete(c.keeping, p)
		}
	}
	if c.round != nil {
		c.round.Leave(slot, next)
	}
}

func (c *Conductor) admitted() int {
	if c.count < 0 {
		c.count = 0
		for _, m := range c.members {
			if m.admitted {
				c.count++
			}
		}
	}
	return c.count
}

func (c *Conductor) membersMessage() kintsugi.Members {
	return kintsugi.Members{Line: c.cfg.Line, Fence: c.cfg.Fence, Change: c.change, Countable: c.countable(c.released)}
}

// countable lists, by slot, whose pushes may be counted after step is released. A slot that has
// lost its member stays in the list for as long as it is known which of its pushes were counted
// last. A conductor that takes over would otherwise not know it, and would refuse those pushes when
// their worker comes back and asks. The worker's codec would then send their values a second time.
func (c *Conductor) countable(step kintsugi.Step) []kintsugi.Countable {
	var list []kintsugi.Countable
	for slot := range kintsugi.Slot(c.cfg.Slots) {
		m, x := c.members[slot], kintsugi.Countable{Slot: slot}
		counted := c.round.Newest(slot)
		for len(counted) > 0 && counted[0].Line != c.cfg.Line {
			counted = counted[1:] // of a line that this one keeps: nobody asks about it
		}
		switch {
		case m != nil:
			x.Incarnation, x.Oldest = m.incarnation, c.round.Oldest(slot, step)
		case len(counted) > 0:
			x.Incarnation, x.Oldest = counted[0].Incarnation, kintsugi.Never
		default:
			continue
		}
		if n := len(counted) - 1; n >= 0 && counted[n].Incarnation == x.Incarnation {
			x.Version, x.Next = counted[n].Version, counted[n].Sequence+1
			for _, p := range counted[:n] {
				x.Earlier = append(x.Earlier, kintsugi.Counted{Version: p.Version, Sequence: p.Sequence})
			}
		}
		list = append(list, x)
	}
	return list
}
