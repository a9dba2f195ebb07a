package sim

import (
	"math"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/kernelstest"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// The learning rate rises and falls, and biases are not drawn to zero: a run has the bits of a loop
// that takes one tensor after the other, on any number of servers, where arrays are apart from the
// host's, in chains, and through a server that dies.
func TestALoopOverTensorsMakesTheSameModel(t *testing.T) {
	oneGoroutine(t)
	cfg := base(t)
	cfg.Steps = 40
	s := &cfg.Schedule
	s.Rule, s.WeightDecay, s.DecayMatrices, s.Warmup, s.Steps, s.Decay = kintsugi.RuleAdamW, 0.5, true, 7, cfg.Steps, conductor.Cosine
	want := tensorByTensor(t, cfg, func(step kintsugi.Step) float64 {
		if step <= 7 {
			return 0.01 * float64(step) / 7
		}
		return 0.01 * (1 + math.Cos(math.Pi*float64(step-8)/33)) / 2
	})
	far, chained := cfg, cfg
	far.Servers, far.Accelerator = 2, kernelstest.Apart(kernels.Best())
	chained.Servers, chained.Replicas, chained.Device = 3, 2, kernels.Best()
	for name, c := range map[string]struct {
		cfg   LiveConfig
		storm func(l *Live)
	}{
		"one server": {cfg, nil},
		"far":        {far, nil},
		"chained": {chained, func(l *Live) {
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

// tensorByTensor is the obvious version: one loop, a step for each tensor, weight decay where there are two dimensions.
func tensorByTensor(t *testing.T, cfg LiveConfig, rate func(kintsugi.Step) float64) []float32 {
	t.Helper()
	n := cfg.Layout.Values
	params, state := make([]float32, n), [2][]float32{make([]float32, n), make([]float32, n)}
	for v := range cfg.Steps {
		grads := make([][]float32, cfg.Workers)
		for w := range grads {
			grads[w] = make([]float32, n)
			if _, _, err := cfg.Gradient(t.Context(), params, grads[w], kintsugi.PushID{Slot: kintsugi.Slot(w), Version: v}); err != nil {
				t.Fatal(err)
			}
		}
		lo := 0
		for _, tensor := range cfg.Layout.Tensors {
			hi := lo + tensor.Values()
			o := cfg.Schedule.At(v + 1)
			o.LearningRate, o.DecayMatrices = float32(rate(v+1)), false
			if len(tensor.Shape) == 1 {
				o.WeightDecay = 0
			}
			step := kernels.Step{
				Rule: kernels.Rule(o.Rule), Scalars: server.Scalars(o, tensor), Scale: 1 / float32(32*cfg.Workers), Params: params[lo:hi], Next: params[lo:hi],
			}
			for i := range state {
				step.State[i], step.NextState[i] = state[i][lo:hi], state[i][lo:hi]
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
