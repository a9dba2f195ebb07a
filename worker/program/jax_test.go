package program_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// withJAX skips a test or a benchmark if there is no JAX.
func withJAX(t testing.TB) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('jax'))").Run() != nil {
		t.Skip("no JAX here: pip install jax, in a virtual environment whose python3 is the first on PATH")
	}
}

func TestATreeInJAXIsTensors(t *testing.T) {
	withJAX(t)
	p, err := inPython(t, `
import jax, kintsugi, random
from jax import numpy as jnp

refused = []
for params in {}, {"n": jnp.arange(3)}, {"c": jnp.ones(2, jnp.complex64)}, {"f": [max]}, {"a": {"b": jnp.ones(1)}, "a/b": jnp.ones(1)}, {"none": jnp.zeros((0, 3))}:
    try:
        kintsugi.run_jax("net", lambda key: params, None, None)
    except (TypeError, ValueError) as e:
        refused.append(str(e))

def build(key):
    return {"b": [jnp.float32(2.5), jnp.zeros((0, 3))], "a": {"w": jnp.ones((2, 3), jnp.bfloat16)}}

def loss(params, data, key):
    x, drawn = data
    noise = jax.random.normal(key) + drawn
    return x.mean() * (params["a"]["w"].astype(jnp.float32) ** 2).sum() + noise * params["b"][0] + params["b"][1].sum()

def data(batch):
    if batch.indices[0] == 0:
        raise RuntimeError("; ".join(refused))
    if batch.indices[0] == 5:
        return jnp.zeros(1), jnp.zeros(1) # one too few: loss has a vector in place of a scalar
    return jnp.asarray(batch.indices, jnp.float32), jnp.float32(random.random())

kept = []
kintsugi.run_jax("net", build, loss, data, examples=9, evaluate=lambda params: (kept.append(params["b"][0]) or sum(kept), None, 7))
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.About().Tensors; len(got) != 2 || got[0].Name != "a/w" || !slices.Equal(got[0].Shape, []int{2, 3}) || got[1].Name != "b/0" || !slices.Equal(got[1].Shape, []int{1}) {
		t.Fatalf("its tensors are %+v", got)
	}
	params := make([]float32, 7)
	if err := p.Initialise(t.Context(), params); err != nil || !slices.Equal(params, []float32{1, 1, 1, 1, 1, 1, 2.5}) {
		t.Fatal(params, err)
	}
	grads, again, other := make([]float32, 7), make([]float32, 7), make([]float32, 7)
	_, _, err = p.Gradient(t.Context(), params, grads, program.Request{Indices: []int{0}})
	for _, want := range []string{"there is nothing to train; parameter n is of type int32", "parameter c is of type complex64", "parameter f/0 is of type builtin_function_or_method", "two parameters have one name: a/b", "no parameter that has values"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want %s", err, want)
		}
	}
	if _, _, err = p.Gradient(t.Context(), params, grads, program.Request{Indices: []int{5}}); err == nil || !strings.Contains(err.Error(), "scalar") {
		t.Errorf("a loss that is a vector: %v", err)
	}
	params = []float32{1, 2, 3, 4, 5, 6, 0.5}
	for i, to := range [][]float32{grads, again, other} {
		seed := uint64(5)<<40 + uint64(i/2)<<32 // the last one differs only in its high bits, which a seed of 32 bits would lose
		if _, _, err := p.Gradient(t.Context(), params, to, program.Request{Seed: seed, Indices: []int{1, 3}}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(grads[:6], []float32{4, 8, 12, 16, 20, 24}) || !slices.Equal(grads, again) || grads[6] == other[6] {
		t.Errorf("gradients %v, %v, and %v of another batch", grads, again, other)
	}
	loss, _, n, err := p.Evaluate(t.Context(), params)
	if err != nil || loss != 0.5 || n != 7 {
		t.Error(loss, n, err)
	}
	params = []float32{6, 5, 4, 3, 2, 1, 0.25}
	if _, _, err := p.Gradient(t.Context(), params, grads, program.Request{Indices: []int{1, 3}}); err != nil || !slices.Equal(grads[:6], []float32{24, 20, 16, 12, 8, 4}) {
		t.Errorf("the gradient at other parameters is %v, %v", grads, err)
	}
	if loss, _, _, err = p.Evaluate(t.Context(), params); err != nil || loss != 0.75 {
		t.Errorf("an evaluation that has kept what the last one was given, 0.5, finds %v: %v", loss-0.25, err)
	}
}

// Workers that share a host take its devices in turn, whichever places they have in the run.
func TestAWorkerTakesTheDeviceOfItsRank(t *testing.T) {
	withJAX(t)
	for rank, want := range map[int]float64{0: 0, 1: 1, 3: 1, 6: 0} {
		p, err := inPythonAt(t, rank, `
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, kintsugi
from jax import numpy as jnp

def data(batch):
    (device,) = jnp.zeros(1).devices()
    return jnp.float32(device.id)

kintsugi.run_jax("net", lambda key: jnp.zeros(3), lambda params, device, key: device + params.sum(), data, examples=9)
`)
		if err != nil {
			t.Fatal(err)
		}
		params, grads := make([]float32, 3), make([]float32, 3)
		if err := p.Initialise(t.Context(), params); err != nil {
			t.Fatal(err)
		}
		r := program.Request{ID: kintsugi.PushID{Slot: 5}, Indices: []int{1}}
		if loss, _, err := p.Gradient(t.Context(), params, grads, r); loss != want || err != nil {
			t.Errorf("of two devices a worker of rank %d computes on number %v, want %v: %v", rank, loss, want, err)
		}
	}
}
