package main

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// statelessForms says what --recovery stateless may be.
const statelessForms = "stateless[:paper]"

// consistency returns who is counted in a step, and what workers do in an outage. Words that nobody
// knows are an ErrUsage.
func (s *settings) consistency() (agg.Config, error) {
	c, err := agg.Preset(s.Consistency)
	if err != nil {
		return c, err
	}
	c.ClipNorm = max(0, s.ClipNorm)
	protects := s.protects()
	switch s.Outage {
	case "":
		c.Continue = protects.goesOn && c.Pace().Staleness > 0
	case "continue":
		c.Continue = true
	case "wait":
	default:
		return c, fmt.Errorf("%w: --outage %q is unknown; use wait or continue", kintsugi.ErrUsage, s.Outage)
	}
	if s.Kept == "" && protects.sums {
		c.Keep = kintsugi.KeepSum
		return c, nil
	}
	for _, r := range kintsugi.KeepRules() {
		if s.Kept == r.String() || s.Kept == "" {
			c.Keep = r
			return c, nil
		}
	}
	return c, fmt.Errorf("%w: --kept %q is unknown; use local, decay, average or sum", kintsugi.ErrUsage, s.Kept)
}

// keeping returns c with a rule for kept gradients that goes with the optimizer: a path is made of
// gradients times one rate.
func (s *settings) keeping(c agg.Config, rule kintsugi.Rule) (agg.Config, error) {
	switch rule {
	case kintsugi.RuleSGD, kintsugi.RuleMomentum, kintsugi.RuleNesterov:
		if !s.uneven {
			return c, nil
		}
	}
	if c.Keep == kintsugi.KeepLocal {
		c.Keep = kintsugi.KeepDecay
	}
	if s.Kept == kintsugi.KeepLocal.String() {
		if s.uneven {
			return c, fmt.Errorf("%w: --kept local needs one learning rate for all tensors, and the program gives some of them rates of their own; use decay", kintsugi.ErrUsage)
		}
		return c, fmt.Errorf("%w: --kept local needs --optimizer sgd, momentum or nesterov, whose steps are gradients times a rate; use decay with %s", kintsugi.ErrUsage, s.Optimizer)
	}
	return c, nil
}

// longRate returns by how much a unit of gradient moves the parameters in the step after a version
// and those that follow.
func longRate(schedule conductor.Schedule) func(version kintsugi.Step) float64 {
	return func(version kintsugi.Step) float64 {
		o := schedule.At(version + 1)
		if o.Rule == kintsugi.RuleSGD {
			return float64(o.LearningRate)
		}
		return float64(o.LearningRate) / (1 - float64(o.Momentum))
	}
}
