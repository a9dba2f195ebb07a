// Package fade computes means that forget: recent measurements of a run count for more than old
// ones. [Mean] is the basic one. [Spread] adds a variance, and [Line] fits a line.
package fade

import "math"

// Mean is an exponentially weighted mean: each value weighs less than the next one, by a fixed
// factor. The zero value is an empty mean over about the last 20 values. It is not safe for
// concurrent use.
type Mean struct{ forgets, sum, weight float64 }

// usual is the relative loss of weight from one value to the next, unless NewMean sets another.
const usual = 1.0 / 20

// NewMean returns an empty mean over about the last memory values; memory is at least 1.
func NewMean(memory float64) Mean { return Mean{forgets: 1 / memory} }

// Add adds a value. It ignores a value that is not finite, which would make the mean useless for
// ever.
func (m *Mean) Add(v float64) {
	if !finite(v) {
		return
	}
	forgets := m.forgets
	if forgets == 0 {
		forgets = usual
	}
	m.sum = m.sum*(1-forgets) + v
	m.weight = m.weight*(1-forgets) + 1
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Value returns the mean, or 0 if no value was added.
func (m *Mean) Value() float64 {
	if m.weight == 0 {
		return 0
	}
	return m.sum / m.weight
}

// Weight returns the approximate number of values in the mean; 0: no value was added.
func (m *Mean) Weight() float64 { return m.weight }

// Spread is a mean that knows how certain it is. The zero value is over about the last 20 values.
type Spread struct {
	Mean
	squares Mean
}

// Add adds a value. It ignores a value whose square is not finite.
func (s *Spread) Add(v float64) {
	if !finite(v * v) {
		return
	}
	s.Mean.Add(v)
	s.squares.Add(v * v)
}

// Variance returns the variance of the values; 0 for a single value.
func (s *Spread) Variance() float64 { return max(0, s.squares.Value()-s.Value()*s.Value()) }

// Uncertain returns the squared standard error of the mean.
func (s *Spread) Uncertain() float64 { return s.Variance() / max(s.weight, 1) }

// Line fits y = latency + slope·x through about the last 20 points. Neither latency nor slope is
// negative, and no x may be negative.
type Line struct{ x, y, xx, xy Mean }

// Add adds a point. It ignores a point of which x² or x·y is not finite.
func (l *Line) Add(x, y float64) {
	if !finite(x*x) || !finite(x*y) {
		return
	}
	l.x.Add(x)
	l.y.Add(y)
	l.xx.Add(x * x)
	l.xy.Add(x * y)
}

// Weight returns the approximate number of points in the fit.
func (l *Line) Weight() float64 { return l.x.weight }

// Mean returns the mean of y.
func (l *Line) Mean() float64 { return l.y.Value() }

// Fit returns the line. If all x are about equal, the data cannot tell latency from slope; then
// half of y is attributed to each.
func (l *Line) Fit() (latency, slope float64) {
	x, y := l.x.Value(), l.y.Value()
	if !(x > 0) {
		return y, 0
	}
	spread := l.xx.Value() - x*x
	slope = (l.xy.Value() - x*y) / spread
	if !(spread > 0.01*x*x) {
		slope = y / x / 2
	}
	slope = max(0, min(slope, y/x))
	return max(0, y-slope*x), slope // y/x times x may be more than y, by a rounding
}
