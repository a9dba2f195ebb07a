package job

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// statelessForms lists the forms of --recovery stateless.
const statelessForms = "stateless[:paper]"

// consistency returns which gradients a step counts, and what workers do in an outage. Unknown
// words are an ErrUsage.
func (s *Settings) consistency() (agg.Config, error) {
	c, err := agg.Preset(s.Consistency)
	if err != nil {
		return c, err
	}
	if !s.local() { // otherwise workers clip the gradients of their local steps
		c.ClipNorm = max(0, s.ClipNorm)
	}
	protects := s.Protects()
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

// keeping returns c with a rule for kept gradients that fits the optimizer: a path consists of
// gradients times the rates of their tensors.
func (s *Settings) keeping(c agg.Config, rule kintsugi.Rule) (agg.Config, error) {
	switch rule {
	case kintsugi.RuleSGD, kintsugi.RuleMomentum, kintsugi.RuleNesterov:
		return c, nil
	}
	if c.Keep == kintsugi.KeepLocal {
		c.Keep = kintsugi.KeepDecay
	}
	if s.Kept == kintsugi.KeepLocal.String() {
		return c, fmt.Errorf("%w: --kept local needs --optimizer sgd, momentum or nesterov, whose steps are gradients times a rate; use decay with %s", kintsugi.ErrUsage, s.Optimizer)
	}
	return c, nil
}

// LongRate returns a function of a version: how far one unit of gradient moves the parameters, in
// the step after this version and all following steps together.
func LongRate(schedule conductor.Schedule) func(version kintsugi.Step) float64 {
	return func(version kintsugi.Step) float64 {
		o := schedule.At(version + 1)
		if o.Rule == kintsugi.RuleSGD {
			return float64(o.LearningRate)
		}
		return float64(o.LearningRate) / (1 - float64(o.Momentum))
	}
}
