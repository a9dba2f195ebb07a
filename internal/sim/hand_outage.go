package sim

import (
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/kept"
)

// keptArrays is how many gradients a worker keeps separately, as in package worker.
const keptArrays = 4

// away simulates package worker's outage, what a worker does while servers are away, as a state
// machine around the real queue. The queue decides what is kept, merged and given up. The hashes of
// its gradients are stored separately.
type away struct {
	queue *kept.Queue // nil: the worker only waits
	made  map[kintsugi.PushID]offer
	spare []uint64 // versions are read into it, so that the previous version stays whole if the read breaks

	at    kintsugi.PushID // the gradient that is being computed or comes next, on the current parameters
	known bool            // at is valid
	out   kintsugi.PushID // the newest gradient whose push began, in any session
	told  kintsugi.PushID // the newest gradient that a conductor was told of, in any session
	going int             // counter of outages; an even number: there is none now

	newest kintsugi.PushID // newest gradient that was computed in an outage
	lines  kept.Lines
}

// after returns the first gradient, from id on, that no outage has computed.
func (a *away) after(id kintsugi.PushID) kintsugi.PushID {
	if n := a.newest; n.Line == id.Line && n.Version == id.Version && id.Compare(n) <= 0 {
		id.Sequence = n.Sequence + 1
	}
	return id
}

// offer is a kept push: the hash of its gradients, and its composition.
type offer struct {
	values []uint64
	of     recipe
}

// recipe is the composition of a kept push: a single gradient, or parts that were merged one after
// the other. If it was carried over to another line, it also says to which version.
type recipe struct {
	gradient kintsugi.PushID
	parts    []recipe
	onto     *kintsugi.PushID
}

// with returns r with one more gradient.
func (r recipe) with(id kintsugi.PushID) recipe {
	if r.parts == nil || r.onto != nil {
		r = recipe{parts: []recipe{r}}
	}
	return recipe{parts: append(r.parts, recipe{gradient: id})}
}

// members returns the gradients that the push consists of.
func (r recipe) members() (ids []kintsugi.PushID) {
	if r.parts == nil {
		return []kintsugi.PushID{r.gradient}
	}
	for _, p := range r.parts {
		ids = append(ids, p.members()...)
	}
	return ids
}

// line returns the line of the push, or 0 if its parts are of several lines.
func (r recipe) line() kintsugi.Line {
	switch {
	case r.onto != nil:
		return r.onto.Line
	case r.parts == nil:
		return r.gradient.Line
	}
	for _, p := range r.parts {
		if p.line() != r.parts[0].line() {
			return 0
		}
	}
	return r.parts[0].line()
}

func newAway(c *Cluster) away {
	if !c.cfg.Consistency.Continue {
		return away{}
	}
	return away{
		queue: kept.New(kept.Config{Rule: c.cfg.Consistency.Keep, Values: 1, Most: keptArrays}),
		made:  make(map[kintsugi.PushID]offer), spare: make([]uint64, len(c.layout.Chunks)),
	}
}

// into returns the memory to read versions into.
func (a *away) into(h *hand) []uint64 {
	if a.queue == nil {
		return h.params
	}
	return a.spare
}

// land makes a version that was read the current one. It ends an outage.
func (a *away) land(h *hand) {
	if a.queue != nil {
		h.params, a.spare = a.spare, h.params
		a.going += a.going % 2
	}
}

func (a *away) comes(id kintsugi.PushID) { a.at, a.known = id, true }

// goesOut notes that a head may have bytes of a gradient from now on, as package worker does.
func (a *away) goesOut(id kintsugi.PushID) {
	if a.out.Line != id.Line || id.Compare(a.out) > 0 {
		a.out = id
	}
}

func (a *away) wentOut(id kintsugi.PushID) bool {
	return a.out.Line == id.Line && a.out.Version == id.Version && id.Compare(a.out) <= 0
}

// unsent returns the first gradient, from id on, that no head has bytes of.
func (a *away) unsent(id kintsugi.PushID) kintsugi.PushID {
	if a.wentOut(id) {
		id.Sequence = a.out.Sequence + 1
	}
	return id
}

// untold returns the first gradient, from id on, that no conductor was told of.
func (a *away) untold(id kintsugi.PushID) kintsugi.PushID {
	if t := a.told; t.Line == id.Line && t.Version == id.Version && id.Compare(t) <= 0 {
		id.Sequence = t.Sequence + 1
	}
	return id
}

// passed notes that the ticket of a gradient was sent, so the gradient is not offered again.
func (a *away) passed(id kintsugi.PushID) {
	if a.told.Line != id.Line || id.Compare(a.told) > 0 {
		a.told = id
	}
	if a.known && a.at == id {
		id.Sequence++
		a.comes(id)
	}
}

// goAway continues computing on the parameters that the last session has left.
func (h *hand) goAway() {
	a := &h.away
	if a.queue == nil || a.going%2 == 1 || !a.known {
		return
	}
	a.going++
	at := a.untold(a.after(a.at))
	if h.c.cfg.Consistency.Keep == kintsugi.KeepLocal {
		a.queue.Along(at, func(kept.Gradient) { at = a.unsent(at) })
	}
	first := a.wentOut(at)
	h.c.say("%s goes on with version %d", h.name, at.Version)
	h.keepOn(at, first, a.going)
}

// keepOn computes one gradient after the other and keeps them, until the outage is over.
func (h *hand) keepOn(id kintsugi.PushID, first bool, outage int) {
	h.c.after(h.proc, h.c.computeTime(h.slot), func() {
		if h.away.going == outage && !h.finished {
			h.keep(id, first)
			id.Sequence++
			h.keepOn(h.away.unsent(id), false, outage)
		}
	})
}

func (h *hand) keep(id kintsugi.PushID, first bool) {
	a := &h.away
	in := a.queue.Keep(id, 1, examplesOf(id), []float32{0}, first)
	x := offer{h.gradient(id), recipe{gradient: id}}
	if in != id {
		was := a.made[in]
		for i := range x.values {
			x.values[i] = mix(was.values[i], x.values[i])
		}
		x.of = was.of.with(id)
	}
	a.made[in] = x
	if a.newest = id; h.c.cfg.plant == keptAgain {
		a.newest = in
	}
	h.c.outages.Computed++
	h.c.outages.Most = max(h.c.outages.Most, a.queue.Len())
	if a.queue.Len() > keptArrays {
		h.c.fail(keptBounded, "%s keeps %d gradients beside one another", h.name, a.queue.Len())
	}
}

// carryOver carries a path over to the line of to, the first gradient on the current parameters, as
// package worker does. The former parameters are in the spare memory.
func (h *hand) carryOver(to kintsugi.PushID) {
	a := &h.away
	if a.queue == nil || !a.known || a.at.Line == to.Line || h.c.cfg.Consistency.Keep != kintsugi.KeepLocal {
		return
	}
	defer a.lines.Forget(to.Line)
	from, bound := a.at, h.c.cfg.Consistency.Pace().Staleness
	restored, known := a.lines.Since(from.Line, to.Line)
	if !known || to.Version < from.Version || bound != kintsugi.Infinite && to.Version > from.Version+kintsugi.Step(bound) {
		return
	}
	x := offer{of: recipe{onto: &to}}
	a.queue.Along(from, func(g kept.Gradient) {
		part := a.made[g.ID]
		if x.of.parts = append(x.of.parts, part.of); x.values == nil {
			x.values = slices.Clone(part.values)
			return
		}
		for i := range x.values {
			x.values[i] = mix(x.values[i], part.values[i])
		}
	})
	id, ok := a.queue.Onto(from, to, nil, []float32{0}, []float32{0})
	if !ok {
		return
	}
	for _, r := range restored {
		for i, chunk := range h.c.layout.Chunks {
			if r.Lo <= chunk.Lo && chunk.Lo < r.Hi && h.c.cfg.plant != movedWhole {
				x.values[i] = mix(x.values[i], h.params[i])
			}
		}
	}
	a.made[id] = x
	h.c.outages.Moved += len(x.of.members())
	if a.newest.Line == from.Line && a.newest.Version == to.Version {
		a.newest.Line = to.Line
	} else {
		a.newest = id
	}
	h.c.say("%s takes what it has learnt alone from version %d onto version %d of line %d", h.name, from.Version, to.Version, to.Line)
}

// offers returns what will be offered of an outage on a line.
func (h *hand) offers(line kintsugi.Line) (n uint32, oldest kintsugi.Step) {
	a := &h.away
	if a.queue == nil || !a.known || a.at.Line != line {
		return 0, 0
	}
	if oldest, ok := a.queue.Oldest(); ok {
		return 1, min(oldest, a.at.Version)
	}
	if a.going%2 == 1 {
		return 1, a.at.Version
	}
	return 0, 0
}

// offering is the state of offering kept gradients: the first of list is next, or under way.
type offering struct {
	list  []kept.Gradient
	next  kintsugi.PushID // the first gradient on the current parameters
	ready bool            // it is computed
}

// begin starts to work on a version: first with the kept gradients, if there are any.
func (s *session) begin(v kintsugi.Step) {
	s.newest = max(s.newest, v)
	a := &s.h.away
	s.h.carryOver(s.id(v))
	id := a.after(s.id(v))
	a.comes(id)
	if s.c.cfg.plant == forgottenPush {
		a.out, a.told = kintsugi.PushID{}, kintsugi.PushID{}
	}
	if s.h.encodes() {
		s.resume(id)
		return
	}
	s.asking.expects = make(map[kintsugi.PushID]bool)
	if a.queue == nil {
		s.compute(id)
		return
	}
	list, lost := a.queue.Take()
	if lost > 0 {
		s.work.send(kintsugi.Ticket{Push: id, Kept: lost, Examples: 1})
	}
	s.offering = &offering{list: list, next: id}
	s.offerNext()
}

// offerNext offers the next kept gradient, or continues with the run.
func (s *session) offerNext() {
	o := s.offering
	if len(o.list) == 0 {
		s.offering = nil
		switch {
		case o.ready:
			s.h.away.comes(o.next)
			s.h.away.goesOut(o.next)
			s.sendPush(o.next, s.h.gradient(o.next), 0)
		case s.newest > o.next.Version:
			s.read(s.newest, s.turn)
		default:
			s.compute(o.next)
		}
		return
	}
	g := o.list[0]
	if s.c.cfg.plant == otherLine {
		g.ID.Line = s.line
	}
	bound := s.c.cfg.Consistency.Pace().Staleness
	switch {
	case g.ID.Line != s.line || bound != kintsugi.Infinite && s.newest > g.ID.Version+kintsugi.Step(bound):
		s.drop(g)
	case (g.ID.Version < o.next.Version || g.Moved) && !o.ready: // the first gradient on the new parameters decides whether they point apart
		s.c.after(s.h.proc, s.c.computeTime(s.h.slot), func() {
			if !s.over {
				o.ready = true
				s.offerNext()
			}
		})
	case o.ready && s.c.cfg.Faults != 0 && s.c.chance(0.2):
		s.drop(g)
	default:
		x := s.h.away.made[o.list[0].ID]
		n := g.Merged
		if g.First {
			n = 0
		}
		o.list[0].Sent = s.c.cfg.plant != mergedIntoSent
		s.c.outages.Offered += len(x.of.members())
		s.c.offered[g.ID] = offered{of: x.of, kept: n}
		s.sendPush(g.ID, x.values, n)
	}
}

// told continues when the fate of a kept gradient is known.
func (s *session) told() {
	s.offering.list = s.offering.list[1:]
	s.offerNext()
}

// drop reports to the conductor that gradients will not be offered.
func (s *session) drop(g kept.Gradient) {
	s.c.outages.Dropped += int(g.Merged)
	s.work.send(kintsugi.Ticket{Push: s.offering.next, Kept: g.Merged, Examples: 1})
	s.offering.list = s.offering.list[1:]
	s.offerNext()
}

// putBack keeps what a broken session has not offered, except gradients that the conductor may have
// heard of.
func (s *session) putBack() {
	o := s.offering
	if o == nil {
		return
	}
	s.offering = nil
	if s.ticketed && len(o.list) > 0 && s.push == o.list[0].ID {
		o.list = o.list[1:]
	}
	s.h.away.queue.Back(o.list)
}

// OutageResult is what all lives of all workers have done while servers were away.
type OutageResult struct {
	Computed int // number of gradients
	Most     int // largest number of arrays of the size of the model that one worker has kept
	Bound    int // limit on Most, however long the outage is
	Offered  int // gradients that were pushed, alone or merged; repetitions count again
	Counted  int // offered gradients that steps have counted
	Dropped  int // gradients that were not offered
	Moved    int // gradients that were carried over to a line that keeps theirs

	Back time.Duration // with Config.Outage: time from the return of all servers to the next step
}

// spendOutage begins the outage of Config.Outage at the middle step, and ends it at the first step
// after it.
func (c *Cluster) spendOutage(step kintsugi.Step) {
	switch {
	case c.cfg.Outage == 0:
	case c.outageAt == 0 && step == c.cfg.Steps/2:
		c.outageAt = c.now
		c.after(nil, 0, func() {
			c.away = c.cfg.Outage
			for _, s := range c.servers {
				c.kill(s.proc, "all servers go")
			}
			c.away = 0
		})
	case c.outages.Back == 0 && c.now > c.outageAt+c.cfg.Outage:
		c.outages.Back = c.now - c.outageAt - c.cfg.Outage
	}
}

// offered is the meaning of a push that was kept in an outage.
type offered struct {
	of   recipe
	kept uint32 // as its ticket says
}

// members returns the gradients that a push consists of.
func (c *Cluster) members(id kintsugi.PushID) []kintsugi.PushID {
	if x, ok := c.offered[id]; ok {
		return x.of.members()
	}
	return []kintsugi.PushID{id}
}

// pushed returns the correct value of one chunk of a push.
func (c *Cluster) pushed(id kintsugi.PushID, chunk kintsugi.ChunkID) uint64 {
	if x, ok := c.offered[id]; ok {
		return c.oracle.made(x.of, chunk, c.shardOf(chunk))
	}
	if x := c.encoded[id]; x != nil {
		return x[chunk]
	}
	return c.oracle.gradient(id, chunk)
}

func (c *Cluster) shardOf(chunk kintsugi.ChunkID) kintsugi.ShardID {
	return kintsugi.ShardID(slices.IndexFunc(c.shards, func(r kintsugi.ChunkRange) bool { return r.Lo <= chunk && chunk < r.Hi }))
}

// goesOn reports whether a push on a line consists of gradients of that line or of lines that it
// keeps.
func (c *Cluster) goesOn(r recipe, line kintsugi.Line) bool {
	if r.line() != line {
		return false
	}
	for _, p := range r.parts {
		from := line
		if r.onto != nil {
			b := c.oracle.begun[line]
			if from = p.line(); b == nil || from < b.keeps || from >= line || from != r.parts[0].line() {
				return false
			}
		}
		if !c.goesOn(p, from) {
			return false
		}
	}
	return true
}
