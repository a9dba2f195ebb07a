package rates

import "math"

// The pure part of the learning-rate range test: when a pass has diverged, and what its losses say.

// Point is one step of the range test: means over the seeds.
type Point struct {
	Rate   float64 `json:"learning_rate"`
	Loss   float64 `json:"loss"`   // of the gradients of the step, at the parameters before it
	Smooth float64 `json:"smooth"` // value of a straight line through the neighbouring losses
	Slope  float64 `json:"slope"`  // slope of that line, per factor e of the rate
}

// Found is the result of a range test.
type Found struct {
	Chosen   float64 // half of Lowest, but at most an eighth of BlowUp
	Steepest float64 // rate at which the loss falls fastest
	Lowest   float64 // rate at which the loss is lowest, before it rises
	BlowUp   float64 // smallest rate at which a pass had diverged; 0: none had
	Points   []Point
}

// rangeRate returns the rate of step i of n: from lo to hi with equal factors.
func rangeRate(lo, hi float64, i, n int) float64 {
	return lo * math.Pow(hi/lo, float64(i)/float64(max(1, n-1)))
}

// trend detects that a pass has diverged: a loss is not finite, or several losses in a row have
// lost more than half of the improvement. An improvement within the noise does not count, so trend
// also measures the noise.
type trend struct {
	recent      [trendWindow]float64
	n           int
	first, best float64 // means of that many losses in a row: the first, and the lowest
	last        float64
	noise       float64 // sum of squared differences between neighbours
}

// trendWindow is the number of losses in a row that are averaged: a rate that grows by a few
// hundredths per step hardly changes within them.
const trendWindow = 5

// add adds the next loss and reports whether the pass has diverged.
func (t *trend) add(loss float64) bool {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return true
	}
	d := loss - t.last
	t.last = loss
	t.recent[t.n%trendWindow] = loss
	t.n++
	if t.n < trendWindow {
		if t.n > 1 {
			t.noise += d * d
		}
		return false
	}
	mean := 0.0
	for _, l := range t.recent {
		mean += l / trendWindow
	}
	if t.n == trendWindow {
		t.first, t.best = mean, mean
	}
	t.best = min(t.best, mean)
	// The standard deviation of the difference of neighbours is √2 times that of the noise. The
	// lowest of many means lies about four deviations too low, and others as much too high: nine
	// are beyond chance.
	chance := 9 * math.Sqrt(t.noise/float64(t.n-1)/2/trendWindow)
	if mean > t.best+max((t.first-t.best)/2, chance) {
		return true
	}
	t.noise += d * d // only now: a jump must not count as noise for its own test
	return false
}

// find evaluates the curve of a range test. losses[s][i] is the loss of seed s in step i, at
// rates[i]. A seed that has diverged (diverged[s]) ends with that step. All seeds are used up to
// the first divergence.
func find(rates []float64, losses [][]float64, diverged []bool) Found {
	var f Found
	n := len(rates)
	for s, l := range losses {
		if diverged[s] && len(l) <= n {
			n = len(l) - 1 // the last loss is that of the divergence
			f.BlowUp = rates[n]
		}
	}
	for i := range n {
		p := Point{Rate: rates[i]}
		for _, l := range losses {
			p.Loss += l[i] / float64(len(losses))
		}
		f.Points = append(f.Points, p)
	}
	smoothen(f.Points, max(3, len(rates)/window))
	lowest := 0
	for i, p := range f.Points {
		if p.Smooth < f.Points[lowest].Smooth {
			lowest = i
		}
	}
	steepest := 0
	for i, p := range f.Points[:min(len(f.Points), lowest+1)] {
		if p.Slope < f.Points[steepest].Slope {
			steepest = i
		}
	}
	if len(f.Points) > 0 {
		f.Lowest, f.Steepest = f.Points[lowest].Rate, f.Points[steepest].Rate
	}
	f.Chosen = f.Lowest / 2
	if f.BlowUp > 0 {
		f.Chosen = min(f.Chosen, f.BlowUp/8)
	}
	return f
}

// window is the divisor of the number of steps that gives the number of steps on either side
// of a point in the line through it.
const window = 16

// smoothen sets Smooth and Slope: the least-squares line, over the logarithm of the rate, through
// the losses of up to half steps on either side. Unlike a running mean, it does not lag, which
// would make every rate too large.
func smoothen(points []Point, half int) {
	for i := range points {
		lo, hi := max(0, i-half), min(len(points), i+half+1)
		n, sx, sy, sxx, sxy := float64(hi-lo), 0.0, 0.0, 0.0, 0.0
		at := math.Log(points[i].Rate)
		for _, p := range points[lo:hi] {
			x := math.Log(p.Rate) - at
			sx, sy, sxx, sxy = sx+x, sy+p.Loss, sxx+x*x, sxy+x*p.Loss
		}
		points[i].Smooth, points[i].Slope = sy/n, 0
		if d := n*sxx - sx*sx; d > 0 {
			points[i].Slope = (n*sxy - sx*sy) / d
			points[i].Smooth = (sy - points[i].Slope*sx) / n
		}
	}
}
