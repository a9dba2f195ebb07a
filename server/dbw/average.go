package dbw

import "math"

// average is a mean with exponential forgetting.
type average struct{ keep, sum, weight float64 }

func newAverage(memory float64) average { return average{keep: 1 - 1/memory} }

// add adds a value; one that is not finite is ignored.
func (a *average) add(v float64) {
	if !finite(v) {
		return
	}
	a.sum = a.sum*a.keep + v
	a.weight = a.weight*a.keep + 1
}

// value returns the mean, 0 of nothing.
func (a *average) value() float64 {
	if a.weight == 0 {
		return 0
	}
	return a.sum / a.weight
}

func (a *average) known() bool { return a.weight > 0 }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
