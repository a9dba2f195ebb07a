package live

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// Tensors with rates of their own end with the bits of a loop that steps each at its rate, for any
// number of servers and through the death of one.
func TestTensorsWithRatesOfTheirOwnGiveTheModelOfALoop(t *testing.T) {
	race.Skip(t)
	for _, rule := range []kintsugi.Rule{kintsugi.RuleSGD, kintsugi.RuleMomentum, kintsugi.RuleAdamW} {
		cfg := base(t)
		cfg.Schedule.Rule, cfg.Schedule.Momentum, cfg.Schedule.WeightDecay, cfg.Steps = rule, 0.9, 0.01, 30
		var err error
		if cfg.Layout, err = cfg.Layout.WithRates(map[string]float32{"a/b": 0.1, "c": 3}); err != nil {
			t.Fatal(err)
		}
		want := tensorByTensor(t, cfg, func(step kintsugi.Step, tensor kintsugi.Tensor) kintsugi.Optimizer {
			o := cfg.Schedule.At(step)
			o.LearningRate *= map[string]float32{"a/w": 1, "a/b": 0.1, "c": 3}[tensor.Name]
			return o
		})
		cfg.Servers, cfg.Replicas = 3, 2
		got := run(t, cfg, func(l *Cluster) {
			until(t, l, 12)
			l.KillServer(1)
			l.GoOn("a server died")
		})
		if !slices.EqualFunc(got, want, sameBits) {
			t.Errorf("%v: another model than a loop's", rule)
		}
	}
}
