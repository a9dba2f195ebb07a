//go:build gpu && cgo && linux

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/cuda/engine"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/worker/local"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

// The plan of these tests has rates that fall, and other ones for every third tensor. The rate of the
// third version is 0.
func plan(steps int, clip float64) local.Plan {
	scalars := func(version kintsugi.Step, i, tensor int) kernels.Scalars {
		t := float64(i + 1)
		s := kernels.Scalars{
			LearningRate: 0.1 / float32(1+int(version)+i), Momentum: 0.75, Beta1: 0.875, Beta2: 0.9375, Epsilon: 1e-6,
			Correction1: float32(1 - math.Pow(0.875, t)), Correction2: float32(1 - math.Pow(0.9375, t)),
		}
		if tensor%3 == 0 {
			s.LearningRate, s.WeightDecay = s.LearningRate/3, 0.01
		}
		if version == 2 {
			s.LearningRate = 0
		}
		return s
	}
	p := local.Plan{Steps: steps, Scalars: scalars, Rate: func(version kintsugi.Step, tensor int) float32 { return scalars(version, 0, tensor).LearningRate }}
	if clip > 0 {
		p.Clipped = func(squared float64) float64 { return min(1, clip/math.Sqrt(squared)) }
	}
	return p
}

// batches returns a function that draws the batch of a push.
func batches(in model.Input, n int) func(id kintsugi.PushID) model.Batch {
	return func(id kintsugi.PushID) model.Batch {
		b := modeltest.RandomBatch(in, n, 10*uint64(id.Version)+uint64(id.Slot))
		b.Seed = uint64(id.Version)
		return b
	}
}

// onHost returns a function that takes local steps on the host, along gradients of an engine.
func onHost(t *testing.T, d *model.Description, l *kintsugi.Layout, rule kernels.Rule, p local.Plan, batch func(id kintsugi.PushID) model.Batch) local.Gradient {
	t.Helper()
	e := open(t, d, engine.Options{})
	return local.New(local.Config{Plan: p, Layout: l, Device: kernels.Host, Rule: rule, Gradient: func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		b := batch(id)
		loss, err := e.GradientContext(ctx, params, grads, b)
		return loss, b.N, err
	}})
}

func layoutOf(t *testing.T, d *model.Description) *kintsugi.Layout {
	t.Helper()
	l, err := kintsugi.NewLayout(d.Tensors())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Local steps that never leave the GPU have the bits of those that the host takes along the same
// gradients: with each rule, with and without clipping, of tensors that are aligned and that are
// not, and of one with several parts.
func TestLocalStepsOnTheGPUHaveTheBitsOfTheHosts(t *testing.T) {
	parts, err := model.Describe("test", images, model.Defaults{}, model.Flatten{}, model.Dense{Name: "a", Out: 47}, model.ReLU{}, model.Dense{Name: "b", Out: 5})
	if err != nil {
		t.Fatal(err)
	}
	if n := parts.Tensors()[0].Values(); n <= local.PartValues || n%4 != 0 {
		t.Fatalf("the tensor has %d values: it has no parts", n)
	}
	small, smallIn, _ := odd(t)
	for i, c := range []struct {
		d    *model.Description
		in   model.Input
		rule kernels.Rule
		clip float64
	}{
		{small, smallIn, kernels.SGD, 0},
		{small, smallIn, kernels.Momentum, 0.01},
		{small, smallIn, kernels.Adam, 0},
		{bigrams(t), tokens, kernels.Nesterov, 0.01},
		{bigrams(t), tokens, kernels.Adagrad, 0},
		{bigrams(t), tokens, kernels.LazyAdam, 0},
		{parts, images, kernels.AdamW, 0.01},
	} {
		t.Run(fmt.Sprintf("%v/%d values", c.rule, c.d.Values()), func(t *testing.T) {
			t.Setenv(emulate.Schedule, fmt.Sprint(1+2*(i%2)))
			const versions = 3
			l, batch, p := layoutOf(t, c.d), batches(c.in, 2), plan(3, c.clip)
			params := initial(t, c.d)
			var want [versions][]float32
			var wantLoss [versions]float64
			emulate.Calm(t, func() {
				host := onHost(t, c.d, l, c.rule, p, batch)
				for v := range want {
					want[v] = make([]float32, l.Values)
					if wantLoss[v], _, err = host(t.Context(), params, want[v], kintsugi.PushID{Slot: 3, Version: kintsugi.Step(v)}); err != nil {
						t.Fatal(err)
					}
				}
			})
			e := open(t, c.d, engine.Options{})
			trainer, err := engine.NewLocal(e, c.rule, batch)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]float32, l.Values)
			for v := range want {
				loss, examples, err := p.Take(t.Context(), trainer, params, kintsugi.PushID{Slot: 3, Version: kintsugi.Step(v)})
				if err == nil {
					err = trainer.Fetch(got)
				}
				if err != nil {
					t.Fatal(err)
				}
				if loss != wantLoss[v] || examples != 6 {
					t.Errorf("version %d: loss %v of %d examples, want %v of 6", v, loss, examples, wantLoss[v])
				}
				if !slices.Equal(got, want[v]) {
					t.Errorf("version %d: a gradient at a distance of %g", v, modeltest.Distance(got, want[v]))
				}
			}
			if n := 3*versions - 2; e.Replayed() != n { // all but the first with parameters of the host, and the first without
				t.Errorf("%d gradients were computed in one launch, want %d: %v", e.Replayed(), n, e.Eager())
			}
		})
	}
}

// What local steps come to is encoded on the GPU, with the bits and the residuals of a worker that
// encodes it on the host. An exchange that is given up, or that is not finite, leaves nothing
// behind.
func TestLocalStepsAreEncodedAsOnTheHost(t *testing.T) {
	d, in, l := odd(t)
	for _, spec := range []string{"int8", "topk:0.2", "bf16-nofeedback"} {
		t.Run(spec, func(t *testing.T) {
			codec, err := compress.Parse(spec)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			exchanges := []struct {
				spoil func(b *model.Batch) // spoils the second of its batches
				is    error
			}{
				{}, {},
				{func(b *model.Batch) { b.X[5] = float32(math.Inf(1)) }, kintsugi.ErrNotFinite},
				{func(b *model.Batch) { b.N = 0 }, kintsugi.ErrUsage},
				{},
				{func(*model.Batch) { cancel() }, context.Canceled},
				{},
			}
			idOf := func(n int) kintsugi.PushID { return kintsugi.PushID{Line: 1, Slot: 2, Version: kintsugi.Step(3 + n)} }
			p, batch, params := plan(2, 0.05), batches(in, 3), initial(t, d)
			grads, losses := make([][]float32, len(exchanges)), make([]float64, len(exchanges))
			emulate.Calm(t, func() {
				host := onHost(t, d, l, kernels.Momentum, p, batch)
				for n := range exchanges {
					grads[n] = make([]float32, l.Values)
					if losses[n], _, err = host(t.Context(), params, grads[n], idOf(n)); err != nil {
						t.Fatal(err)
					}
				}
			})
			e := open(t, d, engine.Options{})
			var spoil func(b *model.Batch)
			trainer, err := engine.NewLocal(e, kernels.Momentum, func(id kintsugi.PushID) model.Batch {
				b := batch(id)
				if spoil != nil && id.Version%2 == 1 {
					spoil(&b)
				}
				return b
			})
			if err != nil {
				t.Fatal(err)
			}
			c, err := engine.NewCompressed(e, l, codec, 7)
			if err != nil {
				t.Fatal(err)
			}
			feedback := compress.NewFeedback(codec, l, 7)
			for n, x := range exchanges {
				id, loss := idOf(n), 0.0
				spoil = x.spoil
				err := c.Local(id, func() (err error) {
					loss, _, err = p.Take(ctx, trainer, params, id)
					return err
				})
				if !errors.Is(err, x.is) {
					t.Fatalf("exchange %d: error %v, want %v", n, err, x.is)
				}
				if x.is != nil {
					ctx, cancel = context.WithCancel(t.Context())
					defer cancel()
					continue
				}
				if loss != losses[n] {
					t.Errorf("exchange %d: loss %v, want %v", n, loss, losses[n])
				}
				same(t, c, feedback, codec, id, l, grads[n])
				c.Counted(id)
				feedback.Counted(id)
			}
			if e.Eager() != nil {
				t.Errorf("no gradient was computed in one launch: %v", e.Eager())
			}
		})
	}
}

// Whichever allocation fails, a trainer or its first exchange returns the error, and another one,
// for which there is memory, is as if nothing had happened.
func TestLocalStepsWithoutMemoryHarmNoOthers(t *testing.T) {
	d, in, l := odd(t)
	p, batch, params, id := plan(2, 0.05), batches(in, 2), initial(t, d), kintsugi.PushID{}
	got, want := make([]float32, l.Values), make([]float32, l.Values)
	if _, _, err := onHost(t, d, l, kernels.Adam, p, batch)(t.Context(), params, want, id); err != nil {
		t.Fatal(err)
	}
	withoutMemory(t, 12, func() func() error {
		e := open(t, d, engine.Options{})
		return func() error {
			trainer, err := engine.NewLocal(e, kernels.Adam, batch)
			if err == nil {
				_, _, err = p.Take(t.Context(), trainer, params, id)
			}
			if err == nil {
				err = trainer.Fetch(got)
			}
			return err
		}
	}, got, want)
}
