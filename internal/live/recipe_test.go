package live

import (
	"math"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/kernelstest"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// The learning rate rises and falls, and biases do not decay. A run has the bits of a loop that
// takes one tensor after the other: for any number of servers, with arrays on an accelerator, in
// chains, and through the death of a server.
func TestALoopOverTensorsMakesTheSameModel(t *testing.T) {
	race.Skip(t)
	cfg := base(t)
	cfg.Steps = 40
	s := &cfg.Schedule
	s.Rule, s.WeightDecay, s.DecayMatrices, s.Warmup, s.Steps, s.Decay = kintsugi.RuleAdamW, 0.5, true, 7, cfg.Steps, conductor.Decay{Form: conductor.Cosine}
	want := tensorByTensor(t, cfg, func(step kintsugi.Step, tensor kintsugi.Tensor) kintsugi.Optimizer {
		o, rate := s.At(step), 0.01*(1+math.Cos(math.Pi*float64(step-8)/33))/2
		if step <= 7 {
			rate = 0.01 * float64(step) / 7
		}
		o.LearningRate, o.DecayMatrices = float32(rate), false
		if len(tensor.Shape) == 1 {
			o.WeightDecay = 0
		}
		return o
	})
	far, chained := cfg, cfg
	far.Servers, far.Accelerator = 2, kernelstest.Apart(kernels.Best())
	chained.Servers, chained.Replicas, chained.Device = 3, 2, kernels.Best()
	for name, c := range map[string]struct {
		cfg   Config
		storm func(l *Cluster)
	}{
		"one server": {cfg, nil},
		"far":        {far, nil},
		"chained": {chained, func(l *Cluster) {
			until(t, l, 12)
			l.KillServer(0)
			l.GoOn("a server died")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := run(t, c.cfg, c.storm); !slices.EqualFunc(got, want, sameBits) {
				t.Error("another model")
			}
		})
	}
	all := cfg
	all.Schedule.DecayMatrices = false
	if got := run(t, all, nil); slices.EqualFunc(got, want, sameBits) {
		t.Error("whether biases decay makes no difference: nothing is shown")
	}
}

// tensorByTensor is the obvious version: one loop, with a step for each tensor by the optimizer of
// that step.
func tensorByTensor(t *testing.T, cfg Config, optimizer func(kintsugi.Step, kintsugi.Tensor) kintsugi.Optimizer) []float32 {
	t.Helper()
	n := cfg.Layout.Values
	m := newMade(cfg)
	for v := range cfg.Steps {
		grads := make([]kernels.Operand, cfg.Workers)
		for w := range grads {
			grads[w] = kernels.Operand{Weight: 32, Values: make([]float32, n)}
			if _, _, err := cfg.Gradient(t.Context(), m.params, grads[w].Values, kintsugi.PushID{Slot: kintsugi.Slot(w), Version: v}); err != nil {
				t.Fatal(err)
			}
		}
		m.step(t, cfg.Layout, grads, 1/float32(32*cfg.Workers), func(tensor kintsugi.Tensor) kintsugi.Optimizer { return optimizer(v+1, tensor) })
	}
	return m.params
}

// made is the result of a step.
type made struct {
	params []float32
	state  [2][]float32 // as many arrays as the rule has
}

// newMade returns the state before the first step: zeros.
func newMade(cfg Config) *made {
	m := &made{params: make([]float32, cfg.Layout.Values)}
	for i := range cfg.Schedule.Rule.States() {
		m.state[i] = make([]float32, cfg.Layout.Values)
	}
	return m
}

// step makes a step on the weighted sum of gradients, one tensor after the other, each with its own
// optimizer.
func (m *made) step(t *testing.T, l *kintsugi.Layout, grads []kernels.Operand, scale float32, optimizer func(kintsugi.Tensor) kintsugi.Optimizer) {
	t.Helper()
	lo := 0
	for _, tensor := range l.Tensors {
		hi, o := lo+tensor.Values(), optimizer(tensor)
		step := kernels.Step{Rule: kernels.Rule(o.Rule), Scalars: server.Scalars(o, tensor), Scale: scale, Params: m.params[lo:hi], Next: m.params[lo:hi]}
		for i := range step.Rule.States() {
			step.State[i], step.NextState[i] = m.state[i][lo:hi], m.state[i][lo:hi]
		}
		for _, g := range grads {
			step.Operands = append(step.Operands, kernels.Operand{Weight: g.Weight, Values: g.Values[lo:hi]})
		}
		if _, err := kernels.Host.Step(&step); err != nil {
			t.Fatal(err)
		}
		lo = hi
	}
}
