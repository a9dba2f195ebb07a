package dbw

import (
	"math"

	"github.com/kintsugi-ml/kintsugi/internal/fade"
)

// progress is the mean decrease of the loss per step, over a window that grows with the run: if a
// run has taken long so far, the rest will take long too.
type progress struct{ steps, sum, squares, weight, weights float64 }

func (p *progress) add(v float64) {
	if !finite(v * v) {
		return
	}
	p.steps++
	keep := 1 - 1/max(gradMemory, p.steps*windowShare)
	p.sum = p.sum*keep + v
	p.squares = p.squares*keep + v*v
	p.weight = p.weight*keep + 1
	p.weights = p.weights*keep*keep + 1
}

// value returns the mean, but no less than half its standard error. Progress that noise may hide is
// not taken for no progress; otherwise a few unlucky steps would make the quota jump to all
// members.
func (p *progress) value() float64 {
	if p.weight == 0 {
		return 0
	}
	mean := p.sum / p.weight
	spread := p.squares / p.weight // about zero, so that a single value has a spread
	return max(mean, benefit*math.Sqrt(spread*p.weights)/p.weight)
}

// descent bounds progress from above by the losses in the tickets. They are too noisy to measure a
// small step, but they show when the loss swings or stands still. In that case the progress that
// gradients show along the path is far too large.
type descent struct {
	slow, fast aged      // means of the loss, over the horizon and over a quarter of it
	squares    fade.Mean // of the difference of two consecutive losses: twice their variance
	part       fade.Mean // of the learning rate that the steps have had
	steps      float64
	last       float64
}

func newDescent() descent {
	return descent{squares: fade.NewMean(gradMemory), part: fade.NewMean(gradMemory)}
}

// add takes the mean loss of a step, and the part of the learning rate that the step has.
func (d *descent) add(loss, part float64) {
	if !finite(loss * loss) {
		return
	}
	d.part.Add(part)
	if d.steps > 0 {
		d.squares.Add((loss - d.last) * (loss - d.last))
	}
	d.last = loss
	d.steps++
	window := max(gradMemory, d.steps*aheadShare)
	d.slow.add(loss, window)
	d.fast.add(loss, window/4)
}

// most returns an upper bound of the decrease per step at the full rate, +Inf before anything is
// known. It is the decrease between the ages of the two means, plus a standard error. A mean with a
// memory of m steps has the variance of one value, over 2m.
func (d *descent) most() float64 {
	between := d.slow.age() - d.fast.age()
	if between < 1 {
		return math.Inf(1)
	}
	window := max(gradMemory, d.steps*aheadShare)
	noise := math.Sqrt(d.squares.Value() / 2 * (4 + 1) / (2 * window))
	return (max(0, d.slow.value()-d.fast.value()) + noise) / between / max(1e-6, d.part.Value())
}

// aged is a mean with exponential forgetting that also knows the mean age of its values, in steps.
type aged struct{ sum, weight, ages float64 }

func (a *aged) add(v, memory float64) {
	keep := 1 - 1/memory
	a.ages = keep * (a.ages + a.weight)
	a.weight = keep*a.weight + 1
	a.sum = keep*a.sum + v
}

func (a *aged) value() float64 { return a.sum / a.weight }
func (a *aged) age() float64   { return a.ages / max(1, a.weight) }

const (
	gradMemory  = 20.0    // steps over which gradients are averaged
	windowShare = 1.0 / 6 // share of all steps: the window of progress
	aheadShare  = 0.25    // share of all steps: how far ahead the gain looks
	benefit     = 0.5     // standard errors of the doubt
)
