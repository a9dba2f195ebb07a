package conductor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/words"
	"github.com/kintsugi-ml/kintsugi/server/dbw"
)

// steering reports the run to a controller and asks it for quotas. A conductor that takes over
// begins with a controller that knows nothing: it believes nothing that no shard has said, and that
// certainty is worth more than what an earlier controller had learnt. A nil steering does nothing,
// and the configuration sets the quota.
type steering struct {
	controller dbw.Controller
	clipped    func(squaredNorm float64) float64 // agg.Config.Clipped
	uneven     bool
	origin     time.Time

	asked  bool // for the step after version after
	after  kintsugi.Step
	since  time.Time // when it was asked
	choice dbw.Choice
	early  []dbw.Arrival // the newest ticket of each worker that came before the first question

	messages map[kintsugi.Slot]message // in step, the newest step that it has seen
	step     kintsugi.Step
}

// message describes a worker's gradients in a step: their share of the mean, and the factor of
// clipping.
type message struct{ share, clipped float64 }

// newSteering returns the steering of a configuration, nil if it names no controller.
func newSteering(cfg Config, now time.Time) (*steering, error) {
	if cfg.Consistency.Controller == "" {
		return nil, nil
	}
	c, err := dbw.New(cfg.Consistency.Controller, cfg.Consistency.Busy)
	return &steering{controller: c, clipped: cfg.Consistency.Clipped, uneven: cfg.Uneven, origin: now, choice: dbw.Choice{Rate: 1}}, err
}

func (s *steering) seconds(t time.Time) float64 { return t.Sub(s.origin).Seconds() }

// ask asks the controller for the quota of the step after the released version, once. When the
// controller's patience is over, it lowers the quota to the number of gradients that have come.
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
		c.round.Choose(have, fmt.Sprintf("%d of a quota of %d: the others have not come in %v, expected were %s s",
			have, s.choice.Quota, patience.Round(time.Millisecond), words.Digits(s.choice.Expected, 3)))
	}
}

// Choice returns what the controller has chosen for the newest step. It is zero if there is no
// controller.
func (c *Conductor) Choice() dbw.Choice {
	if c.steering == nil {
		return dbw.Choice{}
	}
	return c.steering.choice
}

// arrived reports a finished gradient to the controller. A ticket without examples is of a gradient
// that was given up, and one on a version that is not released is made up; neither is reported.
func (c *Conductor) arrived(now time.Time, t kintsugi.Ticket) {
	s := c.steering
	if s == nil || t.Examples == 0 || t.Push.Version > c.released {
		return
	}
	a := dbw.Arrival{Slot: t.Push.Slot, Version: t.Push.Version, At: s.seconds(now)}
	if !s.asked {
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

// commit adds the controller's choice to a commit: it sets which by-products the kernel computes,
// and returns the factor of the learning rate.
func (s *steering) commit(now time.Time, c *kintsugi.Commit) float64 {
	if s == nil {
		return 1
	}
	s.controller.Committed(s.seconds(now))
	c.Want = s.choice.Want
	return s.choice.Rate
}

// released reports the result of a step to the controller. If an earlier conductor has seen some of
// its tickets, nothing can be said of the step.
func (s *steering) released(now time.Time, o *open) {
	if s != nil && len(o.tickets) == len(o.commit.Counted) {
		s.controller.Released(s.outcome(now, o))
	}
}

// outcome returns the result of a step. A clipped gradient is reported with its clipped length,
// since the step is the mean of such gradients.
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

// alongs is the mean of what workers report of their gradients along the last displacement. The
// workers that have had both versions stand for the others.
type alongs struct{ sum, share float64 }

func (a *alongs) add(share, dot float64) {
	a.sum += share * dot
	a.share += share
}
