package fade_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/fade"
)

// weighted is the obvious version: it keeps every value, with the weight that is left of it.
func weighted(values []float64, memory float64, of func(float64) float64) (mean, weight float64) {
	sum := 0.0
	for i, v := range values {
		w := math.Pow(1-1/memory, float64(len(values)-1-i))
		sum, weight = sum+w*of(v), weight+w
	}
	if weight == 0 {
		return 0, 0
	}
	return sum / weight, weight
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

func TestMeansForget(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		memory := 1 + 50*rng.Float64()
		m, usual, s := fade.NewMean(memory), fade.Mean{}, fade.Spread{}
		var values []float64
		for range rng.IntN(200) {
			v := 10 * rng.NormFloat64()
			values = append(values, v)
			m.Add(v)
			usual.Add(v)
			s.Add(v)
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				m.Add(bad)
				s.Add(bad)
			}
			s.Add(1e200) // its square is not finite
		}
		itself := func(v float64) float64 { return v }
		mean, weight := weighted(values, memory, itself)
		if !near(m.Value(), mean) || !near(m.Weight(), weight) {
			t.Fatalf("mean of %v of about %v: %v with weight %v, want %v with %v", values, memory, m.Value(), m.Weight(), mean, weight)
		}
		mean, weight = weighted(values, 20, itself)
		variance, _ := weighted(values, 20, func(v float64) float64 { return (v - mean) * (v - mean) })
		if !near(usual.Value(), mean) || !near(s.Value(), mean) || !near(s.Variance(), variance) || !near(s.Uncertain(), variance/max(1, weight)) {
			t.Fatalf("of %v: mean %v and %v, variance %v, uncertain %v; want %v, %v, %v", values, usual.Value(), s.Value(), s.Variance(), s.Uncertain(), mean, variance, variance/max(1, weight))
		}
	}
}

func TestALineIsFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		latency, slope := 10*rng.Float64(), rng.Float64()
		var l fade.Line
		for range 30 {
			x := 1 + 100*rng.Float64()
			l.Add(x, latency+slope*x)
			l.Add(math.Inf(1), 1)
			l.Add(1, math.NaN())
		}
		if a, b := l.Fit(); math.Abs(a-latency) > 1e-6 || math.Abs(b-slope) > 1e-6 {
			t.Fatalf("%v + %v·x, want %v + %v·x", a, b, latency, slope)
		}
	}
}

// Where the data cannot tell latency from slope, half of y is attributed to each.
func TestALineThroughOnePlaceIsHalfLatency(t *testing.T) {
	for _, spread := range []float64{0, 0.01, 0.09} { // as a share of x; up to a tenth counts as one place
		var l fade.Line
		for i := range 40 {
			l.Add(5+5*spread*float64(1-2*(i%2)), 3)
		}
		if latency, slope := l.Fit(); math.Abs(latency-1.5) > 0.01 || math.Abs(slope-0.3) > 0.01 {
			t.Errorf("x differs by %v of it: %v + %v·x, want 1.5 + 0.3·x", spread, latency, slope)
		}
	}
	var l fade.Line
	for i := range 40 {
		l.Add(5+0.6*float64(1-2*(i%2)), 3)
	}
	if latency, slope := l.Fit(); !near(latency, 3) || slope > 1e-9 {
		t.Errorf("x differs by an eighth of it, and y does not: %v + %v·x", latency, slope)
	}
}

// A fit that is used for predictions must not say that work takes less than no time.
func TestALineIsNeverNegative(t *testing.T) {
	for _, points := range [][][2]float64{
		nil,
		{{0, 3}},
		{{5, 3}, {5, 3}, {5, 3}},
		{{1, 10}, {2, 5}, {3, 1}},     // falls
		{{1, 0.1}, {2, 10}, {3, 100}}, // begins below zero
	} {
		var l fade.Line
		for _, p := range points {
			l.Add(p[0], p[1])
		}
		latency, slope := l.Fit()
		if !(latency >= 0) || !(slope >= 0) || math.IsInf(slope, 0) {
			t.Errorf("through %v: %v + %v·x", points, latency, slope)
		}
		if points != nil && !near(latency+slope*mean(points, 0), l.Mean()) {
			t.Errorf("through %v: %v + %v·x misses the middle", points, latency, slope)
		}
	}
}

func mean(points [][2]float64, of int) float64 {
	var m fade.Mean
	for _, p := range points {
		m.Add(p[of])
	}
	return m.Value()
}
