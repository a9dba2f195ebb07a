package program_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker/local"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// BenchmarkGradient measures a question beside the copies that it needs: of the parameters to the
// program's memory, and of the gradient from there. The program computes nothing.
func BenchmarkGradient(b *testing.B) {
	for _, values := range []int{1 << 10, 1 << 20, 1 << 24} {
		b.Run(fmt.Sprintf("values=%d", values), func(b *testing.B) {
			b.Setenv(behaviour, "nothing at all")
			b.Setenv(howMany, fmt.Sprint(values))
			p, err := program.Start(b.Context(), program.Config{Command: []string{"/proc/self/exe"}})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			params, grads, other := make([]float32, values), make([]float32, values), make([]float32, values)
			r := program.Request{ID: kintsugi.PushID{Slot: 1}, Indices: make([]int, 64)}
			ask := func() {
				if _, _, err := p.Gradient(b.Context(), params, grads, r); err != nil {
					b.Fatal(err)
				}
			}
			ask()
			var asking, copying time.Duration
			for b.Loop() {
				begin := time.Now()
				ask()
				middle := time.Now()
				copy(other, params)
				copy(grads, other)
				asking, copying = asking+middle.Sub(begin), copying+time.Since(middle)
			}
			b.ReportMetric(float64(asking)/float64(copying), "times-two-copies")
			b.ReportMetric(float64((asking-copying).Microseconds())/float64(b.N), "µs-more")
		})
	}
}

// BenchmarkGradientInJAX measures a gradient of 67 million values beside the same one at parameters
// that JAX has already, and that stays in its memory.
func BenchmarkGradientInJAX(b *testing.B) {
	withJAX(b)
	var took [2]time.Duration
	var programs [2]*program.Program
	var params, grads [2][]float32
	for i, run := range []string{`
kintsugi.run_jax("deep", build, loss, lambda batch: jnp.ones((16, 2048)), examples=64)
`, `
params, differentiate = build(jax.random.key(0)), jax.jit(jax.value_and_grad(loss))

def gradient(_, grads, batch):
    value, found = jax.block_until_ready(differentiate(params, jnp.ones((16, 2048)), None))
    return float(value)

kintsugi.run("deep", [("none", (1,))], lambda params, seed: None, gradient, examples=64)
`} {
		p, err := inPython(b, `
import jax, kintsugi
from jax import numpy as jnp

def build(key):
    return [jax.random.normal(k, (2048, 2048)) / 2048**0.5 for k in jax.random.split(key, 16)]

def loss(params, x, key):
    h = x
    for w in params:
        h = h + jnp.tanh(h @ w)
    return jnp.mean((h - x) ** 2)
`+run)
		if err != nil {
			b.Fatal(err)
		}
		programs[i] = p
		_, params[i], grads[i] = arrays(b, p)
	}
	ask := func(i int) time.Duration {
		begin := time.Now()
		if _, _, err := programs[i].Gradient(b.Context(), params[i], grads[i], program.Request{Indices: []int{1}}); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	for range 3 {
		ask(0)
		ask(1)
	}
	for b.Loop() {
		for i := range took {
			took[i] += ask(i)
		}
	}
	b.ReportMetric(took[0].Seconds()*1e3/float64(b.N), "ms/gradient")
	b.ReportMetric(took[1].Seconds()*1e3/float64(b.N), "bare-ms/gradient")
	b.ReportMetric(float64(took[0])/float64(took[1]), "times-bare")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLocalSteps measures local steps that a module in PyTorch takes by itself, on a GPU if
// there is one, beside those that its worker takes along its gradients: 8 of them with AdamW, of
// 16.8 million values.
func BenchmarkLocalSteps(b *testing.B) {
	withPyTorch(b)
	p, err := inPython(b, `
import kintsugi, torch
from torch import nn

kintsugi._takes_steps = lambda far: True  # also on a CPU
build = lambda: nn.Linear(4096, 4096)
loss = lambda module, batch: (module(torch.randn(len(batch.indices), 4096).to(module.weight.device)) ** 2).mean()
kintsugi.run_torch("wide", build, loss, examples=64)
`)
	if err != nil {
		b.Fatal(err)
	}
	l, params, grads := arrays(b, p)
	const steps = 8
	s := kernels.Scalars{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 0.1, Correction1: 0.1, Correction2: 0.001}
	indices := []int{1, 2, 3, 4}
	worker := local.New(local.Config{
		Plan: local.Plan{
			Steps: steps, Scalars: func(kintsugi.Step, int, int) kernels.Scalars { return s },
			Rate: func(kintsugi.Step, int) float32 { return s.LearningRate },
		},
		Layout: l, Device: kernels.Best(), Rule: kernels.AdamW,
		Gradient: func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
			return p.Gradient(ctx, params, grads, program.Request{ID: id, Indices: indices})
		},
	})
	x := program.Steps{Rule: kernels.AdamW, Scalars: s, Groups: make([]int, len(l.Tensors)), Decays: []float32{s.WeightDecay}, Units: []float32{s.LearningRate}}
	for range steps {
		x.Batches = append(x.Batches, program.StepBatch{Indices: indices, Rates: []float32{s.LearningRate}})
	}
	var own, workers time.Duration
	for b.Loop() {
		begin := time.Now()
		if _, _, err := p.Take(b.Context(), params, grads, &x); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		if _, _, err := worker(b.Context(), params, grads, kintsugi.PushID{}); err != nil {
			b.Fatal(err)
		}
		own, workers = own+middle.Sub(begin), workers+time.Since(middle)
	}
	b.ReportMetric(own.Seconds()*1e3/steps/float64(b.N), "ms/step")
	b.ReportMetric(workers.Seconds()*1e3/steps/float64(b.N), "worker-ms/step")
	b.ReportMetric(float64(workers)/float64(own), "times-worker")
	b.ReportMetric(0, "ns/op")
}

// arrays returns the layout of a program's model, its initial parameters, and room for a gradient.
func arrays(b *testing.B, p *program.Program) (l *kintsugi.Layout, params, grads []float32) {
	b.Helper()
	about := p.About()
	l, err := about.Layout()
	if err != nil {
		b.Fatal(err)
	}
	params, grads = make([]float32, l.Values), make([]float32, l.Values)
	if err := p.Initialise(b.Context(), params); err != nil {
		b.Fatal(err)
	}
	return l, params, grads
}
