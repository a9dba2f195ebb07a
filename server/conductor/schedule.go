package conductor

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
)

// Schedule gives the optimizer of each step. Zero fields mean no momentum, no decay and the usual
// β₁ = 0.9, β₂ = 0.999, ε = 1e-8 for Adam.
type Schedule struct {
	Rule         kintsugi.Rule
	LearningRate float64
	Momentum     float64
	Beta1, Beta2 float64
	Epsilon      float64
	WeightDecay  float64
}

// ParseRule returns the rule with the given name. An unknown name is a usage error.
func ParseRule(name string) (kintsugi.Rule, error) {
	for rule, n := range ruleNames {
		if n == name {
			return rule, nil
		}
	}
	return 0, fmt.Errorf("%w: optimizer %q is unknown; use sgd, momentum, nesterov, adam or adamw", kintsugi.ErrUsage, name)
}

var ruleNames = map[kintsugi.Rule]string{
	kintsugi.RuleSGD: "sgd", kintsugi.RuleMomentum: "momentum", kintsugi.RuleNesterov: "nesterov",
	kintsugi.RuleAdam: "adam", kintsugi.RuleAdamW: "adamw",
}

// At returns the optimizer of a step, from 1, with every scalar rounded to float32 once.
func (s Schedule) At(step kintsugi.Step) kintsugi.Optimizer {
	beta1, beta2, eps := orDefault(s.Beta1, 0.9), orDefault(s.Beta2, 0.999), orDefault(s.Epsilon, 1e-8)
	return kintsugi.Optimizer{
		Rule:         s.Rule,
		LearningRate: float32(s.LearningRate),
		Momentum:     float32(s.Momentum),
		Beta1:        float32(beta1),
		Beta2:        float32(beta2),
		Epsilon:      float32(eps),
		WeightDecay:  float32(s.WeightDecay),
		Correction1:  float32(1 - math.Pow(beta1, float64(step))),
		Correction2:  float32(1 - math.Pow(beta2, float64(step))),
	}
}

func orDefault(v, d float64) float64 {
	if v == 0 {
		return d
	}
	return v
}
