package dbw

import "math"

// progress is the mean decrease of the loss per step, over a window that grows with the run: a run that has
// taken long so far takes long from here.
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

// value returns the mean, but no less than half its standard error: progress that noise may hide is not taken
// for none, or a few unlucky steps would make the quota jump to all.
func (p *progress) value() float64 {
	if p.weight == 0 {
		return 0
	}
	mean := p.sum / p.weight
	spread := p.squares / p.weight // about zero, so that a single value has one
	return max(mean, benefit*math.Sqrt(spread*p.weights)/p.weight)
}

const (
	gradMemory  = 20.0    // steps over which gradients are averaged
	windowShare = 1.0 / 6 // of all steps, the window of progress
	aheadShare  = 0.25    // of all steps, how far ahead the gain looks
	benefit     = 0.5     // standard errors of the doubt
)
