package conductor_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

func TestWhatServersMakeOfLocalSteps(t *testing.T) {
	inner := conductor.Schedule{
		Rule: kintsugi.RuleAdam, LearningRate: 0.25, Beta1: 0.8, Beta2: 0.9, Epsilon: 1e-6, WeightDecay: 0.1, DecayMatrices: true, Warmup: 3, Steps: 50, Decay: conductor.Decay{Form: conductor.Linear},
	}
	for text, want := range map[string]conductor.Schedule{
		"":                {Rule: kintsugi.RuleSGD, LearningRate: 0.25},
		"auto":            {Rule: kintsugi.RuleSGD, LearningRate: 0.25},
		"sgd":             {Rule: kintsugi.RuleSGD, LearningRate: 0.25},
		"sgd:0.5":         {Rule: kintsugi.RuleSGD, LearningRate: 0.125},
		"momentum":        {Rule: kintsugi.RuleMomentum, LearningRate: 0.7 * 0.25, Momentum: 0.9},
		"nesterov":        {Rule: kintsugi.RuleNesterov, LearningRate: 0.7 * 0.25, Momentum: 0.9},
		"nesterov:1":      {Rule: kintsugi.RuleNesterov, LearningRate: 0.25, Momentum: 0.9},
		"momentum:2,0.25": {Rule: kintsugi.RuleMomentum, LearningRate: 0.5, Momentum: 0.25},
		"nesterov:0.5,0":  {Rule: kintsugi.RuleNesterov, LearningRate: 0.125},
	} {
		want.Warmup, want.Steps, want.Decay = inner.Warmup, inner.Steps, inner.Decay
		if got, err := inner.Outer(text, 8); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"mean": "use auto, sgd", "adam": "use auto, sgd", "auto:1": "auto takes no numbers", "sgd:": `""`, "sgd:0": `"0"`, "sgd:-1": `"-1"`, "sgd:NaN": `"NaN"`, "sgd:+Inf": `"+Inf"`, "sgd:1,0.9": "sgd has no momentum",
		"momentum:1,1": `"1" must be at least 0`, "nesterov:1,NaN": `"NaN"`, "nesterov:1,": `""`, "nesterov:1,0.9,2": `"0.9,2"`,
	} {
		if _, err := inner.Outer(text, 8); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want a usage error that says %q", text, err, says)
		}
	}
}

// Along a constant gradient, a run with local steps goes as far in the long run as one without.
func TestOuterMomentumMakesUpForWhatLocalStepsLack(t *testing.T) {
	for _, rule := range []kintsugi.Rule{kintsugi.RuleMomentum, kintsugi.RuleNesterov} {
		for _, momentum := range []float64{0, 0.5, 0.9} {
			for _, steps := range []int{1, 2, 16, 100} {
				inner := conductor.Schedule{Rule: rule, LearningRate: 1, Momentum: momentum}
				outer, err := inner.Outer("", steps)
				if err != nil || outer.Rule != kintsugi.RuleMomentum {
					t.Fatal(outer, err)
				}
				m, way := 0.0, 0.0 // of one gradient of local steps
				for range steps {
					m = momentum*m + 1
					if way += m; rule == kintsugi.RuleNesterov {
						way += 1 + momentum*m - m
					}
				}
				got, want := way/(1-outer.Momentum), float64(steps)/(1-momentum)
				if math.Abs(got-want) > 1e-9*want {
					t.Errorf("rule %d, momentum %v, %d local steps: %v, want %v", rule, momentum, steps, got, want)
				}
				if steps == 1 && rule == kintsugi.RuleMomentum && math.Abs(outer.Momentum-momentum) > 1e-15 {
					t.Errorf("one local step: momentum %v, want %v", outer.Momentum, momentum)
				}
			}
		}
	}
}

func TestDropsOfFewerSteps(t *testing.T) {
	for text, want := range map[string]string{
		"drop:0.1@300,600": "drop:0.1@75,150", "drop:0.5@1,2,3,10": "drop:0.5@1,2,3,4", "drop:0.25@5": "drop:0.25@2",
		"linear:0.1,last=0.5": "linear:0.1,last=0.5", "": "", "nonsense@3": "nonsense@3",
	} {
		if got := conductor.CoarserDecay(text, 4); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if got := conductor.CoarserDecay(text, 1); got != text {
			t.Errorf("%q as it is: %q", text, got)
		}
	}
}

// A run with local steps and one without have the same rates in the same places, if a step of one
// is n of the other.
func TestLocalStepsFollowTheScheduleOfTheRun(t *testing.T) {
	const n = 6
	parse := func(text string) conductor.Decay {
		d, err := conductor.ParseDecay(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for coarse, fine := range map[string]string{
		"constant": "constant", "linear": "linear", "cosine:0.25,last=0.5": "cosine:0.25,last=0.5", "drop:0.5@3,9": "drop:0.5@18,54",
	} {
		s := conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 0.5, Momentum: 0.9, Beta1: 0.8, Beta2: 0.95, Epsilon: 1e-6, WeightDecay: 0.1, Warmup: 2, Steps: 12, Decay: parse(coarse)}
		long := s
		long.Warmup, long.Steps, long.Decay = 12, 72, parse(fine)
		got := s.Finer(n)
		for step := kintsugi.Step(1); step <= long.Steps; step++ {
			if a, b := got.At(step), long.At(step); a != b {
				t.Errorf("%s: step %d: %+v, want %+v", coarse, step, a, b)
			}
		}
		if s.Finer(1) != s {
			t.Errorf("%s: one part of a step is not the step", coarse)
		}
		for i := kintsugi.Step(1); i <= n; i++ {
			a, young, rate := got.Aged(7*n+i, i), got.At(i), got.At(7*n+i)
			if a.Correction1 != young.Correction1 || a.Correction2 != young.Correction2 || a.LearningRate != rate.LearningRate {
				t.Errorf("%s: local step %d: %+v", coarse, i, a)
			}
		}
	}
}
