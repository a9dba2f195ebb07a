package conductor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/dbw"
)

// steering tells a controller of the run and asks it for quotas. A conductor that takes over begins with one that
// knows nothing: what an earlier one has learnt is worth less than the certainty that nothing is believed that no
// shard has said. Nil steers nothing: the quota is that of the configuration.
type steering struct {
	controller dbw.Controller
	clipped    func(squaredNorm float64) float64 // see agg.Config
	uneven     bool
	origin     time.Time

	asked  bool          // for the step after version
	after  kintsugi.Step // version
	since  time.Time     // when it was asked
	choice dbw.Choice
	early  []dbw.Arrival // the newest ticket of each worker that came before the first question

	messages map[kintsugi.Slot]message // in the newest step that it has seen, step
	step     kintsugi.Step
}

// message is what a worker's gradients are of a step.
type message struct{ share, clipped float64 }

// newSteering returns the steering of a configuration, nil if it has no controller.
func newSteering(cfg Config, now time.Time) (*steering, error) {
	if cfg.Consistency.Controller == "" {
		return nil, nil
	}
	c, err := dbw.New(cfg.Consistency.Controller, cfg.Consistency.Busy)
	return &steering{controller: c, clipped: cfg.Consistency.Clipped, uneven: cfg.Uneven, origin: now, choice: dbw.Choice{Rate: 1}}, err
}

func (s *steering) seconds(t time.Time) float64 { return t.Sub(s.origin).Seconds() }

// ask has the quota of the step after the released version chosen, once, and again when those that came are all that
// is worth waiting for.
func (c *Conductor) ask(now time.Time) {
	s := c.steering
	if s == nil || c.admitted() == 0 {
		return
	}
	if !s.asked || s.after != c.released {
		s.asked, s.after, s.since = true, c.released, now
		s.choice = s.controller.Choose(dbw.Release{
			Version: c.released, At: s.seconds(now), Members: c.admitted(), Optimizer: c.cfg.Schedule.At(c.released + 1),
			Part: func(counted int) float64 { return c.cfg.Consistency.RatePart(counted, c.admitted()) },
		})
		c.round.Choose(s.choice.Quota, s.choice.Reason)
		for _, a := range s.early {
			s.controller.Arrived(a)
		}
		s.early = nil
		return
	}
	patience := time.Duration(s.choice.Patience * float64(time.Second))
	if have := c.round.Waiting(); patience > 0 && have > 0 && have < s.choice.Quota && now.Sub(s.since) >= patience {
		c.round.Choose(have, fmt.Sprintf("%d of a quota of %d: the others have not come in %v, expected were %.3g s",
			have, s.choice.Quota, patience.Round(time.Millisecond), s.choice.Expected))
	}
}

// Choice returns what the controller has chosen for the newest step; zero if there is no controller.
func (c *Conductor) Choice() dbw.Choice {
	if c.steering == nil {
		return dbw.Choice{}
	}
	return c.steering.choice
}

// arrived tells the controller of a finished gradient. One that was given up has no examples, and
// one on a version that is not released was made up.
func (c *Conductor) arrived(now time.Time, t kintsugi.Ticket) {
	s := c.steering
	if s == nil || t.Examples == 0 || t.Push.Version > c.released {
		return
	}
	a := dbw.Arrival{Slot: t.Push.Slot, Version: t.Push.Version, At: s.seconds(now)}
	if !s.asked {
		a.At = max(0, a.At)
		i := slices.IndexFunc(s.early, func(b dbw.Arrival) bool { return b.Slot == a.Slot })
		switch {
		case i < 0:
			s.early = append(s.early, a)
		case s.early[i].Version < a.Version:
			s.early[i] = a
		}
		return
	}
	s.controller.Arrived(a)
}

// commit has the choice shape a commit: what the kernel is to tell of it, and which part of the learning rate it
// has, which is returned.
func (s *steering) commit(now time.Time, c *kintsugi.Commit) float64 {
	if s == nil {
		return 1
	}
	s.controller.Committed(s.seconds(now))
	c.Want = s.choice.Want
	return s.choice.Rate
}

// released tells the controller what a step came to. Of a step whose tickets a conductor before this one has seen
// nothing can be said.
func (s *steering) released(now time.Time, o *open) {
	if s != nil && len(o.tickets) == len(o.commit.Counted) {
		s.controller.Released(s.outcome(now, o))
	}
}

// outcome returns what a step came to. Of a gradient that was clipped it tells as of one that is so
// long: of such ones the step is the mean.
func (s *steering) outcome(now time.Time, o *open) dbw.Outcome {
	const both = kintsugi.WantDotDisplacement | kintsugi.WantSquaredDisplacement
	out := dbw.Outcome{Step: o.commit.Step, At: s.seconds(now), Optimizer: o.commit.Optimizer, Uneven: s.uneven, Measured: o.commit.Want&both == both}
	earlier := s.messages
	s.messages = make(map[kintsugi.Slot]message, len(o.tickets))
	along := alongs{}
	for i, t := range o.tickets {
		clipped := s.clipped(t.SquaredNorm)
		share := float64(o.commit.Counted[i].Weight) * float64(o.commit.Scale) / clipped
		s.messages[t.Push.Slot] = message{share: s.messages[t.Push.Slot].share + share, clipped: clipped}
		g := dbw.Gradient{Share: share, SquaredNorm: clipped * clipped * t.SquaredNorm, Loss: t.Loss}
		if a := t.Along; a.Known && t.Push.Version+1 == o.commit.Step && s.step+1 == o.commit.Step {
			along.add(share, clipped*a.Dot)
			before := cmp.Or(earlier[t.Push.Slot], message{clipped: 1})
			g.Along, g.Before, g.Own, g.Earlier = a.Earlier, before.clipped*a.Before, before.clipped*before.clipped*a.Own, before.share
		}
		out.Gradients = append(out.Gradients, g)
	}
	s.step = o.commit.Step
	for _, stable := range o.stable {
		for _, p := range stable.Products {
			out.SquaredNorm += p.SquaredNorm
			out.Dot += p.DotDisplacement
			out.SquaredDisplacement += p.SquaredDisplacement
		}
	}
	if along.share > 0 {
		out.Dot = along.sum / along.share
	}
	return out
}

// alongs is the mean of what workers tell of their gradients along the last displacement: those
// that have had both versions speak for the others.
type alongs struct{ sum, share float64 }

func (a *alongs) add(share, dot float64) {
	a.sum += share * dot
	a.share += share
}
