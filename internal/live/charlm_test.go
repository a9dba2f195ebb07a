package live

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/engine"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// characters is charlm on the generated text, with one engine for each worker.
type characters struct {
	desc    *model.Description
	set     *data.Set
	sampler data.Sampler
	engines []*engine.Engine
	locks   []sync.Mutex // a worker's turn may overlap the turn that it has given up
}

func newCharacters(t *testing.T, workers, batch int) *characters {
	t.Helper()
	set, err := data.Open("text", "")
	if err != nil {
		t.Fatal(err)
	}
	desc, err := model.Lookup("charlm", model.Input{Channels: 1, Height: 1, Width: set.Shape[2], Classes: set.Classes, Sequence: true})
	if err != nil {
		t.Fatal(err)
	}
	c := &characters{
		desc: desc, set: set, locks: make([]sync.Mutex, workers),
		sampler: data.Sampler{N: set.Train.Len(), Batch: batch, Slots: workers, Seed: 5},
	}
	for range workers {
		e, err := engine.New(desc, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		c.engines = append(c.engines, e)
	}
	return c
}

// examples returns a batch from one part of the set: training or test.
func examples(half data.Examples, indices []int) model.Batch {
	b := model.Batch{N: len(indices), X: make([]float32, len(indices)*half.Values()), Y: make([]int32, len(indices)*half.Labels())}
	half.Fill(b.X, b.Y, indices)
	return b
}

func (c *characters) gradient(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
	c.locks[id.Slot].Lock()
	defer c.locks[id.Slot].Unlock()
	b := examples(c.set.Train, c.sampler.Indices(nil, id.Slot, id.Version, id.Sequence))
	loss, err := c.engines[id.Slot].GradientContext(ctx, params, grads, b)
	return loss, b.N, err
}

// loss returns nats per character on some of the test part.
func (c *characters) loss(t *testing.T, params []float32) float64 {
	t.Helper()
	indices := make([]int, 32)
	for i := range indices {
		indices[i] = i * c.set.Test.Len() / len(indices)
	}
	loss, _, err := c.engines[0].Evaluate(params, examples(c.set.Test, indices))
	if err != nil {
		t.Fatal(err)
	}
	return loss
}

// loop trains without servers, on one goroutine, with the same gradients and the same optimizer.
func (c *characters) loop(t *testing.T, schedule conductor.Schedule, steps kintsugi.Step) []float32 {
	t.Helper()
	n := c.desc.Values()
	params := make([]float32, n)
	if err := c.desc.Init(1, params); err != nil {
		t.Fatal(err)
	}
	s := kernels.Step{Rule: kernels.Rule(schedule.Rule), Params: params, Next: params, Scale: 1 / float32(len(c.engines))}
	for i := range s.Rule.States() {
		s.State[i] = make([]float32, n)
		s.NextState[i] = s.State[i]
	}
	for range c.engines {
		s.Operands = append(s.Operands, kernels.Operand{Weight: 1, Values: make([]float32, n)})
	}
	for v := range steps {
		for slot, o := range s.Operands {
			if _, _, err := c.gradient(t.Context(), params, o.Values, kintsugi.PushID{Slot: kintsugi.Slot(slot), Version: v}); err != nil {
				t.Fatal(err)
			}
		}
		o := schedule.At(v + 1)
		s.Scalars = kernels.Scalars{LearningRate: o.LearningRate, Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon,
			Correction1: o.Correction1, Correction2: o.Correction2}
		if _, err := kernels.Host.Step(&s); err != nil {
			t.Fatal(err)
		}
	}
	return params
}

// TestCharlmThroughServersIsCharlmInALoop trains the character model through servers and in a loop:
// what happens between a gradient and the next parameters must not cost quality. The bound leaves
// room for rounding, which does not occur here: the numbers of workers and examples are powers of
// two, so weights are exact.
func TestCharlmThroughServersIsCharlmInALoop(t *testing.T) {
	race.Skip(t)
	workers, batch, steps := 4, 2, kintsugi.Step(25)
	if testing.Short() {
		workers, batch, steps = 2, 1, 8
	}
	c := newCharacters(t, workers, batch)
	layout, err := kintsugi.NewLayout(c.desc.Tensors())
	if err != nil {
		t.Fatal(err)
	}
	schedule := conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 0.003}
	got := run(t, Config{
		Servers: 2, Workers: workers, Layout: layout, Gradient: c.gradient, Steps: steps, Schedule: schedule,
		Init: func(params []float32) {
			if err := c.desc.Init(1, params); err != nil {
				t.Error(err)
			}
		},
	}, nil)
	want := c.loop(t, schedule, steps)
	loss, wanted, before := c.loss(t, got), c.loss(t, want), math.Log(float64(c.set.Classes))
	if math.Abs(loss-wanted) > 0.02 || !(wanted < before-0.3) {
		t.Errorf("%d steps end at %.3f nats a character with servers and %.3f without, from %.3f", steps, loss, wanted, before)
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("parameter %d is %g with servers, %g without", i, got[i], want[i])
		}
	}
	t.Logf("%d steps: %.3f nats a character with servers, %.3f without", steps, loss, wanted)
}
