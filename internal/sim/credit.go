package sim

import (
	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/fates"
)

// several reports whether a worker may have several pushes in flight.
func (s *session) several() bool { return s.c.cfg.Consistency.Pace().Credit > 1 }

// goesOn continues after the ticket of a push that is not encoded, if there may be several.
func (s *session) goesOn() {
	s.asking.expects[s.push] = true
	s.c.inFlight = max(s.c.inFlight, len(s.asking.expects))
	if s.offering != nil {
		s.await(s.c.cfg.Consistency.Pace().Credit, s.told)
		return
	}
	s.after(s.push)
}

// asking is what a session waits for to learn the fates of its open pushes, if they are encoded or
// there may be several.
type asking struct {
	expects  map[kintsugi.PushID]bool // pushes whose tickets were sent
	heard    []fates.Fate             // fates not yet taken in
	ask      []fates.Question         // what is still to be asked about; the first is being sent again
	from     kintsugi.PushID          // the push after them, or, if one of them is on its version (pushed), the last of those
	pushed   bool
	hopeless *kintsugi.Refused
	then     func() // called when fewer than credit pushes are open; nil: nobody waits
	credit   int
}

// await continues with then when fewer than credit pushes are open.
func (s *session) await(credit int, then func()) {
	s.asking.credit, s.asking.then = credit, then
	s.wake()
}

func (s *session) wake() {
	a := &s.asking
	switch then := a.then; {
	case then == nil:
	case a.hopeless != nil:
		s.afterRefusal(*a.hopeless)
	case len(a.expects) < a.credit:
		a.then = nil
		then()
	}
}

// hears notes what the conductor says of open pushes.
func (s *session) hears(m kintsugi.ConductorMessage) {
	a := &s.asking
	settle := func(f fates.Fate) {
		if a.expects[f.Push] {
			delete(a.expects, f.Push)
			a.heard = append(a.heard, f)
		}
	}
	switch m := m.(type) {
	case kintsugi.Released:
		s.newest = max(s.newest, m.Step)
		for _, id := range m.Counted {
			if a.expects[id] {
				s.c.checkToldCounted(s.h, m, id)
			}
			settle(fates.Fate{Push: id, Counted: true})
		}
	case kintsugi.Refused:
		s.c.checkToldRefused(m)
		if a.expects[m.Push] && m.Step <= m.Push.Version {
			a.hopeless = &m
			if s.h.encodes() {
				s.h.coding.book.Void(m.Push)
			}
			delete(a.expects, m.Push)
		}
		settle(fates.Fate{Push: m.Push})
		s.newest = max(s.newest, m.Step)
	}
	s.wake()
}

// after continues when the ticket of a push is sent, with the next gradient as soon as there is
// credit for it.
func (s *session) after(id kintsugi.PushID) {
	pace := s.c.cfg.Consistency.Pace()
	if !pace.Prefetch {
		s.await(pace.Credit, func() {
			if s.newest > id.Version {
				s.read(s.newest, s.turn)
				return
			}
			if id.Sequence++; s.h.encodes() {
				s.encodeTurn(id)
			} else {
				s.compute(id)
			}
		})
		return
	}
	ahead, settled := kintsugi.Step(0), false
	goOn := func() {
		switch {
		case ahead == 0 || !settled:
		case ahead >= s.newest:
			s.sees(ahead)
			s.turn(ahead)
		default:
			s.read(s.newest, s.turn)
		}
	}
	s.readAhead(id.Version+1, func(v kintsugi.Step) { ahead = v; goOn() })
	s.await(1, func() { settled = true; goOn() })
}
