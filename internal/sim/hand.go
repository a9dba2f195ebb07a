package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

const (
	retryAfter = 50 * time.Millisecond
	retryLimit = 2 * time.Second
)

// hand is one life of a worker's process: the shell of package worker as a state machine.
type hand struct {
	*proc
	c           *Cluster
	slot        kintsugi.Slot
	incarnation kintsugi.Incarnation
	view        *kintsugi.View // the view that it follows
	conductor   *proc          // the conductor, as far as the worker knows
	pause       time.Duration  // before the next attempt
	session     *session       // nil: none
	tries       int            // number of sessions so far
	params      []uint64
	away        away
	coding      coding
	finished    bool
	leaving     bool
	sent        kintsugi.PushID // the newest ticket, for a planted bug
}

func (c *Cluster) startWorker(slot int) {
	c.incarnation++
	h := &hand{
		proc: c.newProc(fmt.Sprintf("worker/%d@%d", slot, c.incarnation)), c: c,
		slot: kintsugi.Slot(slot), incarnation: c.incarnation, pause: retryAfter, params: make([]uint64, len(c.layout.Chunks)),
	}
	h.away, h.coding = newAway(c), newCoding(c)
	c.workers[slot] = h
	c.say("%s starts", h.name)
	c.registry.observe(h.proc, h.look)
}

// look reacts to a new view or another conductor.
func (h *hand) look() {
	v, by := h.c.registry.view, h.c.registry.conductor()
	if v == nil || h.finished || (h.view != nil && v.Number == h.view.Number && by == h.conductor) {
		return
	}
	h.view, h.conductor, h.pause = v, by, retryAfter
	h.away.lines.See(h.c.layout, *v)
	if s := h.session; s != nil {
		s.close()
	}
	h.join()
}

// join begins a session.
func (h *hand) join() {
	h.tries++
	s := &session{h: h, c: h.c, view: h.view, line: h.view.Line}
	h.session = s
	s.connect()
}

// again tries again after a pause, unless another session has begun meanwhile.
func (h *hand) again(err error) {
	h.session = nil
	h.c.say("%s: session ended: %v", h.name, err)
	for _, fatal := range []error{kintsugi.ErrOtherModel, kintsugi.ErrFenced, kintsugi.ErrUsage} {
		if errors.Is(err, fatal) {
			h.c.checkTurnedAway(h, err)
			h.c.kill(h.proc, err.Error())
			return
		}
	}
	h.goAway()
	try := h.tries
	h.c.after(h.proc, h.pause, func() {
		if h.tries == try && !h.finished {
			h.join()
		}
	})
	h.pause = min(2*h.pause, retryLimit)
}

// session is the set of streams of a worker in one view.
type session struct {
	h      *hand
	c      *Cluster
	view   *kintsugi.View
	line   kintsugi.Line
	work   *end
	pushes []*end // by shard; nil: it has no chunks
	reads  []*end
	over   bool
	joined bool

	newest kintsugi.Step // the newest version that it knows to be released

	// The current read.
	reading *reading

	// The current push.
	push     kintsugi.PushID
	grads    []uint64
	kept     uint32 // number of kept gradients that it is the mean of
	silent   []bool // by shard: its head has not answered
	flowing  *flow  // the push is being computed; nil: it is whole
	refused  *kintsugi.Refused
	awaiting bool // its ticket was sent, and the next gradient waits for its fate
	ticketed bool // its ticket was sent
	settled  *outcome
	ahead    *kintsugi.Step // version that was read before the fate was known
	prefetch bool           // such a read is under way

	offering *offering // of kept gradients; nil: over, or there were none
	asking   asking    // of encoded pushes
}

// outcome is the fate of a push.
type outcome struct {
	step    kintsugi.Step
	refused *kintsugi.Refused
}

func (s *session) connect() {
	guard := func(f func(any)) func(any) {
		return func(m any) {
			if !s.over {
				f(m)
			} else {
				drop(m)
			}
		}
	}
	h := s.h
	s.pushes, s.reads = make([]*end, len(s.view.Chains)), make([]*end, len(s.view.Chains))
	for i := range s.view.Chains {
		id := kintsugi.ShardID(i)
		if s.c.shards[i].Lo == s.c.shards[i].Hi {
			continue
		}
		to := s.c.lives[s.view.Head(id).Incarnation]
		s.pushes[i] = s.c.open(h.proc, to.proc, pushCall{id}, guard(func(m any) { s.headSays(i, m) }), s.fail)
		s.reads[i] = s.c.open(h.proc, to.proc, readCall{id}, guard(func(m any) { s.arrived(i, m.(*answerFrame)) }), s.fail)
	}
	s.work = s.c.open(h.proc, h.conductor, workCall{}, guard(func(m any) { s.conductorSays(m.(kintsugi.ConductorMessage)) }), s.fail)
	kept, oldest := h.offers(s.line)
	s.work.send(kintsugi.Hello{
		Kept: kept, Oldest: oldest,
		Protocol: kintsugi.ProtocolVersion, Model: s.c.layout.Agreement(), Line: s.line, View: s.helloView(), Slot: h.slot, Incarnation: h.incarnation,
	})
}

// helloView returns the view that the worker says it is in.
func (s *session) helloView() kintsugi.ViewNumber {
	if s.c.cfg.plant == noView {
		return 0
	}
	return s.view.Number
}

// fail ends the session with an error of any of its streams.
func (s *session) fail(err error) {
	if s.over {
		return
	}
	s.close()
	s.h.again(err)
}

func (s *session) close() {
	s.over = true
	s.dropFlow()
	s.putBack()
	s.takeIn()
	s.work.close(errCut)
	for i := range s.pushes {
		s.pushes[i].close(errCut)
		s.reads[i].close(errCut)
	}
}

// conductorSays handles a message of the conductor.
func (s *session) conductorSays(m kintsugi.ConductorMessage) {
	if s.h.encodes() || s.several() {
		s.hears(m)
		if s.over {
			return
		}
	}
	switch m := m.(type) {
	case kintsugi.Admitted:
		if !s.joined {
			s.joined = true
			s.c.checkAdmitted(s)
			s.read(m.Step, s.begin)
		}
	case kintsugi.Released:
		s.newest = max(s.newest, m.Step)
		for _, id := range m.Counted {
			if id == s.push && s.awaiting {
				s.c.checkToldCounted(s.h, m, id)
				s.settle(outcome{step: m.Step})
				return
			}
		}
	case kintsugi.Refused:
		s.c.checkToldRefused(m)
		if m.Push == s.push && s.awaiting {
			s.settle(outcome{step: m.Step, refused: &m})
		}
	case kintsugi.Done:
		s.h.finished = true
		s.close()
	}
}

// turn computes one gradient on a version and pushes it.
func (s *session) turn(v kintsugi.Step) {
	if s.h.encodes() {
		s.encodeTurn(s.id(v))
		return
	}
	s.compute(s.id(v))
}

// id returns the id of the worker's first gradient on a version.
func (s *session) id(v kintsugi.Step) kintsugi.PushID {
	return kintsugi.PushID{Line: s.line, Slot: s.h.slot, Incarnation: s.h.incarnation, Version: v}
}

func (s *session) compute(id kintsugi.PushID) {
	h := s.h
	h.away.comes(id)
	if s.several() && h.leaving {
		s.await(1, func() { s.sayGoodbye() })
		return
	}
	if s.sayGoodbye() {
		return
	}
	if s.flows() {
		s.flow(id)
		return
	}
	s.c.after(h.proc, s.c.computeTime(h.slot), func() {
		if !s.over {
			h.away.goesOut(id)
			s.sendPush(id, h.gradient(id), 0)
		}
	})
}

// gradient returns the gradient that id names, on the current parameters.
func (h *hand) gradient(id kintsugi.PushID) []uint64 {
	sum := digest(h.params)
	grads := make([]uint64, len(h.params))
	for i := range grads {
		grads[i] = gradientOf(id, kintsugi.ChunkID(i), sum)
	}
	return grads
}

// opens makes a gradient, or the mean of the given number of kept gradients, the current push.
func (s *session) opens(id kintsugi.PushID, grads []uint64, kept uint32) {
	s.push, s.grads, s.kept = id, grads, kept
	s.c.cfg.watch.pushed(s)
	s.settled, s.ahead, s.refused, s.awaiting, s.ticketed = nil, nil, nil, false, false
	s.silent = make([]bool, len(s.pushes))
}

// sendPush pushes a gradient, or the mean of the given number of kept gradients.
func (s *session) sendPush(id kintsugi.PushID, grads []uint64, kept uint32) {
	s.opens(id, grads, kept)
	forgotten := -1
	if s.c.cfg.forgets > 0 && s.c.chance(s.c.cfg.forgets) {
		forgotten, s.c.forgot = s.c.rng.IntN(len(s.pushes)), s.c.now // a fault, with or without a storm; it costs ten seconds
	}
	for i, e := range s.pushes {
		if e == nil || i == forgotten {
			continue
		}
		s.silent[i] = true
		s.frames(i, e)
		if s.c.cfg.Faults.Has(Repeat) && s.c.storming() && s.c.chance(0.05) {
			s.frames(i, e) // code that counted a push by its frames would count this one twice
		}
	}
	s.answered() // if the only head was forgotten
}

// frames pushes all chunks of a shard.
func (s *session) frames(i int, e *end) {
	for id := s.c.shards[i].Lo; id < s.c.shards[i].Hi; id++ {
		s.frame(i, e, id, id == s.c.shards[i].Lo)
	}
}

// frame pushes one chunk of a shard.
func (s *session) frame(i int, e *end, id kintsugi.ChunkID, first bool) {
	f := &frame{shard: kintsugi.ShardID(i), push: s.push, chunk: id, value: s.grads[id], first: first}
	if f.value == 0 {
		s.c.fail(conserved, "%s pushes chunk %d of %v, which it has not made", s.h.name, id, s.push)
	}
	if s.c.cfg.Faults.Has(Damage) && s.c.storming() && s.c.chance(0.005) {
		f.value, f.damaged = ^f.value, true
	}
	e.send(f)
}

// headSays handles an answer to a push. A head answers each time the push is sent; the first answer
// counts.
func (s *session) headSays(i int, m any) {
	var id kintsugi.PushID
	switch m := m.(type) {
	case kintsugi.Received:
		id = m.Push
		s.c.checkReceived(m)
	case kintsugi.Refused:
		id = m.Push
		if id == s.push {
			s.refused = &m
		}
	}
	if id != s.push || !s.silent[i] {
		return
	}
	s.silent[i] = false
	s.answered()
}

// answered continues when the push is whole and every head has answered it.
func (s *session) answered() {
	if s.flowing != nil || slices.Contains(s.silent, true) {
		return
	}
	if s.refused != nil {
		s.afterRefusal(*s.refused)
		return
	}
	s.sendTicket()
}

func (s *session) sendTicket() {
	s.awaiting, s.ticketed = !s.h.encodes() && !s.several(), true
	views := make([]kintsugi.ViewNumber, len(s.view.Chains))
	for i := range views {
		views[i] = s.view.Number
	}
	t := kintsugi.Ticket{
		Push: s.push, Views: views, Loss: 1, Examples: examplesOf(s.push), SquaredNorm: s.c.cfg.squaredNormOf(s.push), Kept: s.kept,
	}
	if s.h.encodes() {
		s.tells(t)
		return
	}
	s.h.away.passed(s.push)
	if s.c.cfg.plant != unrepeatedTicket || s.h.sent != s.push {
		s.work.send(t)
	}
	s.h.sent = s.push
	if s.c.cfg.Faults.Has(Repeat) && s.c.storming() && s.c.chance(0.05) {
		s.work.send(t)
	}
	if s.several() {
		s.goesOn()
		return
	}
	if s.c.cfg.prefetches() {
		s.prefetch = true
		s.readAhead(s.push.Version+1, func(v kintsugi.Step) {
			s.prefetch, s.ahead = false, &v
			s.goOn()
		})
	}
}

func (s *session) settle(o outcome) {
	if s.settled == nil {
		s.c.cfg.watch.settled(s, o)
		s.settled = &o
		s.goOn()
	}
}

// goOn reads the version to continue with when the fate of the push is known.
func (s *session) goOn() {
	o := s.settled
	if o == nil {
		return
	}
	if o.refused != nil && o.step <= s.push.Version {
		s.fail(fmt.Errorf("push %v was refused: %s", s.push, o.refused.Reason))
		return
	}
	switch {
	case s.offering != nil:
		s.awaiting = false
		s.told()
	case s.prefetch:
	case s.ahead != nil && *s.ahead >= o.step:
		s.awaiting = false
		s.sees(*s.ahead)
		s.turn(*s.ahead)
	default:
		s.awaiting = false
		s.read(o.step, s.turn)
	}
}

func (s *session) afterRefusal(r kintsugi.Refused) {
	if r.Step <= r.Push.Version {
		s.fail(fmt.Errorf("push %v was refused: %s", r.Push, r.Reason))
		return
	}
	if s.h.encodes() && s.refusedAgain(r) {
		return
	}
	if s.offering != nil {
		s.newest = max(s.newest, r.Step)
		s.drop(s.offering.list[0])
		return
	}
	if s.several() {
		s.newest = max(s.newest, r.Step)
		s.throwAway(r.Push)
		return
	}
	s.read(r.Step, s.turn)
}

// throwAway reports a gradient that will not be offered again, and reads the newest parameters.
func (s *session) throwAway(id kintsugi.PushID) {
	s.h.away.passed(id)
	s.work.send(kintsugi.Ticket{Push: id})
	s.read(s.newest, s.turn)
}

// reading assembles one version from all shards.
type reading struct {
	since   time.Duration
	atLeast kintsugi.Step
	ahead   bool // the version need not be released yet: whoever uses it checks that
	have    []kintsugi.Step
	left    []int // by shard: number of frames of the current answer that are missing
	then    func(kintsugi.Step)
}

func (s *session) read(atLeast kintsugi.Step, then func(kintsugi.Step)) {
	s.begins(&reading{atLeast: atLeast, then: then})
}

// readAhead is read for a version that need not be released yet. The caller uses it when it knows that it
// is.
func (s *session) readAhead(version kintsugi.Step, then func(kintsugi.Step)) {
	s.begins(&reading{atLeast: version, then: then, ahead: true})
}

func (s *session) begins(r *reading) {
	r.since, r.have, r.left = s.c.now, make([]kintsugi.Step, len(s.reads)), make([]int, len(s.reads))
	s.reading = r
	for i := range s.reads {
		s.ask(i)
	}
}

// sees checks and records a version that the worker is about to use, and has read last.
func (s *session) sees(version kintsugi.Step) {
	s.c.checkRead(s.h, s.line, version)
	s.c.cfg.watch.pulled(s, version)
}

func (s *session) ask(i int) {
	if e := s.reads[i]; e != nil {
		s.reading.left[i] = int(s.c.shards[i].Hi - s.c.shards[i].Lo)
		e.send(readRequest{line: s.line, atLeast: s.reading.atLeast, unreleased: s.reading.ahead})
	}
}

// arrived stores one chunk. When every shard has answered, shards that answered with an older
// version than the newest are asked again.
func (s *session) arrived(i int, f *answerFrame) {
	s.h.away.into(s.h)[f.chunk] = f.value()
	line, version := f.line, f.version
	f.done()
	r := s.reading
	n := int(s.c.shards[i].Hi - s.c.shards[i].Lo)
	if line != s.line || (r.left[i] < n && version != r.have[i]) {
		s.c.fail(oneVersion, "%s is sent version %d of line %d amid version %d of line %d", s.h.name, version, line, r.have[i], s.line)
		return
	}
	r.have[i] = version
	r.left[i]--
	newest := kintsugi.Step(0)
	for k := range r.left {
		if r.left[k] > 0 {
			return
		}
		newest = max(newest, r.have[k])
	}
	whole := true
	r.atLeast = newest
	for k := range r.have {
		if s.reads[k] != nil && r.have[k] < newest && s.c.cfg.plant != mixedVersions {
			whole = false
			s.ask(k)
		}
	}
	if whole {
		s.h.away.land(s.h)
		if !r.ahead || s.c.cfg.plant == hastyReader {
			s.sees(newest)
		}
		r.then(newest)
	}
}
