package dbw

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/fade"
	"github.com/kintsugi-ml/kintsugi/internal/words"
)

const (
	timeMemory  = 30.0 // steps over which times are averaged
	paperMemory = 5.0  // the paper's window
	looking     = 0.01 // largest share of the time that looking at slow workers may take
	alarmed     = 0.1  // the same after a change has been noticed, since that may be an error
	worth       = 0.25 // the largest part of what more gradients could gain that looking may take
	doubt       = 4.0  // factor by which the variance may have grown since it was seen, if that was long ago
	lossRose    = 0.01 // of the paper's guard: the share of the loss by which it has risen
	patient     = 4.0  // how many times as long as expected a step may take
)

// dynamic is the controller "dbw": DBW with the secant curvature and the gain over a horizon. It
// takes the quota with the largest expected decrease of the loss per second, argmax Ĝ(k)/T̂(k).
type dynamic struct {
	timing
	name    string
	joint   bool // the controller chooses the learning rate too
	moments moments
	secant  secant
	descent descent
	looked  float64 // time of the last look at workers that are not waited for
	reach   int     // quota of the newest look; 0: it reached all members
}

func newDynamic(name string, interrupt bool) *dynamic {
	return &dynamic{
		timing: newTiming(timeMemory, interrupt), name: name, secant: newSecant(gradMemory),
		moments: moments{variance: fade.NewMean(gradMemory), square: fade.NewMean(gradMemory)}, descent: newDescent(),
	}
}

// Name implements Controller.
func (d *dynamic) Name() string { return d.name }

// Released implements Controller.
func (d *dynamic) Released(o Outcome) {
	d.timing.Released(o)
	if square, ok := d.moments.add(o); ok {
		d.secant.add(o, square, d.moments.variance.Value())
		d.descent.add(o.loss(), d.secant.partOf(o.Optimizer))
	}
}

// estimate returns what is known of the gradient.
func (d *dynamic) estimate(o kintsugi.Optimizer) Estimate {
	return Estimate{
		Variance:  max(0, d.moments.variance.Value()),
		Square:    max(0, d.moments.square.Value()),
		Curvature: d.secant.curvature(),
		Rate:      d.secant.rate(o),
		Progress:  min(d.secant.progress.value(), d.descent.most()),
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
		d.looked = r.At // the share of the time counts from here
		return d.chosen(r, firstQuota(n), fmt.Sprintf("%d of %d: to begin with, while nothing is known", firstQuota(n), n))
	}
	rate := 1.0
	k := d.best(n, func(k int) float64 { return e.At(r.part(k)).Gain(k) / d.expect(k) })
	if d.joint {
		k, rate = d.bestPair(r, e)
	}
	k = min(k, 2*d.durations.reach()) // beyond that, times are only hoped for, and tried step by step
	all := e.At(rate * r.part(n))
	look := d.looks(r, e, k)
	e = e.At(rate * r.part(k))
	c := Choice{}
	switch {
	case look > k:
		c = d.chosen(r, look, fmt.Sprintf("%d instead of %d, to see how slow the others are", look, k))
	case k == 1 && d.doubts(r, e):
		c = d.chosen(r, 2, "2 instead of 1, to see how much gradients differ")
	case k == n:
		c = d.chosen(r, n, fmt.Sprintf("all %d: %.2g in %s s", n, e.Gain(n), words.Digits(d.expect(n), 2)))
	default:
		c = d.chosen(r, k, fmt.Sprintf("%d of %d: %.2g in %s s, all %.2g in %s s",
			k, n, e.Gain(k), words.Digits(d.expect(k), 2), all.Gain(n), words.Digits(d.expect(n), 2)))
	}
	c.Estimate, c.Rate = e, rate
	return c
}

// firstQuota returns how many gradients the first steps wait for: enough to see how gradients
// differ, and few enough not to wait for the slow workers before anything is known of them.
func firstQuota(n int) int { return max(2, n/8) }

// looks returns a quota larger than k if it is time to see how slow the workers are that k does not
// wait for; otherwise it returns k. Only interrupted workers need such looks, since others finish
// and are timed. Each look reaches twice as far as the one before, up to all members, and then the
// looks begin anew. They never cost more than a small share of the time, nor more than a part of
// what more gradients could gain if they took no time.
func (d *dynamic) looks(r Release, e Estimate, k int) int {
	n := r.Members
	if !d.durations.interrupt || k >= n {
		d.looked, d.reach = r.At, 0
		return k
	}
	d.reach = max(d.reach, k)
	far := min(n, 2*d.reach)
	gain := func(k int) float64 { return e.At(r.part(k)).Gain(k) }
	share := looking
	if d.changed {
		share = alarmed
	}
	share = min(share, worth*(gain(n)/gain(k)-1))
	cost := d.expect(far) - d.expect(k)
	if !((r.At-d.looked)*share >= cost) {
		return k
	}
	if d.looked, d.reach = r.At, far; far == n {
		d.changed, d.reach = false, 0
	}
	return far
}

// doubts reports whether it is time to measure again how much gradients differ. Steps of one
// gradient do not show it. It is time if there may be so much more noise than was seen that two
// gradients would be better.
func (d *dynamic) doubts(r Release, e Estimate) bool {
	if float64(d.moments.sinceVariance) < max(gradMemory, aheadShare*d.secant.progress.steps) {
		return false
	}
	e.Variance *= doubt
	return e.At(r.part(2)).Gain(2)/d.expect(2) > e.At(r.part(1)).Gain(1)/d.expect(1)
}

// bestPair returns the quota and the part of the learning rate that together gain most per second.
// A larger rate makes progress grow, and the noise floor grow faster.
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

const leastRate = 1.0 / 9 // smallest part of the schedule's learning rate that is chosen
