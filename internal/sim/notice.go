package sim

import (
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Processes that get notice of their death, as in package server and cmd/kintsugi: they hand over
// what they can and leave.

// standsStill is the promise of a held run.
const standsStill = "a run that stands for those who leave stands at a step that is durable"

// notice tells a server that it will die after a while.
func (s *serverLife) notice() {
	if s.dead || s.leaving || s.holding {
		return
	}
	warning := s.c.spell()
	s.c.say("%s has notice: %v", s.name, warning)
	s.leaving, s.holding = s.c.cfg.Replicas > 1, s.c.cfg.Replicas < 2
	s.declare()
	if s.leaving {
		s.c.after(s.proc, warning/2, func() {
			s.holding = true
			s.declare()
		})
	}
	s.c.after(s.proc, warning, func() { s.goes("its time is up") })
}

// declare writes what the server wants to the registry, again and again until the registry answers.
func (s *serverLife) declare() {
	s.c.registry.call(s.proc, func() error {
		p := &s.c.registry.places[s.member.Server]
		if p.life == s && (p.leaving != s.leaving || p.holding != s.holding || !slices.Equal(p.apart, s.apart)) {
			p.leaving, p.holding, p.apart = s.leaving, s.holding, s.apart
			s.c.registry.changed()
		}
		return nil
	}, func(err error) {
		if err != nil {
			s.c.after(s.proc, redialAfter, s.declare)
		}
	})
}

// heed asks the conductor, if it is here, to hold the run if a server in the view asks for that.
// The server leaves if the run is held for it.
func (s *serverLife) heed() {
	t := s.tenure
	if t == nil {
		return
	}
	if t.conductor != nil {
		for _, p := range s.c.registry.places {
			if p.life != nil && p.holding && t.view.Servers[p.life.member.Server].Incarnation == p.life.member.Incarnation &&
				slices.Contains(slices.Concat(t.view.Chains...), p.life.member.Server) {
				t.conductor.core.Hold(s.c.wall())
				t.conductor.perform()
			}
		}
	}
	if s.holding && s.c.registry.standing == t.view.Number {
		s.goes("the run stands")
	}
}

// goes ends a server that had notice. If the registry is told, nobody waits for the lease.
func (s *serverLife) goes(why string) {
	if s.dead || !s.leaving && !s.holding {
		return
	}
	if p := &s.c.registry.places[s.member.Server]; p.life == s && s.c.registry.away <= s.c.now {
		p.life = nil
		s.c.registry.changed()
	}
	s.c.kill(s.proc, "it leaves: "+why)
}

// checkHeld checks the report that a run is held.
func (c *Cluster) checkHeld(x *conducting, step kintsugi.Step) {
	x.held = true
	if x.told != 0 && x.told != step {
		c.fail(standsStill, "%s says step %d, and has released step %d", x.p.name, step, x.told)
	}
	for _, m := range c.store.runs {
		if m.line == x.view.Line && m.step == step {
			return
		}
	}
	c.fail(standsStill, "%s says that step %d of line %d is durable, and no manifest names it", x.p.name, step, x.view.Line)
}

// goodbye is an orderly end of a worker's stream.
type goodbye struct{}

// notice tells a worker that it will die after a while.
func (h *hand) notice() {
	if h.dead || h.leaving {
		return
	}
	warning := h.c.spell()
	h.c.say("%s has notice: %v", h.name, warning)
	h.leaving = true
	h.c.after(h.proc, warning, func() { h.c.kill(h.proc, "it leaves: its time is up") })
}

// sayGoodbye leaves, if the worker had notice. The worker knows the fate of all its pushes.
func (s *session) sayGoodbye() bool {
	if !s.h.leaving {
		return false
	}
	s.work.send(goodbye{})
	s.c.after(s.h.proc, s.c.between(0, 100*time.Millisecond), func() { s.c.kill(s.h.proc, "it leaves: it has said good-bye") })
	return true
}
