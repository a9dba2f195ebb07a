package dbw

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/fade"
)

// orderStatistic returns the mean of the k-th of n exponential times with mean 1.
func orderStatistic(n, k int) float64 {
	sum := 0.0
	for i := range k {
		sum += 1 / float64(n-i)
	}
	return sum
}

// Interrupted workers begin together, so T(h, k) is an order statistic, whatever h was.
func TestTimesOfInterruptedWorkersAreOrderStatistics(t *testing.T) {
	const n = 8
	rng := rand.New(rand.NewPCG(3, 3))
	d := newDurations(1000, true)
	now := 0.0
	for step := range 2000 {
		k := 1 + step%n
		d.release(kintsugi.Step(step), now, 1+(step+n-1)%n, n)
		times := make([]float64, n)
		for i := range times {
			times[i] = rng.ExpFloat64()
		}
		sort.Float64s(times)
		for i := range k {
			d.arrive(kintsugi.Slot(i), kintsugi.Step(step), now+times[i])
		}
		now += times[k-1]
	}
	for k := 1; k <= n; k++ {
		// The slowest worker is seen in one step of eight.
		if got, want := d.at(n, k), orderStatistic(n, k); math.Abs(got-want) > 0.2*want {
			t.Errorf("the %d-th of %d is expected after %.3f, want %.3f", k, n, got, want)
		}
	}
}

// A worker that was busy when a version came out takes its place in that step with the next
// gradient that it begins. So every quota has times, although only one is ever waited for.
func TestALateWorkerTimesTheStepsItMissed(t *testing.T) {
	d := newDurations(30, false)
	d.release(0, 0, 2, 2)
	d.arrive(0, 0, 1)
	d.release(1, 1, 1, 2) // quota 1: worker 1 is still busy with version 0
	d.arrive(0, 1, 2)
	d.release(2, 2, 1, 2)
	d.arrive(1, 0, 2.5) // late for step 1, begins on version 2
	d.arrive(1, 0, 2.6) // a repeated ticket
	d.arrive(1, 2, 6)
	want := map[int][2]float64{ // by h: samples of k = 2
		2: {2.5, 1}, // version 0: after 2.5
		1: {9, 2},   // version 1: 6 − 1; version 2: 6 − 2 as the first there
	}
	at := func(h, k int) (sum, weight float64) {
		i := d.nearest(h)*len(d.knots) + d.knotOf[k]
		return d.sum[i], d.wt[i]
	}
	if sum, w := at(2, 2); math.Abs(sum/w-want[2][0]) > 1e-9 {
		t.Errorf("T(2,2) is %v, want %v", sum/w, want[2][0])
	}
	if sum, w := at(1, 2); math.Abs(sum/w-5) > 1e-9 {
		t.Errorf("T(1,2) is %v, want 5: six minus the release of version 1", sum/w)
	}
}

// The two moments are unbiased, and exact for known gradients. Of (3, 0) and (1, 2) the mean is (2,
// 1), and the variance ½·(‖(1,−1)‖² + ‖(−1,1)‖²)·2 = 4.
func TestMomentsOfTwoGradients(t *testing.T) {
	m := moments{variance: fade.NewMean(5), square: fade.NewMean(5)}
	square, ok := m.add(Outcome{SquaredNorm: 5, Gradients: []Gradient{{Share: 0.5, SquaredNorm: 9}, {Share: 0.5, SquaredNorm: 5}}})
	if !ok || m.variance.Value() != 4 || square != 3 {
		t.Errorf("V %v, S %v, want 4 and 5 − 4/2", m.variance.Value(), square)
	}
	square, _ = m.add(Outcome{SquaredNorm: 5, Gradients: []Gradient{{Share: 1, SquaredNorm: 5}}})
	if square != 1 || m.sinceVariance != 1 {
		t.Errorf("of one gradient S is %v, want 5 − 4; %d steps without variance", square, m.sinceVariance)
	}
}

// On a quadratic without noise, the secant is the curvature along the displacement, and the
// trapezoid is the decrease of the loss. Both are exact, with and without momentum.
func TestTheSecantIsExactOnAQuadratic(t *testing.T) {
	lambda := []float64{0.3, 2, 5}
	for _, o := range []kintsugi.Optimizer{
		{Rule: kintsugi.RuleSGD, LearningRate: 0.125},
		{Rule: kintsugi.RuleMomentum, LearningRate: 0.0625, Momentum: 0.75},
	} {
		x, m, d := []float64{1, -2, 0.5}, make([]float64, 3), make([]float64, 3)
		loss := func() (f float64) {
			for i := range x {
				f += lambda[i] * x[i] * x[i] / 2
			}
			return f
		}
		s := newSecant(1) // a memory of one step
		before := math.NaN()
		var rayleigh, decrease float64
		for step := range 20 {
			out := Outcome{Step: kintsugi.Step(step + 1), Measured: true, Optimizer: o, Gradients: []Gradient{{Share: 1}}}
			for i := range x {
				g := lambda[i] * x[i]
				out.SquaredNorm += g * g
				out.Dot += g * d[i]
			}
			now := loss()
			decrease, before = before-now, now
			s.progress = progress{}
			num, den := 0.0, 0.0
			for i := range x {
				num, den = num+lambda[i]*d[i]*d[i], den+d[i]*d[i]
			}
			rayleigh = num / den
			for i := range x {
				m[i] = float64(o.Momentum)*m[i] + lambda[i]*x[i]
				d[i] = -float64(o.LearningRate) * m[i]
				out.SquaredDisplacement += d[i] * d[i]
			}
			s.add(out, out.SquaredNorm, 0)
			if step == 0 {
				for i := range x {
					x[i] += d[i]
				}
				continue
			}
			if math.Abs(s.curvature()-rayleigh) > 1e-9*rayleigh {
				t.Fatalf("%v step %d: curvature %v, want %v", o.Rule, step, s.curvature(), rayleigh)
			}
			if got := s.progress.sum; math.Abs(got-decrease) > 1e-9*math.Abs(decrease) {
				t.Fatalf("%v step %d: progress %v, want %v", o.Rule, step, got, decrease)
			}
			for i := range x {
				x[i] += d[i]
			}
		}
	}
}

func TestGainOneStepAhead(t *testing.T) {
	e := Estimate{Variance: 8, Square: 2, Curvature: 0.5, Rate: 1}
	for k, want := range map[int]float64{1: 0.75*2 - 0.25*8, 4: 0.75*2 - 0.25*2} {
		if got := e.Gain(k); got != want {
			t.Errorf("gain of %d is %v, want %v", k, got, want)
		}
	}
	e.Horizon, e.Progress = 20, 1
	if got, want := e.Gain(4), math.Exp(-8.0/(2*1.5)/(4*20)); math.Abs(got-want) > 1e-12 {
		t.Errorf("gain over 20 steps is %v, want %v", got, want)
	}
	if e.Progress = 0; e.Gain(4) != 0 {
		t.Errorf("gain without progress is %v", e.Gain(4))
	}
}

func TestAChangeIsNoticedAndNoiseIsNot(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	alarms := 0
	for range 100 {
		var c change
		for range 200 {
			if c.seen(math.Log(0.2 + 0.8*rng.ExpFloat64())) {
				alarms++
			}
		}
		noticed := 0
		for i := 1; i <= 40 && noticed == 0; i++ {
			if c.seen(math.Log(5 * (0.2 + 0.8*rng.ExpFloat64()))) {
				noticed = i
			}
		}
		if noticed == 0 || noticed > 25 {
			t.Errorf("five times slower is noticed after %d steps", noticed)
		}
	}
	if alarms > 30 { // of 20,000 values
		t.Errorf("%d alarms without a change", alarms)
	}
}

// The bound of progress by losses follows a slope that noise does not hide, falls when the loss
// stands still, and does not exist at the beginning.
func TestLossesBoundProgress(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	d := newDescent()
	if !math.IsInf(d.most(), 1) {
		t.Errorf("before any loss the bound is %v", d.most())
	}
	level := 10.0
	run := func(steps int, slope float64) {
		for range steps {
			level -= slope
			d.add(level+0.1*rng.NormFloat64(), 1)
		}
	}
	run(200, 0.02)
	if got := d.most(); got < 0.018 || got > 0.03 {
		t.Errorf("the bound is %v where the loss falls by 0.02 a step", got)
	}
	d.add(math.NaN(), 1)
	d.add(math.Inf(1), 1)
	run(600, 0)
	if got := d.most(); got > 0.002 {
		t.Errorf("the bound is %v where the loss stands still", got)
	}
}
