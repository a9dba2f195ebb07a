package dbw

import (
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/fade"
)

// Estimate is what is known of the gradient. It is computed in float64, over all values of the
// counted, decoded gradients.
type Estimate struct {
	Variance  float64 // V̂: total variance of one worker's gradient
	Square    float64 // Ŝ: ‖∇F‖²
	Curvature float64 // L̂: of the loss along the path of the parameters
	Rate      float64 // η: effective learning rate, how far a gradient moves the parameters in the end
	Progress  float64 // measured decrease of the loss per step at that rate; 0: not measured
	Horizon   float64 // steps over which the gain is considered; 0: one
}

// Gain returns the expected decrease of the loss by a step with quota k. One step ahead, it is the
// paper's bound
//
//	G(k) = (η − Lη²/2)·S − (Lη²/2)·V/k.
//
// Over a horizon of H steps it is
//
//	G(k) = R·exp(−Φ/(k·R·H)),
//
// with the measured progress R and the height of the noise floor Φ/k = ηV/(2(2 − ηL)·k). A run with
// quota k rises to that floor once and no further: later steps take off again what noise adds to
// the loss in one step. If each step counted it, every quota would be too large. R·H is what the
// horizon gains. If the floor is small compared with it, the floor is all that is lost: R −
// Φ/(k·H). A higher floor leaves less and less, but never nothing, so that an unlucky estimate of R
// does not ask for all members.
func (e Estimate) Gain(k int) float64 {
	if e.Horizon == 0 {
		half := e.Curvature * e.Rate * e.Rate / 2
		return (e.Rate-half)*e.Square - half*e.Variance/float64(k)
	}
	if e.Progress <= 0 {
		return 0 // avoids 0/0
	}
	return e.Progress * math.Exp(-e.floor()/(float64(k)*e.Progress*e.Horizon))
}

// At returns the estimate for a part of the learning rate. Progress is proportional to it.
func (e Estimate) At(part float64) Estimate {
	e.Rate *= part
	e.Progress *= part
	return e
}

// floor returns Φ. It is cut off near the edge of stability, where ηL reaches 2.
func (e Estimate) floor() float64 {
	return e.Rate * e.Variance / (2 * max(edge, 2-e.Rate*max(0, e.Curvature)))
}

const edge = 0.1

// moments estimates V̂ and Ŝ.
type moments struct {
	variance, square fade.Mean
	sinceVariance    int // steps of one gradient, which do not show the variance
}

// add takes a step and returns its Ŝ, which may be negative: cut off at zero, it would be biased.
func (m *moments) add(o Outcome) (square float64, ok bool) {
	k := float64(len(o.Gradients))
	if len(o.Gradients) == 0 || !finite(o.SquaredNorm) {
		return 0, false
	}
	total := 0.0
	for _, g := range o.Gradients {
		total += g.Share * g.SquaredNorm
	}
	if !finite(total) {
		return 0, false
	}
	v := m.variance.Value()
	if k > 1 {
		v = (total - o.SquaredNorm) * k / (k - 1)
		m.variance.Add(v)
		m.sinceVariance = 0
	} else {
		m.sinceVariance++
	}
	square = o.SquaredNorm - v/k
	m.square.Add(square)
	return square, true
}

// secant estimates the curvature along the displacement d of the step before, and the progress:
//
//	L̂ = (⟨ḡ₊, d⟩ − ⟨∇F, d⟩) / ‖d‖², numerator and denominator summed over the window,
//	R̂ = −(⟨ḡ₊, d⟩ + ⟨∇F, d⟩) / 2, the trapezoid between the two ends of d.
//
// ⟨ḡ₊, d⟩ is a by-product of the kernel. It is unbiased, since ḡ₊ was drawn after d. ⟨ḡ, d⟩ is
// biased, since d contains the noise of ḡ. In d = β·d₋₁ − (1−β)·η·ḡ, that noise is in the second
// term alone, so
//
//	⟨∇F, d⟩ = β·⟨ḡ, d₋₁⟩ − (1−β)·η·Ŝ,
//
// where β is 0 for plain SGD, the momentum for momentum, and β₁ for Adam. η is the effective rate:
// how far a gradient moves the parameters in all steps that it has a part in. Neither estimate
// needs a loss.
//
// Limitation: rules that scale each parameter, and tensors with rates of their own, have no single
// rate. Their η is measured by the length of their steps. That is near enough for the progress, but
// not for the curvature, which is a small difference of two such terms. Their curvature is left 0,
// and the noise floor is then that of a rate far from the edge of stability.
type secant struct {
	rise, path fade.Mean // of L̂: numerator and denominator
	progress   progress
	slope      float64 // ⟨∇F, d⟩ of the step before
	carried    float64 // the part of slope from the displacement before: β·⟨∇F, d₋₁⟩
	fresh      float64 // factor of the mean gradient in the step before: (1−β)·η
	squared    float64 // ‖d‖² of the step before
	step       kintsugi.Step
	pending    bool
	uneven     bool      // tensors have rates of their own
	full       float64   // learning rate of the newest schedule, of which a step may have had a part
	part       float64   // part of the rate that the step before had
	moved      fade.Mean // ‖d‖²
	spread     fade.Mean // ‖d‖² at rate 1: moved/spread is the square of the rate
}

func newSecant(memory float64) secant {
	return secant{rise: fade.NewMean(memory), path: fade.NewMean(memory), moved: fade.NewMean(memory), spread: fade.NewMean(memory)}
}

// add takes a step, with its Ŝ and the present V̂.
func (s *secant) add(o Outcome, square, variance float64) {
	s.uneven = o.Uneven
	follows := s.pending && o.Step == s.step+1 && o.Measured && finite(o.Dot)
	before := 0.0
	if follows {
		before = o.Dot
		if slope, ok := s.told(o); ok {
			s.slope = slope
		}
		if !s.scales(o.Optimizer.Rule) {
			s.rise.Add(o.Dot - s.slope)
			s.path.Add(s.squared)
		}
		s.progress.add(-(o.Dot + s.slope) / 2 / max(1e-6, s.part))
	}
	if s.pending = o.Measured && finite(o.SquaredDisplacement); !s.pending {
		return
	}
	beta := persistence(o.Optimizer)
	s.measure(o, square, variance)
	s.carried, s.fresh = beta*before, (1-beta)*s.rate(o.Optimizer)
	s.slope = s.carried - s.fresh*square
	s.squared, s.step, s.part = o.SquaredDisplacement, o.Step, s.partOf(o.Optimizer)
}

// partOf returns the part of the schedule's learning rate that a step has had.
func (s *secant) partOf(o kintsugi.Optimizer) float64 {
	if s.full > 0 {
		return float64(o.LearningRate) / s.full
	}
	return 1
}

// curvature returns L̂, 0 before anything is known.
func (s *secant) curvature() float64 {
	if path := s.path.Value(); path > 0 {
		return s.rise.Value() / path
	}
	return 0
}

// known reports whether there is any estimate.
func (s *secant) known() bool { return s.progress.steps > 0 }

// measure notes how far a step has moved, for rules that scale each parameter, since they have no
// rate of their own.
func (s *secant) measure(o Outcome, square, variance float64) {
	beta := persistence(o.Optimizer)
	unit := max(0, square) + variance/float64(len(o.Gradients))*(1-beta)/(1+beta)
	if lr := float64(o.Optimizer.LearningRate); lr > 0 {
		s.moved.Add(o.SquaredDisplacement / (lr * lr))
		s.spread.Add(unit)
	}
}

// rate returns the effective learning rate.
func (s *secant) rate(o kintsugi.Optimizer) float64 {
	lr := float64(o.LearningRate)
	if !s.scales(o.Rule) {
		return lr / (1 - persistence(o))
	}
	if s.spread.Value() <= 0 {
		return 0
	}
	return lr * math.Sqrt(s.moved.Value()/s.spread.Value())
}

// scales reports whether the steps of a rule scale each parameter.
func (s *secant) scales(r kintsugi.Rule) bool {
	return s.uneven || r.Moments() || r == kintsugi.RuleAdagrad
}

// persistence returns the part of a displacement that goes on in the next step.
func persistence(o kintsugi.Optimizer) float64 {
	switch {
	case o.Rule == kintsugi.RuleMomentum, o.Rule == kintsugi.RuleNesterov:
		return float64(o.Momentum)
	case o.Rule.Moments():
		return float64(o.Beta1)
	}
	return 0
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
