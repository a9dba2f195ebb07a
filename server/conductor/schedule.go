package conductor

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// Schedule computes the optimizer of each step. Zero fields mean no momentum and no decay.
type Schedule struct {
	Rule         kintsugi.Rule
	LearningRate float64
	Momentum     float64
	Beta1, Beta2 float64 // of Adam, AdamW and LazyAdam; if both are 0: 0.9 and 0.999
	Epsilon      float64 // of Adam, AdamW, LazyAdam and Adagrad; 0: 1e-8
	WeightDecay  float64

	DecayMatrices bool // see kintsugi.Optimizer

	// Warmup is the number of steps in which the learning rate rises to its value: step t has
	// t/Warmup of it. Adam's first steps are long, whatever the gradients are, and a deep model may
	// not recover from them.
	Warmup kintsugi.Step
	// Decay lowers the learning rate in the steps after Warmup, up to Steps, the steps of the run.
	// With a constant rate, the parameters jump about the optimum to the last step.
	Decay Decay
	Steps kintsugi.Step
}

// rate returns the learning rate of a step.
func (s Schedule) rate(step kintsugi.Step) float64 {
	switch {
	case step == 0:
		return s.LearningRate
	case step <= s.Warmup:
		return s.LearningRate * (float64(step) / float64(s.Warmup))
	}
	return s.LearningRate * s.Decay.factor(step, s.Warmup+1, s.Steps)
}

// At returns the optimizer of a step, counted from 1. Every scalar is rounded to float32 once.
func (s Schedule) At(step kintsugi.Step) kintsugi.Optimizer {
	beta1, beta2, eps := s.Beta1, s.Beta2, cmp.Or(s.Epsilon, 1e-8)
	if beta1 == 0 && beta2 == 0 {
		beta1, beta2 = 0.9, 0.999
	}
	return kintsugi.Optimizer{
		Rule:         s.Rule,
		LearningRate: float32(s.rate(step)),
		Momentum:     float32(s.Momentum),
		Beta1:        float32(beta1),
		Beta2:        float32(beta2),
		Epsilon:      float32(eps),
		WeightDecay:  float32(s.WeightDecay),
		Correction1:  float32(1 - math.Pow(beta1, float64(step))),
		Correction2:  float32(1 - math.Pow(beta2, float64(step))),

		DecayMatrices: s.DecayMatrices,
	}
}

// Finer returns a schedule that falls as s does, in a run whose every step is cut into n: t of s are
// the steps n·(t−1)+1 to n·t of it.
func (s Schedule) Finer(n int) Schedule {
	s.Warmup, s.Steps = s.Warmup*kintsugi.Step(n), s.Steps*kintsugi.Step(n)
	for i := range s.Decay.At {
		s.Decay.At[i] *= kintsugi.Step(n)
	}
	return s
}

// Aged returns the optimizer of a step whose state has been kept for so many steps only, this one
// included: Adam's bias corrections count these.
func (s Schedule) Aged(step, steps kintsugi.Step) kintsugi.Optimizer {
	o, own := s.At(step), s.At(steps)
	o.Correction1, o.Correction2 = own.Correction1, own.Correction2
	return o
}

// Part returns the optimizer of a step that has a part of the schedule's learning rate.
func (s Schedule) Part(step kintsugi.Step, part float64) kintsugi.Optimizer {
	o := s.At(step)
	o.LearningRate = float32(float64(o.LearningRate) * part)
	return o
}

// ParseBetas parses β₁ and β₂ of Adam, such as 0.9,0.95; "" means the usual ones. A wrong text is a
// usage error.
func ParseBetas(text string) (beta1, beta2 float64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	first, second, _ := strings.Cut(text, ",")
	beta1, err1 := strconv.ParseFloat(first, 64)
	beta2, err2 := strconv.ParseFloat(second, 64)
	if err1 != nil || err2 != nil || !(beta1 >= 0 && float32(beta1) < 1 && beta2 > 0 && float32(beta2) < 1) {
		return 0, 0, fmt.Errorf("%w: betas %q must be two numbers below 1, such as 0.9,0.95; the second one must be above 0", kintsugi.ErrUsage, text)
	}
	return beta1, beta2, nil
}
