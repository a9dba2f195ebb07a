package conductor

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// Runs whose workers take local steps have two optimizers: the inner one of the workers, and the
// outer one of the servers.

// OuterSyntax is what Outer understands.
const OuterSyntax = "auto, sgd[:RATE], momentum[:RATE[,MOMENTUM]] or nesterov[:RATE[,MOMENTUM]]"

// What momentum and nesterov have where nothing is said: the values of DiLoCo (Douillard et al.,
// 2023).
const (
	outerRate     = 0.7
	outerMomentum = 0.9
)

// Outer returns the schedule of the servers in a run whose workers take so many local steps by the
// schedule s, from a text in OuterSyntax; "" means auto. RATE is a part of the learning rate of s:
// with sgd at 1, its default, servers take the mean of the workers' models. A wrong text is a usage
// error.
//
// auto is the mean of the models, if local steps have no momentum, and otherwise momentum that
// makes up for what they lack. Since momentum μ begins at zero in each gradient, gradient j of H
// moves the parameters by a part 1−μ^(H−j+1) of what it would in a run without local steps. The
// outer momentum is the mean of the missing parts. So both have the same learning rate in the long
// run. For H = 1 it is μ itself.
func (s Schedule) Outer(text string, steps int) (Schedule, error) {
	name, numbers, given := strings.Cut(text, ":")
	o := Schedule{LearningRate: s.LearningRate, Warmup: s.Warmup, Decay: s.Decay, Steps: s.Steps}
	part := 1.0
	switch name {
	case "", "auto":
		if o.Rule = kintsugi.RuleSGD; s.Rule == kintsugi.RuleMomentum || s.Rule == kintsugi.RuleNesterov {
			o.Rule, o.Momentum = kintsugi.RuleMomentum, s.missing(steps)
		}
		if given {
			return Schedule{}, fmt.Errorf("%w: --outer %q: auto takes no numbers", kintsugi.ErrUsage, text)
		}
	case "sgd":
		o.Rule = kintsugi.RuleSGD
	case "momentum":
		o.Rule, part, o.Momentum = kintsugi.RuleMomentum, outerRate, outerMomentum
	case "nesterov":
		o.Rule, part, o.Momentum = kintsugi.RuleNesterov, outerRate, outerMomentum
	default:
		return Schedule{}, fmt.Errorf("%w: --outer %q is unknown; use %s", kintsugi.ErrUsage, text, OuterSyntax)
	}
	if given {
		rate, momentum, more := strings.Cut(numbers, ",")
		var err error
		if part, err = strconv.ParseFloat(rate, 64); err != nil || !(part > 0) || math.IsInf(part, 0) {
			return Schedule{}, fmt.Errorf("%w: --outer %q: %q must be a positive number, the part of the learning rate", kintsugi.ErrUsage, text, rate)
		}
		switch {
		case !more:
		case o.Rule == kintsugi.RuleSGD:
			return Schedule{}, fmt.Errorf("%w: --outer %q: %s has no momentum", kintsugi.ErrUsage, text, name)
		default:
			if o.Momentum, err = strconv.ParseFloat(momentum, 64); err != nil || !(o.Momentum >= 0 && o.Momentum < 1) {
				return Schedule{}, fmt.Errorf("%w: --outer %q: %q must be at least 0, and below 1", kintsugi.ErrUsage, text, momentum)
			}
		}
	}
	o.LearningRate *= part
	return o, nil
}

// missing returns the mean part of the way that gradients with momentum do not go in so many local
// steps.
func (s Schedule) missing(steps int) (mean float64) {
	part := 1.0
	if s.Rule == kintsugi.RuleNesterov {
		part = s.Momentum // it looks one step ahead, and goes as far as if it had already taken one
	}
	for range steps {
		part *= s.Momentum
		mean += part / float64(steps)
	}
	return mean
}
