package ledger

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// quadratic is gradient descent on ½Σλz², where everything that a ledger estimates is known.
type quadratic struct {
	lambda, z []float64
	rate      float64
}

func newQuadratic(rng *rand.Rand, n int) *quadratic {
	q := &quadratic{rate: 0.1}
	for range n {
		q.lambda, q.z = append(q.lambda, 0.1+0.9*rng.Float64()), append(q.z, rng.NormFloat64())
	}
	return q
}

func (q *quadratic) loss(z []float64) (f float64) {
	for i, v := range z {
		f += q.lambda[i] * v * v / 2
	}
	return f
}

// step makes a step and returns what a run would report of it. Its gradient is the one before the
// step.
func (q *quadratic) step(at int, last []float64) Step {
	s := Step{Step: kintsugi.Step(at), Loss: q.loss(q.z), Seconds: 0.25}
	for i, z := range q.z {
		g := q.lambda[i] * z
		s.SquaredNorm += g * g
		if last != nil {
			d := z - last[i]
			s.Dot += g * d
			s.LastDot += q.lambda[i] * last[i] * d
			s.SquaredDisplacement += d * d
		}
		q.z[i] -= q.rate * g
	}
	return s
}

func dot(a, b []float64) (s float64) {
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

// Going back by some steps is predicted to cost about that many.
func TestGoingBackCostsTheStepsItGoesBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		q := newQuadratic(rng, 30)
		l := New(4)
		var path [][]float64
		for at := 1; at <= 200; at++ { // late, when the loss falls by a few hundredths in a step
			var last []float64
			if at > 1 {
				last = path[len(path)-1]
			}
			path = append(path, append([]float64(nil), q.z...))
			l.Observe(q.step(at, last))
		}
		for _, back := range []int{1, 2, 4, 30, 60} {
			now, then := path[len(path)-1], path[len(path)-1-back]
			delta, gradient := make([]float64, len(now)), make([]float64, len(now))
			for i := range now {
				delta[i], gradient[i] = then[i]-now[i], q.lambda[i]*now[i]
			}
			p := Perturbation{Dot: dot(gradient, delta), Squared: dot(delta, delta)}
			if got, ok := l.Rework(p); !ok || math.Abs(got-float64(back)) > 0.2*float64(back) {
				t.Errorf("%d steps back are predicted to cost %.2f (%v)", back, got, ok)
			}
		}
		// The curvature lies between the smallest and the largest, and c is that of a slow mode.
		if c := l.Curvature(); c < 0.1 || c > 1 {
			t.Errorf("curvature %g of modes between 0.1 and 1", c)
		}
		if c, ok := l.Contraction(); !ok || c < 1-q.rate || c > 1-0.1*q.rate {
			t.Errorf("contraction %g (%v) of modes between %g and %g", c, ok, 1-q.rate, 1-0.1*q.rate)
		}
	}
}

// trend has the slope of the line that is fitted with the same weights by the definition, and its
// standard error shrinks.
func TestATrendIsWeightedLeastSquares(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 50 {
		r := trend{halfLife: 5 + 20*rng.Float64()}
		var at, y []float64
		for now := 1000.0; len(at) < 60; now += float64(1 + rng.IntN(3)) {
			at, y = append(at, now), append(y, 3-0.01*now+0.05*rng.NormFloat64())
			r.add(now, y[len(y)-1])
		}
		r.add(1e9, math.NaN()) // is ignored
		var w, wt, wy, wtt, wty float64
		for i := range at {
			f, x := math.Exp2((at[i]-at[len(at)-1])/r.halfLife), at[i]-1000
			w, wt, wy, wtt, wty = w+f, wt+f*x, wy+f*y[i], wtt+f*x*x, wty+f*x*y[i]
		}
		want := (w*wty - wt*wy) / (w*wtt - wt*wt)
		got, deviation, ok := r.slope()
		if !ok || math.Abs(got-want) > 1e-9 || math.Abs(got+0.01) > 5*deviation || deviation <= 0 {
			t.Fatalf("slope %g ± %g (%v), want %g", got, deviation, ok, want)
		}
	}
}

// If the loss does not fall, nothing is made up for.
func TestNoDecreaseNoEstimate(t *testing.T) {
	l := New(20)
	if _, ok := l.Rework(Perturbation{Squared: 1}); ok {
		t.Error("an empty ledger has an estimate")
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for at := 1; at <= 200; at++ {
		l.Observe(Step{Step: kintsugi.Step(at), Loss: 1 + 0.0005*float64(at) + 0.1*rng.NormFloat64(), SquaredNorm: 1, Dot: 1, SquaredDisplacement: 1})
	}
	if _, ok := l.Rework(Perturbation{Squared: 1}); ok {
		t.Error("the loss rises, and there is an estimate")
	}
	if c := l.Cost(Server{Restored: Perturbation{Squared: 4}}); c.Known || !strings.Contains(c.Why, "does not fall") {
		t.Errorf("%+v", c)
	}
}

// Steps that are made again after a restore are not recorded again, whatever they measure.
func TestStepsThatAreRepeatedAreNotRecordedAgain(t *testing.T) {
	l := falling(100)
	want := *l
	for at := 60; at <= 100; at++ {
		l.Observe(Step{Step: kintsugi.Step(at), Loss: 7, Seconds: 9, SquaredNorm: 5, Dot: 100, SquaredDisplacement: 1})
	}
	if !reflect.DeepEqual(*l, want) {
		t.Errorf("the ledger has changed from %+v to %+v", want, *l)
	}
	l.Observe(Step{Step: 101, Loss: 7, Seconds: 9, SquaredNorm: 5, Dot: 100, SquaredDisplacement: 1})
	if reflect.DeepEqual(*l, want) {
		t.Error("the first new step is not recorded")
	}
}

// A run in which something recurs and that does not contract has no floor, nor has one whose loss
// does not fall.
func TestWithoutContractionThereIsNoFloor(t *testing.T) {
	for name, norm := range map[string]func(at int) float64{
		"the gradient grows":  func(at int) float64 { return math.Pow(1.1, float64(at)) },
		"the gradient stands": func(at int) float64 { return 1 + 0.01*float64(at%2) },
	} {
		l := New(20)
		for at := 1; at <= 200; at++ {
			l.Observe(Step{Step: kintsugi.Step(at), Loss: -0.1 * float64(at), SquaredNorm: norm(at), Dot: 1, SquaredDisplacement: 1})
		}
		if d, steps, ok := l.Floor(); d != 0 || steps != 0 || !ok {
			t.Errorf("%s, and nothing recurs: %v, %v, %v", name, d, steps, ok)
		}
		l.Recur(Quantised, 0.1)
		if d, steps, ok := l.Floor(); ok {
			t.Errorf("%s: a floor at %v that costs %v steps", name, d, steps)
		}
	}
}

func TestFailuresCalibrate(t *testing.T) {
	l := falling(100)
	before, _ := l.Rework(Perturbation{Squared: 1})
	rng := rand.New(rand.NewPCG(4, 4))
	for range 200 {
		predicted := 1 + 10*rng.Float64()
		l.Failure(predicted, 0.5*predicted+rng.NormFloat64(), 0)
	}
	l.Failure(math.Inf(1), 1, 0) // is ignored
	after, _ := l.Rework(Perturbation{Squared: 1})
	if factor, n := l.Calibration(); n != 200 || math.Abs(factor-0.5) > 0.05 || math.Abs(after/before-factor) > 1e-12 {
		t.Errorf("calibrated by %g after %d failures: %g before, %g after", factor, n, before, after)
	}
	l.Failure(1, -1e6, 0)
	if factor, _ := l.Calibration(); factor != 0 {
		t.Errorf("factor %g", factor)
	}
}

// falling returns a ledger of a run whose loss falls by 0.1 in a step, whose gradient shrinks by a
// factor of 0.9, and whose curvature is 2.
func falling(steps int) *Ledger {
	l := New(20)
	for at := 1; at <= steps; at++ {
		l.Observe(Step{Step: kintsugi.Step(at), Loss: -0.1 * float64(at), Seconds: 0.5, SquaredNorm: math.Pow(0.9, 2*float64(at)),
			Dot: 3, LastDot: 1, SquaredDisplacement: 1})
	}
	return l
}

func TestTheCostOfAServer(t *testing.T) {
	l := falling(300)
	for name, c := range map[string]struct {
		server         Server
		steps, seconds float64
	}{
		"restored": {Server{Restored: Perturbation{Dot: 0.3, Squared: 0.7}, Outage: 2}, 10, 7},
		"replica":  {Server{Restored: Perturbation{Dot: 0.3, Squared: 0.7}, Replica: true, Outage: 2}, 0, 2},
		"back":     {Server{Back: true, Age: 12, Outage: 1}, 12, 7},
		"better":   {Server{Restored: Perturbation{Dot: -0.3}}, 0, 0}, // by a gradient's word, which is noise
	} {
		got := l.Cost(c.server)
		if !got.Known || math.Abs(got.Steps-c.steps) > 1e-6 || math.Abs(got.Seconds-c.seconds) > 1e-6 || got.Why == "" {
			t.Errorf("%s: %+v, want %g steps and %g seconds", name, got, c.steps, c.seconds)
		}
	}
}

// Recurring failures lead to a floor, however long they recur.
func TestWhatRecursIsAFloor(t *testing.T) {
	l := falling(300)
	if d, steps, ok := l.Floor(); d != 0 || steps != 0 || !ok {
		t.Errorf("nothing recurs: %g, %g, %v", d, steps, ok)
	}
	for range 1000 {
		l.Recur(Quantised, 0.1)
		l.Recur(Dropped, 0.2)
		l.Recur(Stale, math.NaN())
	}
	distance, steps, ok := l.Floor()
	if want := 0.9 * 0.3 / 0.1; !ok || math.Abs(distance/want-1) > 1e-3 || math.Abs(steps/(want*want/0.1)-1) > 1e-2 {
		t.Errorf("floor %g, %g steps (%v), want %g", distance, steps, ok, want)
	}
	// By definition: a contraction is perturbed in the worst direction for ever.
	x := 0.0
	for range 2000 {
		x = 0.9 * (x + 0.3)
	}
	if math.Abs(x/FloorDistance(0.9, 0.3)-1) > 1e-9 {
		t.Errorf("floor %g, want %g", FloorDistance(0.9, 0.3), x)
	}
}

func TestDroppedGradientsAreAPerturbation(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	const counted, all, trials = 3, 8, 20000
	sum := 0.0
	for range trials {
		part, whole := 0.0, 0.0
		for i := range all {
			g := 2 * rng.NormFloat64() // variance 4
			whole += g / all
			if i < counted {
				part += g / counted
			}
		}
		sum += 0.01 * (part - whole) * (part - whole) / trials
	}
	if want := DroppedNorm(0.1, 4, counted, all); math.Abs(math.Sqrt(sum)/want-1) > 0.05 {
		t.Errorf("DroppedNorm = %g, measured %g", want, math.Sqrt(sum))
	}
	if DroppedNorm(0.1, 4, 8, 8) != 0 {
		t.Error("nothing is dropped")
	}
}

// PaperBound is its formula where that can be computed, and finite where it overflows.
func TestPaperBoundIsTheFormula(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		c, start := 0.5+0.49*rng.Float64(), 10*rng.Float64()
		var list []Perturbed
		sum := 0.0
		for range 1 + rng.IntN(4) {
			p := Perturbed{Step: float64(rng.IntN(40)), Norm: 5 * rng.Float64()}
			list, sum = append(list, p), sum+math.Pow(c, -p.Step)*p.Norm
		}
		if got, want := PaperBound(c, start, list...), math.Log(1+sum/start)/math.Log(1/c); math.Abs(got-want) > 1e-6*want {
			t.Fatalf("PaperBound(%g, %g, %v) = %g, want %g", c, start, list, got, want)
		}
	}
	if got := PaperBound(0.5, 1, Perturbed{Step: 5000, Norm: 1}); math.Abs(got-5000) > 1e-6 {
		t.Errorf("after 5000 steps: %g", got)
	}
	if got := PaperBound(0.5, 1, Perturbed{Step: 3}); got != 0 {
		t.Errorf("nothing was perturbed: %g", got)
	}
}

// The bound is what a perturbation costs in the worst case: a map that contracts by c everywhere,
// perturbed away from its fixed point. The run is followed step by step.
func TestPosteriorBoundIsTheCostOfTheWorstCase(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	follow := func(c, x, epsilon float64, at int, norm float64) (steps, distance float64) {
		for n := 0; ; n++ {
			if n == at {
				distance = x
				x += norm
			}
			if n >= at && x <= epsilon {
				return float64(n), distance
			}
			x *= c
		}
	}
	for range 500 {
		c, start, epsilon := 0.5+0.45*rng.Float64(), 1+9*rng.Float64(), 1e-3*(1+rng.Float64())
		undisturbed, _ := follow(c, start, epsilon, 0, 0)
		at := rng.IntN(int(undisturbed))
		norm := 3 * rng.Float64()
		perturbed, distance := follow(c, start, epsilon, at, norm)
		bound := PosteriorBound(c, epsilon, undisturbed, distance, Perturbed{Step: float64(at), Norm: norm})
		if cost := perturbed - undisturbed; math.Abs(bound-cost) > 1e-9 {
			t.Fatalf("c %g, perturbed at step %d of %g by %g at %g: it costs %g steps, the bound is %g", c, at, undisturbed, norm, distance, cost, bound)
		}
	}
	if got := PosteriorBound(0.5, 1, 9, 0.1, Perturbed{Step: 4, Norm: 0.2}); got != -5 {
		t.Errorf("a run that is there already needs no step: %g", got)
	}
}

func TestNamesOfKinds(t *testing.T) {
	if Dropped.String() != "dropped gradients" || kinds.String() != "Kind(4)" {
		t.Errorf("%v, %v", Dropped, kinds)
	}
}

// If losses go back by some steps in the middle of a run, they are behind by that many steps,
// whatever the curve, and the standard error covers the effect of noise.
func TestBehindIsHowFarALossGoesBack(t *testing.T) {
	curves := map[string]func(step float64) float64{
		"exponential":  func(s float64) float64 { return 2 * math.Exp(-s/80) },
		"with a floor": func(s float64) float64 { return 0.3 + 2*math.Exp(-s/60) },
		"a power":      func(s float64) float64 { return 3 / math.Sqrt(20+s) },
		"negative":     func(s float64) float64 { return -s / 100 },
	}
	for name, curve := range curves {
		for _, back := range []float64{0, 1.5, 6, -2} {
			rng := rand.New(rand.NewPCG(uint64(len(name)), uint64(10+back))) // the order of a map differs each time
			within, trials := 0, 600
			for trial := range trials {
				noise := 0.02
				if trial == 0 {
					noise = 0
				}
				var before, after []float64
				for s := range 100 {
					at, list := float64(50+s), &before
					if s >= 64 {
						at, list = at-back, &after
					}
					*list = append(*list, curve(at)*(1+noise*rng.NormFloat64()))
				}
				steps, deviation, ok := Behind(before, after)
				if !ok {
					t.Fatalf("%s: the loss falls, and it is not seen", name)
				}
				if trial == 0 && math.Abs(steps-back) > 1 {
					t.Errorf("%s: %g steps back are measured as %g ± %g", name, back, steps, deviation)
				}
				if math.Abs(steps-back) < 2*deviation {
					within++
				}
			}
			if within < trials*88/100 {
				t.Errorf("%s, %g steps back: only %d of %d are within two standard errors", name, back, within, trials)
			}
		}
	}
	rng := rand.New(rand.NewPCG(10, 10))
	seen := 0
	for range 1000 { // only noise
		losses := make([]float64, 96)
		for i := range losses {
			losses[i] = 1 + 0.2*rng.Float64()
		}
		if _, _, ok := Behind(losses[:64], losses[64:]); ok {
			seen++
		}
	}
	if seen > 40 {
		t.Errorf("in %d of 1000 series of noise a loss falls", seen)
	}
	flat := make([]float64, 40)
	for i := range flat {
		flat[i] = 1 + 0.01*[]float64{1, -1, -1, 1}[i%4] // no slope, whichever part is looked at
	}
	if steps, _, ok := Behind(flat, flat); ok {
		t.Errorf("a loss that does not fall is %g steps behind", steps)
	}
	fall := make([]float64, 40)
	for i := range fall {
		fall[i] = 9 - 0.1*float64(i) + flat[i]
	}
	for n := range fall {
		_, _, early := Behind(fall[:n], fall[n:])
		if want := n >= least && n <= len(fall)-least; early != want {
			t.Errorf("%d losses before and %d after are enough: %v", n, len(fall)-n, early)
		}
	}
	flat[3] = math.NaN()
	if _, _, ok := Behind(flat, flat); ok {
		t.Error("a loss is no number, and it is measured")
	}
}

// The standard error of Behind is the spread of what it measures, also where a failure took the
// losses back by more than both sides are long, so that the slope counts more than the jump.
func TestTheStandardErrorOfBehindIsItsSpread(t *testing.T) {
	for _, back := range []float64{0, 40, 200, -60} {
		rng := rand.New(rand.NewPCG(8, 9))
		const trials = 4000
		var sum, squares, stated float64
		for range trials {
			var before, after []float64
			for s := range 90 {
				at, list := float64(s), &before
				if s >= 60 {
					at, list = at-back, &after
				}
				*list = append(*list, 5-0.02*at+0.05*rng.NormFloat64()-20)
			}
			steps, deviation, ok := Behind(before, after)
			if !ok {
				t.Fatalf("%g steps back: the loss falls, and it is not seen", back)
			}
			sum, squares, stated = sum+steps, squares+steps*steps, stated+deviation
		}
		mean := sum / trials
		if spread, said := math.Sqrt(squares/trials-mean*mean), stated/trials; said < 0.85*spread || said > 1.15*spread {
			t.Errorf("%g steps back: measured as %.1f with a spread of %.2f, and the standard error is %.2f", back, mean, spread, said)
		}
	}
}

func TestAMeasurementWithinMoreThanWasPredictedIsHardlyBelieved(t *testing.T) {
	exact, vague := New(50), New(50)
	exact.Failure(2, 20, 0)
	vague.Failure(2, 20, 40)
	if a, n := exact.Calibration(); a != 22.0/4 || n != 1 {
		t.Errorf("an exact measurement calibrates by %g", a)
	}
	if a, n := vague.Calibration(); a < 1 || a > 1.1 || n != 1 {
		t.Errorf("a vague one calibrates by %g", a)
	}
}

// On a quadratic, of which parts were saved some steps ago, the curvature is estimated from how far
// the loss has fallen since, and the predicted cost of losing a part is the true one.
func TestTheCurvatureOfTheWayBackIsSeenFromTheLoss(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for range 20 {
		q, l := newQuadratic(rng, 40), New(50)
		var path [][]float64
		const now, age = 90, 12
		for at := range now {
			path = append(path, append([]float64(nil), q.z...))
			s := q.step(at, nil)
			l.Observe(Step{Step: s.Step, Loss: s.Loss, SquaredNorm: s.SquaredNorm})
		}
		saved, before := path[now-1-age], path[now-1]
		shards := make([]kintsugi.Exposure, 4)
		for i, z := range before {
			x := &shards[i/10]
			x.Chunks, x.Age = 1, age
			x.Dot += q.lambda[i] * z * (z - saved[i])
			x.Squared += (z - saved[i]) * (z - saved[i])
		}
		for range 30 {
			l.Exposed(shards)
		}
		sum := 0.0
		for s, x := range shards {
			y := append([]float64(nil), before...)
			copy(y[10*s:10*s+10], saved[10*s:10*s+10])
			decrease, _ := l.Decrease()
			want := (q.loss(y) - q.loss(before)) / decrease
			got, ok := l.Predict(Perturbation{Dot: -x.Dot, Squared: x.Squared})
			if !ok || math.Abs(got-want) > 0.35*want+0.3 {
				t.Errorf("losing shard %d is predicted to cost %.2f steps (%v), want %.2f", s, got, ok, want)
			}
			sum += got
		}
		if math.Abs(sum-age) > 0.35*age {
			t.Errorf("losing all of them costs %.2f steps, they go back %d", sum, age)
		}
	}
	l := New(50)
	l.Exposed([]kintsugi.Exposure{{}, {Chunks: 1, Squared: math.Inf(1), Dot: 1}})
	if l.Curvature() != 0 {
		t.Error("nothing is known, and there is a curvature")
	}
}

// One step with an invalid loss, or with one that is far too large, is forgotten like any other.
func TestOneWildStepIsForgotten(t *testing.T) {
	for name, bad := range map[string]Step{
		"NaN": {Loss: math.NaN(), SquaredNorm: 1}, "+Inf": {Loss: math.Inf(1), SquaredNorm: 1}, "-Inf": {Loss: math.Inf(-1), SquaredNorm: 1},
		"huge": {Loss: 1e200, SquaredNorm: math.MaxFloat64}, "no gradient": {Loss: 1, SquaredNorm: 0}, "huge time": {Loss: 1, SquaredNorm: 1, Seconds: math.MaxFloat64},
		"huge way": {Loss: 1, SquaredNorm: 1, Dot: math.MaxFloat64, SquaredDisplacement: math.MaxFloat64},
	} {
		for _, lift := range []float64{0, -10} { // a loss that is always positive, and one that is not
			wild, calm := New(4), New(4)
			for at := range 3000 {
				s := Step{Step: kintsugi.Step(at), Loss: 5*math.Exp(-float64(at)/1000) + lift, SquaredNorm: math.Exp(-float64(at) / 500), Seconds: 1, Dot: 2, LastDot: 1, SquaredDisplacement: 1}
				calm.Observe(s)
				if at == 1 || at == 2 {
					bad.Step, bad.LastDot = s.Step, -bad.Dot
					s = bad
				}
				wild.Observe(s)
			}
			for what, f := range map[string]func(*Ledger) (float64, bool){
				"decrease": (*Ledger).Decrease, "contraction": (*Ledger).Contraction,
				"rework":    func(l *Ledger) (float64, bool) { return l.Rework(Perturbation{Dot: 0.1, Squared: 0.1}) },
				"curvature": func(l *Ledger) (float64, bool) { return l.Curvature(), true },
				"seconds":   func(l *Ledger) (float64, bool) { return l.Cost(Server{Back: true, Age: 1}).Seconds, true },
			} {
				got, ok := f(wild)
				want, known := f(calm)
				if !known || ok != known || !(math.Abs(got-want) <= 1e-3*math.Abs(want)) {
					t.Errorf("%s, then a loss from %v on: %s %v (%v), want %v (%v)", name, 5+lift, what, got, ok, want, known)
				}
			}
		}
	}
	l := New(50)
	l.Failure(1e200, 3, 1e200)
	l.Failure(2, 4, 0)
	if factor, _ := l.Calibration(); !finite(factor) {
		t.Errorf("calibrated by %v", factor)
	}
}
