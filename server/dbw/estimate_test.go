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

// In the paper, a gradient times the step of its own version alone.
func TestInThePaperAGradientTimesItsOwnStep(t *testing.T) {
	d := newDurations(30, false)
	d.own = true
	d.release(0, 0, 2, 2)
	d.arrive(0, 0, 1)
	d.release(1, 1, 1, 2)
	d.arrive(0, 1, 2)
	d.release(2, 2, 1, 2)
	d.arrive(1, 0, 2.5)
	d.arrive(1, 2, 6) // the first of version 2
	for _, c := range []struct {
		h, k         int
		mean, weight float64
	}{{2, 1, 1, 1}, {2, 2, 2.5, 1}, {1, 1, 2.5, 2}, {1, 2, 0, 0}} {
		if mean, weight := d.sample(c.h, c.k); math.Abs(mean-c.mean) > 0.1 || math.Abs(weight-c.weight) > 0.1 {
			t.Errorf("T(%d,%d) is %v with weight %v, want %v and %v", c.h, c.k, mean, weight, c.mean, c.weight)
		}
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

// A step that is not known tells nothing of the step after it.
func TestTheSecantDoesNotReachAcrossAStep(t *testing.T) {
	for name, lost := range map[string]Outcome{
		"not told of":                     {},
		"not measured":                    {Step: 3, SquaredNorm: 1},
		"measured with a product of NaN":  {Step: 3, SquaredNorm: 1, Measured: true, Dot: math.NaN(), SquaredDisplacement: math.NaN()},
		"measured with a length of +Inf ": {Step: 3, SquaredNorm: 1, Measured: true, Dot: -1, SquaredDisplacement: math.Inf(1)},
	} {
		s := newSecant(1)
		add := func(o Outcome) {
			o.Gradients, o.Optimizer = []Gradient{{Share: 1}}, kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.5}
			s.add(o, o.SquaredNorm, 0)
		}
		add(Outcome{Step: 1, Measured: true, SquaredNorm: 4, SquaredDisplacement: 1})
		add(Outcome{Step: 2, Measured: true, SquaredNorm: 1, Dot: -1, SquaredDisplacement: 0.25}) // of a curvature of 1: −1 − (−2)
		if s.curvature() != 1 {
			t.Fatalf("%s: curvature %v, want 1", name, s.curvature())
		}
		told := 1.0 // of steps in progress
		if lost.Step > 0 {
			add(lost)
			if finite(lost.Dot) && lost.Measured {
				told++
			}
		}
		before := s.curvature()
		add(Outcome{Step: 4, Measured: true, SquaredNorm: 1, Dot: -5, SquaredDisplacement: 1})
		if s.curvature() != before || s.progress.steps != told {
			t.Errorf("%s: curvature %v after it, %v steps of progress; want %v and %v", name, s.curvature(), s.progress.steps, before, told)
		}
		add(Outcome{Step: 5, Measured: true, SquaredNorm: 1, Dot: 1.5, SquaredDisplacement: 1}) // 1.5 − (−0.5)
		if s.curvature() != 2 {
			t.Errorf("%s: curvature %v two steps after it, want 2", name, s.curvature())
		}
	}
}

// Progress is that of the whole learning rate: a step with half of it shows twice its own.
func TestProgressIsOfTheWholeRate(t *testing.T) {
	for _, full := range []float64{0, 0.5, 1, 2} {
		s := newSecant(1)
		s.full = full
		o := kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.5}
		for step := range kintsugi.Step(2) {
			s.add(Outcome{Step: step, Measured: true, SquaredNorm: 4, Dot: -1 * float64(step), SquaredDisplacement: 1, Optimizer: o, Gradients: []Gradient{{Share: 1}}}, 4, 0)
		}
		want := (1 + 2) / 2. // the trapezoid of −1 and −0.5·4
		if full > 0 {
			want *= full / 0.5
		}
		if got := s.progress.sum; math.Abs(got-want) > 1e-6 {
			t.Errorf("a rate of 0.5 of %v: progress %v, want %v", full, got, want)
		}
	}
}

// Steps of a rule that averages gradients and goes c times as far as its learning rate says have c
// times that rate, whatever noise there is.
func TestTheRateOfAveragesIsHowFarTheyGo(t *testing.T) {
	const dim, c = 50, 3.0
	rng := rand.New(rand.NewPCG(7, 7))
	o := kintsugi.Optimizer{Rule: kintsugi.RuleAdam, LearningRate: 0.125, Beta1: 0.75, Beta2: 0.99}
	for _, noise := range []float64{0, 1, 10} {
		for _, k := range []int{1, 4} {
			s := newSecant(2000)
			m := make([]float64, dim)
			for step := range 3000 {
				moved := 0.0
				for i := range m {
					m[i] = 0.75*m[i] + 0.25*(0.5+noise/math.Sqrt(float64(k))*rng.NormFloat64())
					moved += float64(o.LearningRate) * c * m[i] * float64(o.LearningRate) * c * m[i]
				}
				out := Outcome{Step: kintsugi.Step(step), Measured: true, Optimizer: o, SquaredDisplacement: moved, Gradients: make([]Gradient, k)}
				s.add(out, dim*0.25, dim*noise*noise)
			}
			if got, want := s.rate(o), c*float64(o.LearningRate); math.Abs(got-want) > 0.03*want {
				t.Errorf("noise %v, %d gradients: a rate of %v, want %v", noise, k, got, want)
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
