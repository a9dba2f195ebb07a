package dbw

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/fade"
)

// sender is a worker that sends the largest values of its gradients, and keeps the rest for later
// messages.
type sender struct{ gradient, message, residual []float64 }

// compute draws a gradient at w, and its message.
func (s *sender) compute(lambda, w []float64, noise float64, keep int, rng *rand.Rand) {
	all := make([]float64, len(w))
	for i := range w {
		s.gradient[i] = lambda[i]*w[i] + noise*rng.NormFloat64()
		all[i] = s.gradient[i] + s.residual[i]
	}
	order := make([]int, len(w))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, math.Abs(all[b])-math.Abs(all[a]))) })
	clear(s.message)
	for _, i := range order[:keep] {
		s.message[i] = all[i]
	}
}

func inner(x, y []float64) (sum float64) {
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

// On a quadratic with known curvatures, messages have a tenth of the values. What workers report of
// their gradients gives the right curvature and progress, even if one of them is late in every
// step. Messages alone do not.
func TestGradientsThatAreToldGiveTheCurvatureOfSparseSteps(t *testing.T) {
	const values, workers, steps, lr, beta, noise = 60, 4, 4000, 0.1, 0.5, 0.3
	lambda := make([]float64, values)
	for i := range lambda {
		lambda[i] = math.Pow(0.93, float64(i))
	}
	for _, late := range []int{0, 1} {
		rng := rand.New(rand.NewPCG(1, 2))
		w, d := make([]float64, values), make([]float64, values)
		var all [workers]sender
		for j := range all {
			all[j] = sender{make([]float64, values), make([]float64, values), make([]float64, values)}
		}
		told, messages := newSecant(steps/2), newSecant(steps/2)
		rise, path := fade.NewMean(steps/2), fade.NewMean(steps/2)
		slope, after := fade.NewMean(steps/2), fade.NewMean(steps/2)
		o := kintsugi.Optimizer{Rule: kintsugi.RuleMomentum, LearningRate: lr, Momentum: beta}
		var before, own, earlier [workers]float64
		for step := range kintsugi.Step(steps) {
			for j := range all {
				all[j].compute(lambda, w, noise, values/10, rng)
			}
			share := 1 / float64(workers-late)
			mean := make([]float64, values)
			truth := make([]float64, values)
			for i := range truth {
				truth[i] = lambda[i] * w[i]
			}
			out := Outcome{Step: step + 1, Measured: true, Optimizer: o}
			dense := 0.0
			norms := 0.0
			var counted []int
			for j := range all {
				if late == 1 && j == int(step)%workers { // its message is dropped
					continue
				}
				counted = append(counted, j)
				norm := inner(all[j].message, all[j].message)
				norms += share * norm
				dense += share * inner(all[j].gradient, d)
				out.Gradients = append(out.Gradients, Gradient{Share: share, SquaredNorm: norm, Along: step > 0, Before: before[j], Own: own[j], Earlier: earlier[j]})
				for i, m := range all[j].message {
					mean[i] += share * m
				}
			}
			out.SquaredNorm = inner(mean, mean)
			k := float64(len(counted))
			variance := (norms - out.SquaredNorm) * k / (k - 1)
			square := out.SquaredNorm - variance/k
			if step > 0 {
				after.Add(inner(truth, d))
				curved := 0.0
				for i, x := range d {
					curved += lambda[i] * x * x
				}
				rise.Add(curved)
				path.Add(inner(d, d))
			}
			for i := range d {
				d[i] = beta*d[i] - lr*mean[i]
			}
			slope.Add(inner(truth, d))
			out.SquaredDisplacement = inner(d, d)
			byMessages := out
			byMessages.Gradients = slices.Clone(out.Gradients)
			for i := range byMessages.Gradients {
				byMessages.Gradients[i].Along = false
			}
			previous := make([]float64, values)
			for i := range previous {
				previous[i] = (d[i] + lr*mean[i]) / beta
			}
			out.Dot, byMessages.Dot = dense, inner(mean, previous)
			told.add(out, square, variance)
			messages.add(byMessages, square, variance)
			earlier = [workers]float64{}
			for j := range all {
				before[j], own[j] = inner(all[j].gradient, d), inner(all[j].gradient, all[j].message)
				if slices.Contains(counted, j) {
					earlier[j] = share
					for i := range all[j].residual {
						all[j].residual[i] += all[j].gradient[i] - all[j].message[i]
					}
				}
			}
			for i := range w {
				w[i] += d[i]
			}
		}
		want := rise.Value() / path.Value()
		if got := told.curvature(); math.Abs(got/want-1) > 0.15 {
			t.Errorf("%d late: the curvature is %.4g, told %.4g", late, want, got)
		}
		if got := messages.curvature(); math.Abs(got/want-1) < 0.2 {
			t.Errorf("%d late: messages alone give the curvature %.4g, true is %.4g: then nobody need tell anything", late, got, want)
		}
	}
}

// A single worker has no other worker whose message is independent of its examples.
func TestNothingIsToldOfOnesOwnMessageAlone(t *testing.T) {
	s := secant{fresh: 0.1}
	sgd := kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.1}
	one := Gradient{Share: 1, Along: true, Before: -1, Own: 2, Earlier: 1}
	if _, ok := s.told(Outcome{Optimizer: sgd, Gradients: []Gradient{one}}); ok {
		t.Error("it is told by its own message")
	}
	one.Earlier = 0
	if slope, ok := s.told(Outcome{Optimizer: sgd, Gradients: []Gradient{one}}); !ok || slope != -1 {
		t.Errorf("a gradient that was late tells %v, %v; want -1", slope, ok)
	}
	one.Before = math.NaN()
	if _, ok := s.told(Outcome{Optimizer: sgd, Gradients: []Gradient{one}}); ok {
		t.Error("no number is believed")
	}
	one.Before = -1
	if _, ok := s.told(Outcome{Optimizer: kintsugi.Optimizer{Rule: kintsugi.RuleAdam}, Gradients: []Gradient{one}}); ok {
		t.Error("it is told for a rule that scales each parameter")
	}
}

// If tensors have rates of their own, a displacement is not a multiple of a gradient. The rate is
// then estimated from the length of displacements, as for rules that scale each parameter.
func TestTheRateOfUnevenStepsIsHowFarTheyGo(t *testing.T) {
	sgd := kintsugi.Optimizer{Rule: kintsugi.RuleSGD, LearningRate: 0.5}
	even, uneven := newSecant(20), newSecant(20)
	for n := range kintsugi.Step(9) {
		o := Outcome{Step: n + 1, Optimizer: sgd, Measured: true, SquaredDisplacement: 9, Gradients: []Gradient{{Share: 1, Along: true, Before: 1}}}
		even.add(o, 4, 0)
		o.Uneven = true
		uneven.add(o, 4, 0)
	}
	if got := even.rate(sgd); got != 0.5 {
		t.Errorf("an even step has a rate of %v, want the schedule's", got)
	}
	if got := uneven.rate(sgd); math.Abs(got-1.5) > 1e-12 { // a displacement of length 3 along a gradient of length 2
		t.Errorf("an uneven step has a rate of %v, want 1.5", got)
	}
	if _, told := uneven.told(Outcome{Optimizer: sgd, Gradients: []Gradient{{Share: 1, Along: true, Before: 1}}}); told {
		t.Error("workers tell of slopes along a displacement that no rate makes of gradients")
	}
}
