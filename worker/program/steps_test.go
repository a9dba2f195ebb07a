package program_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker/local"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// A module in PyTorch with parameters of each kind: with dense and with sparse gradients, of another
// type, and one on which no loss depends. Its noise is a function of the batch.
const inPyTorch = `
import kintsugi, torch
from torch import nn

kintsugi._takes_steps = lambda far: True  # also on a CPU

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 3, sparse=True)
        self.first, self.last, self.idle = nn.Linear(3, 5), nn.Linear(5, 1), nn.Parameter(torch.ones(2))
        self.scale = nn.Parameter(torch.ones(5, dtype=torch.bfloat16))

def loss(module, batch):
    noise = module.scale.float() + torch.rand(len(batch.indices), 5)
    h = torch.tanh(module.first(module.words(torch.tensor(batch.indices)))) * noise
    return ((module.last(h).squeeze(1) - torch.tensor(batch.indices) / 5.0) ** 2).mean()

kintsugi.run_torch("net", Net, loss, examples=7)
`

// On a CPU the worker takes them: see BenchmarkLocalSteps.
func TestAModuleOnACPUTakesNoLocalSteps(t *testing.T) {
	withPyTorch(t)
	p, err := inPython(t, `
import kintsugi, torch
kintsugi.run_torch("net", lambda: torch.nn.Linear(2, 2), None, examples=7, device="cpu")
`)
	if err != nil || p.Takes() {
		t.Errorf("it takes local steps: %v, error %v", p.Takes(), err)
	}
}

// Local steps that a module takes where it is are those that its worker would take along its
// gradients, up to rounding.
func TestLocalStepsInPyTorchAreThoseOfTheWorker(t *testing.T) {
	withPyTorch(t)
	p, err := inPython(t, inPyTorch)
	if err != nil {
		t.Fatal(err)
	}
	takesTheStepsOfItsWorker(t, p)
}

// A tree in JAX, with a leaf of another type and one without values.
const inJAX = `
import jax, kintsugi
from jax import numpy as jnp

kintsugi._takes_steps = lambda far: True  # also on a CPU

def build(key):
    a, b = jax.random.split(key)
    return {"first": {"w": jax.random.normal(a, (7, 5)), "b": jnp.zeros(5, jnp.bfloat16)}, "last": [jax.random.normal(b, (5,)), jnp.zeros((0, 3)), jnp.float32(0.5)]}

def loss(params, x, key):
    noise = 1 + jax.random.uniform(key, (len(x), 5))
    h = jnp.tanh(params["first"]["w"][x] + params["first"]["b"]) * noise
    return jnp.mean((h @ params["last"][0] + params["last"][2] - x / 5.0) ** 2) + params["last"][1].sum()

kintsugi.run_jax("net", build, loss, lambda batch: jnp.array(batch.indices), examples=7)
`

// So are those in JAX.
func TestLocalStepsInJAXAreThoseOfTheWorker(t *testing.T) {
	withJAX(t)
	p, err := inPython(t, inJAX)
	if err != nil {
		t.Fatal(err)
	}
	takesTheStepsOfItsWorker(t, p)
}

// takesTheStepsOfItsWorker compares local steps with each rule, of tensors with different rates and
// decays, with and without clipping.
func takesTheStepsOfItsWorker(t *testing.T, p *program.Program) {
	t.Helper()
	if !p.Takes() {
		t.Fatal("it takes no local steps")
	}
	about := p.About()
	l, err := about.Layout()
	if err != nil {
		t.Fatal(err)
	}
	params, got, want := make([]float32, l.Values), make([]float32, l.Values), make([]float32, l.Values)
	if err := p.Initialise(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	const steps = 5
	groups := make([]int, len(l.Tensors))
	for i := range groups {
		groups[i] = i % 2
	}
	seed := func(id kintsugi.PushID) uint64 { return 3 + 7*uint64(id.Version) }
	indices := func(id kintsugi.PushID) []int { return []int{int(id.Version) % 7, 2, 5} }
	for _, rule := range []kernels.Rule{kernels.SGD, kernels.Momentum, kernels.Nesterov, kernels.Adam, kernels.AdamW, kernels.Adagrad, kernels.LazyAdam} {
		for _, clip := range []float64{0, 0.25} {
			scalars := func(_ kintsugi.Step, i, tensor int) kernels.Scalars {
				s := kernels.Scalars{
					LearningRate: 0.1 / float32(1+i), Momentum: 0.75, Beta1: 0.5, Beta2: 0.875, Epsilon: 1e-3,
					Correction1: float32(1 - math.Pow(0.5, float64(i+1))), Correction2: float32(1 - math.Pow(0.875, float64(i+1))),
				}
				if groups[tensor] == 1 {
					s.LearningRate, s.WeightDecay = s.LearningRate/4, 0.125
				}
				return s
			}
			plan := local.Plan{Steps: steps, Scalars: scalars, Rate: func(v kintsugi.Step, tensor int) float32 { return scalars(v, 0, tensor).LearningRate }}
			if clip > 0 {
				plan.Clipped = func(squared float64) float64 { return min(1, clip/math.Sqrt(squared)) }
			}
			id := kintsugi.PushID{Slot: 0, Version: 2}
			worker := local.New(local.Config{Plan: plan, Layout: l, Device: kernels.Host, Rule: rule, Gradient: func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
				return p.Gradient(ctx, params, grads, program.Request{ID: id, Seed: seed(id), Indices: indices(id)})
			}})
			wantLoss, wantExamples, err := worker(t.Context(), params, want, id)
			if err != nil {
				t.Fatal(err)
			}
			x := program.Steps{ID: id, Rule: rule, Scalars: scalars(0, 0, 0), ClipNorm: clip, Groups: groups, Decays: []float32{0, 0.125}, Units: []float32{0.1, 0.025}}
			for i := range steps {
				at := plan.At(id, i)
				x.Batches = append(x.Batches, program.StepBatch{Version: at.Version, Seed: seed(at), Indices: indices(at), Rates: []float32{0.1 / float32(1+i), 0.025 / float32(1+i)}})
			}
			loss, examples, err := p.Take(t.Context(), params, got, &x)
			if err != nil {
				t.Fatal(err)
			}
			if far := modeltest.Distance(got, want); !(far < 1e-5) || math.Abs(loss-wantLoss) > 1e-5 || examples != wantExamples {
				t.Errorf("%v, clip %v: the way back is %.2g from that of the worker, relatively; loss %v of %d examples, want %v of %d", rule, clip, far, loss, examples, wantLoss, wantExamples)
			}
		}
	}
	x := program.Steps{Rule: kernels.Assign, Groups: groups, Decays: []float32{0, 0}, Units: []float32{0, 0}, Batches: []program.StepBatch{{Indices: []int{1}, Rates: []float32{0, 0}}}}
	if _, _, err := p.Take(t.Context(), params, got, &x); err == nil || !strings.Contains(err.Error(), "does not know the optimizer 'assign'") {
		t.Errorf("with a rule that it does not know: %v", err)
	}
	x = program.Steps{Rule: kernels.SGD, Groups: groups, Decays: []float32{0, 0}, Units: []float32{0, 0}, Batches: []program.StepBatch{{Indices: []int{1}, Rates: []float32{0, 0}}}}
	if _, _, err := p.Take(t.Context(), params, got, &x); err != nil || modeltest.Distance(got, make([]float32, l.Values)) != 0 {
		t.Errorf("without a learning rate it comes to %v, %v", got, err)
	}
}
