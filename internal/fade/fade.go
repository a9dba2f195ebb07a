// Package fade has means that forget: what a run has measured lately counts for more than what it
// measured long ago.
package fade

import "math"

// Mean is a mean in which each value weighs a fixed part less than the one after it. The zero value
// is a mean of about the last 20 values, of which there are none yet.
type Mean struct{ forgets, sum, weight float64 }

// usual is how much less a value weighs than the one after it, unless NewMean says otherwise.
const usual = 1.0 / 20

// NewMean returns a mean of about as many values as memory says, at least 1.
func NewMean(memory float64) Mean { return Mean{forgets: 1 / memory} }

// Add adds a value. One that is not finite is ignored: it would be the mean for ever.
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

// Value returns the mean, 0 of nothing.
func (m *Mean) Value() float64 {
	if m.weight == 0 {
		return 0
	}
	return m.sum / m.weight
}

// Weight returns about how many values the mean is of; 0: there was none.
func (m *Mean) Weight() float64 { return m.weight }

// Spread is a mean that tells how certain it is. The zero value is of about the last 20 values.
type Spread struct {
	Mean
	squares Mean
}

// Add adds a value. One whose square is not finite is ignored.
func (s *Spread) Add(v float64) {
	if !finite(v * v) {
		return
	}
	s.Mean.Add(v)
	s.squares.Add(v * v)
}

// Variance returns that of the values, 0 of one.
func (s *Spread) Variance() float64 { return max(0, s.squares.Value()-s.Value()*s.Value()) }

// Uncertain returns the squared standard error of the mean.
func (s *Spread) Uncertain() float64 { return s.Variance() / max(s.weight, 1) }

// Line is a fit of y = latency + slope·x through about the last 20 points, neither of the two
// negative. No x is negative.
type Line struct{ x, y, xx, xy Mean }

// Add adds a point. One that is not finite is ignored.
func (l *Line) Add(x, y float64) {
	if !finite(x*x) || !finite(x*y) {
		return
	}
	l.x.Add(x)
	l.y.Add(y)
	l.xx.Add(x * x)
	l.xy.Add(x * y)
}

// Weight returns about how many points the line is of.
func (l *Line) Weight() float64 { return l.x.weight }

// Mean returns the mean of y.
func (l *Line) Mean() float64 { return l.y.Value() }

// Fit returns the line. Where all x are alike, nobody knows which part of y goes with them: then half does.
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
	return y - slope*x, slope
}
