package sim

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server"
)

// Tensors with rates of their own end with the bits of a loop that steps each of them at its rate,
// on any number of servers and through the death of one.
func TestTensorsWithRatesOfTheirOwnGiveTheModelOfALoop(t *testing.T) {
	race.Skip(t)
	for _, rule := range []kintsugi.Rule{kintsugi.RuleSGD, kintsugi.RuleMomentum, kintsugi.RuleAdamW} {
		cfg := base(t)
		cfg.Schedule.Rule, cfg.Schedule.Momentum, cfg.Schedule.WeightDecay, cfg.Steps = rule, 0.9, 0.01, 30
		var err error
		if cfg.Layout, err = cfg.Layout.WithRates(map[string]float32{"a/b": 0.1, "c": 3}); err != nil {
			t.Fatal(err)
		}
		want := loopOfRates(t, cfg)
		cfg.Servers, cfg.Replicas = 3, 2
		got := run(t, cfg, func(l *Live) {
			until(t, l, 12)
			l.KillServer(1)
			l.GoOn("a server died")
		})
		if !slices.EqualFunc(got, want, sameBits) {
			t.Errorf("%v: another model than a loop's", kernels.Rule(rule))
		}
	}
}

// loopOfRates trains as cfg says in one goroutine, tensor by tensor.
func loopOfRates(t *testing.T, cfg LiveConfig) []float32 {
	t.Helper()
	l := cfg.Layout
	params, state := make([]float32, l.Values), make([][]float32, kernels.Rule(cfg.Schedule.Rule).States())
	for i := range state {
		state[i] = make([]float32, l.Values)
	}
	for v := range cfg.Steps {
		var grads [][]float32
		for w := range cfg.Workers {
			g := make([]float32, l.Values)
			if _, _, err := cfg.Gradient(t.Context(), params, g, kintsugi.PushID{Line: 1, Slot: kintsugi.Slot(w), Version: v}); err != nil {
				t.Fatal(err)
			}
			grads = append(grads, g)
		}
		lo, o := 0, cfg.Schedule.At(v+1)
		for i, tensor := range l.Tensors {
			hi := lo + tensor.Values()
			step := kernels.Step{Rule: kernels.Rule(o.Rule), Scale: 1 / float32(32*cfg.Workers), Params: params[lo:hi], Next: params[lo:hi], Scalars: server.Scalars(o, tensor)}
			step.Scalars.LearningRate *= map[string]float32{"a/w": 1, "a/b": 0.1, "c": 3}[l.Tensors[i].Name]
			for k := range state {
				step.State[k], step.NextState[k] = state[k][lo:hi], state[k][lo:hi]
			}
			for _, g := range grads {
				step.Operands = append(step.Operands, kernels.Operand{Weight: 32, Values: g[lo:hi]})
			}
			if _, err := kernels.Host.Step(&step); err != nil {
				t.Fatal(err)
			}
			lo = hi
		}
	}
	return params
}
