//go:build gpu && cgo && linux

package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/kernelstest"
)

// Gradients land in memory that earlier ones have left, while steps are made with those that are
// there, and the parameters are the host's. A gradient is waited for where it is used, and memory
// that a gradient is on its way to is not given to another.
func TestGradientsLandWhileStepsAreTaken(t *testing.T) {
	d := openTest(t)
	d.in.apart, d.out.apart, d.scratch.apart = false, false, false // as in a run: memory is used again
	want := land(t, kernelstest.Apart(kernels.Host))
	if got := land(t, d); differ(got, want) {
		t.Error("the parameters have other bits than the host's")
	}
}

// A step waits for each of its gradients. They arrive in order, so the wait for the last one also
// orders those before it. Which one is last differs from step to step.
func TestEveryWaitIsNeeded(t *testing.T) {
	emulate.EveryWaitIsNeeded(t, []string{"GradientsLandWhileStepsAreTaken"}, map[string][]int{"GradientsLandWhileStepsAreTaken": {1, 4, 5, 8, 9}})
}

// land makes five steps with two gradients each, and returns the parameters. One of the two is
// begun twice, and a third one is dropped.
func land(t *testing.T, a kernels.Accelerator) []float32 {
	t.Helper()
	lengths := []int{70, 5, 300}
	rng := rand.New(rand.NewPCG(5, 6))
	x := a.NewArrays(lengths)
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(l kernels.Landing, chunks ...int) {
		t.Helper()
		for _, i := range chunks {
			try(l.Put(i, kernels.Int8, kernelstest.Payload(rng, kernels.Int8, lengths[i])))
		}
	}
	params, landings := x.NewArray(), []kernels.Landing{x.NewLanding(), x.NewLanding(), x.NewLanding()}
	for i := range params.Host() {
		params.Host()[i] = float32(rng.NormFloat64())
	}
	try(params.Send())
	for step := range 5 {
		first, second, third := landings[step%3], landings[(step+1)%3], landings[(step+2)%3]
		for _, l := range landings {
			l.Clear()
		}
		put(second, 2, 1)
		second.Clear()
		if step%2 == 0 {
			put(first, 0, 1, 2)
		}
		put(second, 0, 1, 2)
		if step%2 == 1 {
			put(first, 2, 0, 1)
		}
		s := kernels.ArrayStep{Rule: kernels.SGD, Scale: 0.5, Params: params, Next: params}
		for range lengths {
			s.Chunks = append(s.Chunks, kernels.ArrayChunk{Scalars: kernels.Scalars{LearningRate: 0.1}, Operands: []kernels.LandedOperand{{Weight: 1, Landing: first}, {Weight: 0.5, Landing: second}}})
		}
		_, err := x.Step(&s)
		try(err)
		put(third, 1)
	}
	try(params.Fetch())
	return slices.Clone(params.Host())
}
