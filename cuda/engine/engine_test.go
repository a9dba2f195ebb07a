//go:build gpu && cgo && linux

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/cuda/engine"
	"github.com/kintsugi-ml/kintsugi/kernels"
	host "github.com/kintsugi-ml/kintsugi/worker/engine"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

// held is a device that is never closed: see the tests of package cuda.
var held = sync.OnceValues(func() (*cuda.Device, error) { return cuda.Open("", 0) })

// openDevice opens the GPU, or an emulation of it.
func openDevice(t testing.TB) *cuda.Device {
	t.Helper()
	if emulate.OnGPU() {
		_, _ = held() // the next call returns the error
	}
	d, err := cuda.Open(emulate.Library(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func open(t testing.TB, d *model.Description, o engine.Options) *engine.Engine {
	t.Helper()
	e, err := engine.New(d, openDevice(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func initial(t testing.TB, d *model.Description) []float32 {
	t.Helper()
	return modeltest.Params(t, d, 1)
}

var (
	images = model.Input{Channels: 2, Height: 9, Width: 10, Classes: 5}
	tokens = model.Input{Channels: 1, Height: 1, Width: 7, Classes: 11, Sequence: true}
)

func conv(name string, filters, kernel, pad int) model.Layer {
	return model.Conv2D{Name: name, Filters: filters, Kernel: kernel, Pad: pad}
}

// block is a transformer block of odd size.
func block(name string, width, heads int) []model.Layer {
	return []model.Layer{
		model.Fork{}, model.LayerNorm{Name: name + "n1"}, model.Linear{Name: name + "qkv", Out: 3 * width}, model.Attention{Heads: heads},
		model.Linear{Name: name + "out", Out: width}, model.Join{},
		model.Fork{}, model.LayerNorm{Name: name + "n2"}, model.Linear{Name: name + "up", Out: 2*width + 1}, model.GELU{},
		model.Linear{Name: name + "down", Out: width}, model.Join{},
	}
}

// models together have each layer, with and without an earlier layer that has parameters.
var models = map[string]struct {
	in     model.Input
	layers []model.Layer
}{
	"dense":           {images, []model.Layer{model.Flatten{}, model.Dense{Name: "a", Out: 70}, model.ReLU{}, model.Dense{Name: "b", Out: 9}, model.ReLU{}, model.ReLU{}, model.Dense{Name: "c", Out: 5}}},
	"convolutions":    {images, []model.Layer{conv("a", 3, 3, 1), model.ReLU{}, model.MaxPool{Size: 2}, conv("b", 2, 2, 2), model.MaxPool{Size: 3}, model.ReLU{}, model.Dense{Name: "c", Out: 5}}},
	"wide padding":    {images, []model.Layer{conv("a", 2, 2, 4), model.ReLU{}, model.MaxPool{Size: 2}, model.Dense{Name: "c", Out: 5}}},
	"pool and noise":  {images, []model.Layer{model.MaxPool{Size: 2}, model.ReLU{}, model.Dropout{Rate: 0.2}, conv("a", 2, 3, 0), model.Dropout{Rate: 0.4}, model.Dense{Name: "b", Out: 5}}},
	"bigrams":         {tokens, []model.Layer{model.Embedding{Name: "e", Width: 11}}},
	"two blocks":      {tokens, slices.Concat([]model.Layer{model.Embedding{Name: "e", Width: 9}}, block("a/", 9, 3), []model.Layer{model.Dropout{Rate: 0.2}}, block("b/", 9, 1), []model.Layer{model.Linear{Name: "head", Out: 11}})},
	"nested branches": {tokens, slices.Concat([]model.Layer{model.Embedding{Name: "e", Width: 6}, model.Fork{}, model.Fork{}, model.Join{}}, block("a/", 6, 2), []model.Layer{model.ReLU{}, model.Join{}, model.LayerNorm{Name: "n"}, model.Linear{Name: "head", Out: 11}})},
}

// roundings is how far a gradient may be from the host's if factors are rounded: BF16 has three
// bits less than TF32.
var roundings = map[cuda.Precision]float64{cuda.TF32: 5e-3, cuda.BF16: 4e-2}

func TestModelsComputeTheGradientOfTheirDescription(t *testing.T) {
	for name, c := range models {
		t.Run(name, func(t *testing.T) {
			d, err := model.Describe("test", c.in, model.Defaults{}, c.layers...)
			if err != nil {
				t.Fatal(err)
			}
			oracle := modeltest.Reference(d)
			if testing.Short() {
				oracle = nil
			}
			params, b := initial(t, d), modeltest.RandomBatch(c.in, 3, 3)
			e := open(t, d, engine.Options{})
			modeltest.Check(t, e, oracle, params, modeltest.RandomBatch(c.in, 2, 1), modeltest.RandomBatch(c.in, 1, 2))
			compare(t, d, e, params, b, 2e-5)
			for precision, most := range roundings {
				compare(t, d, open(t, d, engine.Options{Precision: precision}), params, b, most)
			}
			if !hasCuBLAS(t) {
				return
			}
			library := open(t, d, withCuBLAS(t))
			modeltest.Check(t, library, nil, params, modeltest.RandomBatch(c.in, 2, 1), modeltest.RandomBatch(c.in, 1, 2))
			compare(t, d, library, params, b, 2e-5)
			for precision, most := range roundings {
				o := withCuBLAS(t)
				o.Precision = precision
				compare(t, d, open(t, d, o), params, b, most)
			}
		})
	}
}

// compare compares a gradient with that of the host.
func compare(t *testing.T, d *model.Description, e *engine.Engine, params []float32, b model.Batch, most float64) {
	t.Helper()
	h, err := host.New(d, host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	got, want := make([]float32, len(params)), make([]float32, len(params))
	loss, err := e.Gradient(params, got, b)
	if err != nil {
		t.Fatal(err)
	}
	wantLoss, err := h.Gradient(params, want, b)
	if err != nil {
		t.Fatal(err)
	}
	if far := modeltest.Distance(got, want); !(far <= most) || !(math.Abs(loss-wantLoss) <= most*wantLoss) {
		t.Errorf("%s: the gradient is %.2g from the host's, relatively, and the loss %v from %v; want at most %g", e, far, loss, wantLoss, most)
	}
}

// Of equal values in a window the first one gets the gradient, on the GPU as on the host. The images
// are of zeros and ones and the weights are equal, so patches that differ have equal results.
func TestOfEqualValuesAPoolTakesTheFirst(t *testing.T) {
	for name, layers := range map[string][]model.Layer{
		"pool":           {conv("a", 2, 3, 0), model.MaxPool{Size: 2}, model.Dense{Name: "b", Out: 5}},
		"pool, then cut": {conv("a", 2, 3, 1), model.MaxPool{Size: 3}, model.ReLU{}, model.Dense{Name: "b", Out: 5}},
		"cut, then pool": {conv("a", 2, 2, 0), model.ReLU{}, model.MaxPool{Size: 2}, model.Dense{Name: "b", Out: 5}},
	} {
		d, err := model.Describe("test", images, model.Defaults{}, layers...)
		if err != nil {
			t.Fatal(err)
		}
		params, b := initial(t, d), modeltest.RandomBatch(images, 6, 1)
		for i, x := range b.X {
			b.X[i] = 0
			if x > 0.5 {
				b.X[i] = 1
			}
		}
		for i := range d.Tensors()[0].Values() {
			params[i] = 0.25
		}
		t.Run(name, func(t *testing.T) { compare(t, d, open(t, d, engine.Options{}), params, b, 2e-5) })
	}
}

// A batch of several pieces has the gradient of one.
func TestALargeBatchIsComputedInPieces(t *testing.T) {
	c := models["convolutions"]
	d, err := model.Describe("test", c.in, model.Defaults{}, c.layers...)
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() && !emulate.OnGPU() {
		t.Skip("a thousand images take long on the emulation; run it without -short, or on a GPU")
	}
	compare(t, d, open(t, d, engine.Options{}), initial(t, d), modeltest.RandomBatch(c.in, 1031, 1), 2e-5)
}

// Whichever allocation fails, the gradient returns the error, and the next one, for which there is
// memory, is as if nothing had happened.
func TestAGradientWithoutMemoryHarmsNoOther(t *testing.T) {
	c := models["pool and noise"]
	d, err := model.Describe("test", c.in, model.Defaults{}, c.layers...)
	if err != nil {
		t.Fatal(err)
	}
	params, few, many := initial(t, d), modeltest.RandomBatch(c.in, 1, 1), modeltest.RandomBatch(c.in, 2, 2)
	got, want := make([]float32, len(params)), make([]float32, len(params))
	if _, err := open(t, d, engine.Options{}).Gradient(params, want, many); err != nil {
		t.Fatal(err)
	}
	withoutMemory(t, 5, func() func() error {
		e := open(t, d, engine.Options{})
		for range 2 { // the larger batch has other arrays than a program
			if _, err := e.Gradient(params, got, few); err != nil {
				t.Fatal(err)
			}
		}
		return func() error {
			_, err := e.Gradient(params, got, many)
			return err
		}
	}, got, want)
}

// withoutMemory calls what begin returns, with memory for 0, 1, 2 … allocations, until it returns no
// error, which at least so many must take. After each error it is called again, with memory, and
// must leave want in got.
func withoutMemory(t *testing.T, least int, begin func() func() error, got, want []float32) {
	t.Helper()
	if emulate.OnGPU() {
		t.Skip("only the emulation can be made to run out of memory; run it without -real")
	}
	for most := 0; ; most++ {
		f := begin()
		t.Setenv(emulate.Allocations, fmt.Sprint(most))
		failed := f()
		t.Setenv(emulate.Allocations, "")
		if failed != nil && !strings.Contains(failed.Error(), "(2)") {
			t.Fatalf("with %d allocations: error %v; want that there is no memory", most, failed)
		}
		if err := f(); err != nil {
			t.Fatalf("after one with %d allocations: %v", most, err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("after one with %d allocations the gradient has other bits", most)
		}
		if failed == nil {
			if most < least {
				t.Errorf("%d allocations are enough: this shows nothing", most)
			}
			return
		}
	}
}

// TestTheGPUTrainsAsTheHostDoes trains an mlp with gradients and steps of the GPU, and with those of the host.
func TestTheGPUTrainsAsTheHostDoes(t *testing.T) {
	d, err := model.Lookup("mlp", model.Input{Channels: 1, Height: 7, Width: 7, Classes: 10})
	if err != nil {
		t.Fatal(err)
	}
	dev := openDevice(t)
	g, err := engine.New(d, dev, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	h, err := host.New(d, host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	start := make([]float32, d.Values())
	if err := d.Init(1, start); err != nil {
		t.Fatal(err)
	}
	steps := 50
	if testing.Short() {
		steps = 8
	}
	onGPU, onHost := train(t, g, dev, start, steps), train(t, h, kernels.Host, start, steps)
	if n := g.Replayed(); n != steps-1 {
		t.Errorf("%d of %d gradients were computed in one launch, want all but the first: %v", n, steps, g.Eager())
	}
	if last := onHost.losses[steps-1]; last > onHost.losses[0] {
		t.Fatalf("the host's loss went from %v to %v: this shows nothing", onHost.losses[0], last)
	}
	for i := range onHost.losses {
		if a, b := onGPU.losses[i], onHost.losses[i]; math.Abs(a-b) > 1e-4*(1+b) {
			t.Errorf("step %d: loss %v on the GPU, %v on the host", i, a, b)
		}
	}
	// With the same gradients the parameters are the same, bit for bit.
	again := newTrainee(start)
	for i := range onGPU.gradients {
		again.step(t, kernels.Host, onGPU.gradients[i])
	}
	if !slices.Equal(again.params, onGPU.params) {
		t.Error("the host's steps with the GPU's gradients lead to other parameters than the GPU's steps")
	}
}

// trainee is the state of a training.
type trainee struct {
	params, momentum []float32
	losses           []float64
	gradients        [][]float32
}

func newTrainee(start []float32) *trainee {
	return &trainee{params: slices.Clone(start), momentum: make([]float32, len(start))}
}

func (s *trainee) step(t *testing.T, dev kernels.Device, gradient []float32) {
	t.Helper()
	_, err := dev.Step(&kernels.Step{
		Rule: kernels.Momentum, Scalars: kernels.Scalars{LearningRate: 0.05, Momentum: 0.9}, Scale: 1,
		Operands: []kernels.Operand{{Weight: 1, Values: gradient}}, Params: s.params, Next: s.params,
		State: [2][]float32{s.momentum}, NextState: [2][]float32{s.momentum},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func train(t *testing.T, m model.Model, dev kernels.Device, start []float32, steps int) *trainee {
	t.Helper()
	s := newTrainee(start)
	for i := range steps {
		in := model.Input{Channels: 1, Height: 7, Width: 7, Classes: 10}
		gradient := make([]float32, len(start))
		loss, err := m.Gradient(s.params, gradient, modeltest.RandomBatch(in, 16, uint64(i%4)))
		if err != nil {
			t.Fatal(err)
		}
		s.losses, s.gradients = append(s.losses, loss), append(s.gradients, gradient)
		s.step(t, dev, gradient)
	}
	return s
}

func TestAnEngineSaysWhatItCannotDo(t *testing.T) {
	d, err := model.Lookup("qp", model.Input{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.New(d, nil, engine.Options{}); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("engine of qp: error %v; want ErrUsage", err)
	}
	d, err = model.Lookup("mlr", images)
	if err != nil {
		t.Fatal(err)
	}
	e := open(t, d, engine.Options{})
	params, b := initial(t, d), modeltest.RandomBatch(images, 2, 1)
	ended, end := context.WithCancel(context.Background())
	end()
	if _, err := e.GradientContext(ended, params, make([]float32, len(params)), b); !errors.Is(err, context.Canceled) {
		t.Errorf("gradient that nobody waits for: error %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.Evaluate(params, b); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("evaluate with a closed engine: error %v", err)
	}
}
