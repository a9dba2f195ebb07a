package job

import (
	"cmp"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/worker"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/rows"
)

// Models whose parameters have owners: mf:als and lda.

// owned returns a function that computes the steps of such a model, or nil for other models.
func (p *Problem) owned(s *Settings) (worker.Gradient, error) {
	switch d := p.Desc; {
	case d.Factors != nil && d.Factors.Alternate:
		ratings, ok := p.Data.Train.(*data.Ratings)
		if !ok {
			return nil, fmt.Errorf("%w: model %s is not for data set %q", kintsugi.ErrUsage, d.Name, p.Data.Name)
		}
		a, err := rows.NewAlternate(d, ratings, s.Workers)
		if err != nil {
			return nil, err
		}
		p.Reconcile = a.Reconcile
		return a.Gradient, nil
	case d.Topics != nil:
		if p.Data.Corpus == nil {
			return nil, fmt.Errorf("%w: model %s is not for data set %q", kintsugi.ErrUsage, d.Name, p.Data.Name)
		}
		g, err := rows.NewGibbs(d, p.Data.Corpus.Train, s.Workers, s.Seed)
		if err != nil {
			return nil, err
		}
		return g.Gradient, nil
	}
	return nil, nil
}

// nothing is a Closer without resources.
type nothing struct{}

func (nothing) Close() error { return nil }

// MakesOwnSteps reports whether a rule applies values that workers send, instead of following a
// gradient.
func MakesOwnSteps(rule kintsugi.Rule) bool {
	return rule == kintsugi.RuleAdd || rule == kintsugi.RuleAssign
}

// checkRule returns a usage error if the resolved settings do not fit such a rule: each value must
// be applied exactly, and once.
func (p *Problem) checkRule(s *Settings) error {
	schedule, err := s.schedule()
	if err != nil {
		return err
	}
	own, err := kintsugi.ParseRule(cmp.Or(p.Desc.Defaults.Optimizer, "sgd"))
	if err != nil {
		return err
	}
	if (MakesOwnSteps(own) || MakesOwnSteps(schedule.Rule)) && own != schedule.Rule {
		return fmt.Errorf("%w: --optimizer %s is not for model %s; leave it away", kintsugi.ErrUsage, s.Optimizer, p.Desc.Name)
	}
	if !MakesOwnSteps(own) {
		return nil
	}
	if s.local() {
		return fmt.Errorf("%w: --local-steps %d: a worker of model %s owns what it changes, and takes the whole step at once", kintsugi.ErrUsage, s.LocalSteps, p.Desc.Name)
	}
	codec, err := compress.Parse(s.Codec)
	if err != nil {
		return err
	}
	if !codec.Exact() || own == kintsugi.RuleAssign && codec.Encoding() != kernels.Sparse32 {
		return fmt.Errorf("%w: --codec %s: model %s sends rows exactly, and those alone that it changes; use sparse", kintsugi.ErrUsage, s.Codec, p.Desc.Name)
	}
	_, err = s.Counting()
	return err
}

// Counting returns the consistency of a run whose settings are resolved.
func (s *Settings) Counting() (agg.Config, error) {
	c, err := s.consistency()
	if err != nil {
		return c, err
	}
	schedule, err := s.Schedule()
	if err != nil {
		return c, err
	}
	if !MakesOwnSteps(schedule.Rule) {
		return s.keeping(c, schedule.Rule)
	}
	if c.Discount || c.Controller != "" || c.Credit > 1 {
		return c, fmt.Errorf("%w: --consistency %s: model %s owns what it changes: a step takes one push of a worker as it is, "+
			"so discounts, controllers and a credit of several pushes are not for it", kintsugi.ErrUsage, s.Consistency, s.Model)
	}
	if s.Outage == "continue" {
		return c, fmt.Errorf("%w: --outage continue: workers of model %s change what they own with each push, so that they wait for servers", kintsugi.ErrUsage, s.Model)
	}
	if c.ClipNorm > 0 {
		return c, fmt.Errorf("%w: --clip-norm %v: model %s has no gradients to clip: its steps take what workers have made of their parts as it is", kintsugi.ErrUsage, c.ClipNorm, s.Model)
	}
	if len(s.Rates) > 0 {
		return c, fmt.Errorf("%w: --rate %s: the steps of model %s have no learning rate", kintsugi.ErrUsage, s.Rates[0], s.Model)
	}
	c.Scale, c.Continue = agg.Sum, false
	return c, nil
}
