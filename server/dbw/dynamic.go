package dbw

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
)

const (
	timeMemory  = 30.0 // steps over which times are averaged
	paperMemory = 5.0  // the paper's window
	exploring   = 0.02 // greatest share of the time that looking at slow workers may take
	alarmed     = 0.1  // the same when a change has been noticed, which may be an error
	lossRose    = 1.01 // of the paper's guard
	patient     = 4.0  // times as long as expected
	warm        = 20   // steps before it is believed that no quota gains anything
)

// dynamic is DBW with the secant curvature and the gain over a horizon: it takes the quota with the largest
// expected decrease of the loss per second, argmax Ĝ(k)/T̂(k).
type dynamic struct {
	timing
	name    string
	joint   bool // it chooses the learning rate too
	moments moments
	secant  secant
}

func newDynamic(name string, interrupt bool) *dynamic {
	return &dynamic{
		timing: newTiming(timeMemory, interrupt), name: name, secant: newSecant(gradMemory),
		moments: moments{variance: newAverage(gradMemory), square: newAverage(gradMemory)},
	}
}

// Name implements Controller.
func (d *dynamic) Name() string { return d.name }

// Released implements Controller.
func (d *dynamic) Released(o Outcome) {
	d.timing.Released(o)
	if square, ok := d.moments.add(o); ok {
		d.secant.add(o, square, d.moments.variance.value())
	}
}

// estimate returns what is known of the gradient.
func (d *dynamic) estimate(o kintsugi.Optimizer) Estimate {
	return Estimate{
		Variance:  max(0, d.moments.variance.value()),
		Square:    max(0, d.moments.square.value()),
		Curvature: d.secant.curvature(),
		Rate:      d.secant.rate(o),
		Progress:  d.secant.progress.value(),
		Horizon:   max(gradMemory, aheadShare*d.secant.progress.steps),
	}
}

// Choose implements Controller.
func (d *dynamic) Choose(r Release) Choice {
	d.begin(r)
	c := d.choose(r)
	c.Want = kintsugi.WantDotDisplacement | kintsugi.WantSquaredDisplacement
	c.Patience = patient * c.Expected
	return c
}

func (d *dynamic) choose(r Release) Choice {
	n := r.Members
	e := d.estimate(r.Optimizer)
	d.secant.full = float64(r.Optimizer.LearningRate)
	switch {
	case n == 1:
		return d.chosen(r, 1, "the only member")
	case !d.secant.known() || !d.durations.known():
		return d.chosen(r, firstQuota(n), fmt.Sprintf("%d of %d: to begin with, while nothing is known", firstQuota(n), n))
	case d.explores(r):
		return d.chosen(r, n, fmt.Sprintf("all %d, to see how slow the slow ones are", n))
	}
	rate := 1.0
	k := d.best(n, func(k int) float64 { return e.At(r.part(k)).Gain(k) / d.expect(k) })
	if d.joint {
		k, rate = d.bestPair(r, e)
	}
	k = min(k, 2*d.durations.reach()) // beyond it there is only hope, which is tried step by step
	all := e.At(rate * r.part(n))
	e = e.At(rate * r.part(k))
	c := Choice{}
	switch gain := e.Gain(k); {
	case gain <= 0 && d.secant.progress.steps < warm:
		c = d.chosen(r, firstQuota(n), fmt.Sprintf("%d of %d: to begin with, while little is known", firstQuota(n), n))
	case gain <= 0:
		c = d.chosen(r, n, fmt.Sprintf("all %d: the gradient is too noisy for any other quota to gain", n))
	case k == 1 && d.moments.sinceVariance >= gradMemory:
		c = d.chosen(r, 2, "2 instead of 1, to see how much gradients differ")
	case k == n:
		c = d.chosen(r, n, fmt.Sprintf("all %d: %.2g in %.2g s", n, gain, d.expect(n)))
	default:
		c = d.chosen(r, k, fmt.Sprintf("%d of %d: %.2g in %.2g s, all %.2g in %.2g s", k, n, gain, d.expect(k), all.Gain(n), d.expect(n)))
	}
	c.Estimate, c.Rate = e, rate
	return c
}

// firstQuota returns how many are waited for to begin with: enough to see how gradients differ, few enough not to wait for
// the slow ones before anything is known of them.
func firstQuota(n int) int { return max(2, n/4) }

// explores reports whether it is time to wait for everybody once, because something has changed or nobody knows
// any more how slow the slow ones are. It never takes more than a small share of the time. Where busy workers
// are not interrupted, the slow ones are seen anyway.
func (d *dynamic) explores(r Release) bool {
	t := d.durations
	if !t.interrupt {
		return false
	}
	if math.IsInf(t.full, -1) { // the share of time counts from here
		t.full = r.At
	}
	share := exploring
	if d.changed {
		share = alarmed
	}
	if (r.At-t.full)*share >= t.at(d.last, r.Members) {
		d.changed = false
		t.full = r.At
		return true
	}
	return false
}

// bestPair returns the quota and the part of the learning rate that gain most per second together. Progress
// grows with the rate, and so does the floor, faster.
func (d *dynamic) bestPair(r Release, e Estimate) (quota int, rate float64) {
	quota, rate = r.Members, 1
	most := math.Inf(-1)
	for part := 1.0; part >= leastRate; part /= math.Sqrt2 {
		value := func(k int) float64 { return e.At(part*r.part(k)).Gain(k) / d.expect(k) }
		k := d.best(r.Members, value)
		if v := value(k); v > most {
			quota, rate, most = k, part, v
		}
	}
	return quota, rate
}

const leastRate = 1.0 / 9 // least part of the schedule's learning rate that is chosen
