package engine_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels/nn"
	"github.com/kintsugi-ml/kintsugi/worker/engine"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

// tokens are sequences short enough for finite differences.
var tokens = model.Input{Channels: 1, Height: 1, Width: 7, Classes: 11, Sequence: true}

// block is a transformer block of odd size.
func block(name string, width, heads int) []model.Layer {
	return []model.Layer{
		model.Fork{}, model.LayerNorm{Name: name + "n1"}, model.Linear{Name: name + "qkv", Out: 3 * width}, model.Attention{Heads: heads},
		model.Linear{Name: name + "out", Out: width}, model.Join{},
		model.Fork{}, model.LayerNorm{Name: name + "n2"}, model.Linear{Name: name + "up", Out: 2*width + 1}, model.GELU{},
		model.Linear{Name: name + "down", Out: width}, model.Join{},
	}
}

func concat(parts ...[]model.Layer) (all []model.Layer) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// sequenceModels are small models that together have each layer at the beginning, in the middle and
// at the end.
var sequenceModels = map[string][]model.Layer{
	"bigrams":         {model.Embedding{Name: "e", Width: 11}},
	"one block":       concat([]model.Layer{model.Embedding{Name: "e", Width: 6}}, block("a/", 6, 2), []model.Layer{model.Linear{Name: "head", Out: 11}}),
	"two, with noise": concat([]model.Layer{model.Embedding{Name: "e", Width: 9}}, block("a/", 9, 3), []model.Layer{model.Dropout{Rate: 0.2}}, block("b/", 9, 1), []model.Layer{model.Linear{Name: "head", Out: 11}}),
	"nested": concat([]model.Layer{model.Embedding{Name: "e", Width: 6}, model.Fork{}, model.Fork{}, model.Join{}}, block("a/", 6, 3),
		[]model.Layer{model.ReLU{}, model.Join{}, model.LayerNorm{Name: "n"}, model.Linear{Name: "head", Out: 11}}),
	"wide": concat([]model.Layer{model.Embedding{Name: "e", Width: 256}}, []model.Layer{model.GELU{}, model.Linear{Name: "head", Out: 11}}),
}

// TestModelsOfSequencesComputeTheGradientOfTheirDescription has batches of one piece and of two.
func TestModelsOfSequencesComputeTheGradientOfTheirDescription(t *testing.T) {
	race.Skip(t)
	onEach(t, func(t *testing.T, o engine.Options) {
		for name, layers := range sequenceModels {
			t.Run(name, func(t *testing.T) {
				d, err := model.Describe("test", tokens, model.Defaults{}, layers...)
				if err != nil {
					t.Fatal(err)
				}
				batches := []model.Batch{modeltest.RandomBatch(tokens, 2, 1), modeltest.RandomBatch(tokens, 1, 2)}
				if name == "one block" && !testing.Short() {
					batches = append(batches, modeltest.RandomBatch(tokens, 1024/tokens.Width+3, 3))
				}
				modeltest.Check(t, open(t, d, o), modeltest.Reference(d), initial(t, d, 1), batches...)
			})
		}
	})
}

// TestRowsOfImagesAreSequencesToo has layers for matrices before any parameter, and on images.
func TestRowsOfImagesAreSequencesToo(t *testing.T) {
	in := model.Input{Channels: 1, Height: 5, Width: 12, Classes: 3}
	onEach(t, func(t *testing.T, o engine.Options) {
		d, err := model.Describe("test", in, model.Defaults{}, model.Fork{}, model.GELU{}, model.Join{}, model.Fork{}, model.LayerNorm{Name: "n"}, model.Join{},
			model.Attention{Heads: 2}, model.Linear{Name: "a", Out: 4}, model.Dense{Name: "b", Out: 3})
		if err != nil {
			t.Fatal(err)
		}
		modeltest.Check(t, open(t, d, o), modeltest.Reference(d), initial(t, d, 1), modeltest.RandomBatch(in, 3, 1))
	})
}

// TestCharlmIsWhatGorgoniaComputes compares all gradients of the model as it is trained, which are too many for finite
// differences.
func TestCharlmIsWhatGorgoniaComputes(t *testing.T) {
	in := model.Input{Channels: 1, Height: 1, Width: 64, Classes: 65, Sequence: true}
	d := lookup(t, "charlm", in)
	params, b := initial(t, d, 1), modeltest.RandomBatch(in, 4, 5)
	reference, err := model.New(d, b.N)
	if err != nil {
		t.Fatal(err)
	}
	defer reference.Close()
	want := make([]float32, d.Values())
	wantLoss, err := reference.Gradient(params, want, b)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, d.Values())
	loss, err := open(t, d, engine.Options{}).Gradient(params, got, b)
	if err != nil {
		t.Fatal(err)
	}
	if e := modeltest.Distance(got, want); !(e <= 1e-5) || math.Abs(loss-wantLoss) > 1e-6 {
		t.Errorf("gradients differ by %.2g, relatively; losses are %v and %v", e, loss, wantLoss)
	}
}

// TestCharlmIsOneFunctionOfItsArguments has batches of one piece and of two. Neither threads nor
// earlier gradients change a bit, values are reported when they are final, and no step allocates.
func TestCharlmIsOneFunctionOfItsArguments(t *testing.T) {
	in := model.Input{Channels: 1, Height: 1, Width: 64, Classes: 65, Sequence: true}
	d := lookup(t, "charlm", in)
	params := initial(t, d, 1)
	batches := []model.Batch{modeltest.RandomBatch(in, 17, 5), modeltest.RandomBatch(in, 5, 6)}
	var want [2][]float32
	for _, threads := range []int{1, 2, 3} {
		grads, early := make([]float32, d.Values()), make([]float32, d.Values())
		end := 0
		e := open(t, d, engine.Options{Threads: threads, Ready: func(lo, hi int) {
			if hi != end {
				t.Fatalf("values %d to %d follow on %d", lo, hi, end)
			}
			copy(early[lo:hi], grads[lo:hi])
			end = lo
		}})
		gradient := func(b model.Batch) {
			end = len(grads)
			if _, err := e.Gradient(params, grads, b); err != nil {
				t.Fatal(err)
			}
		}
		for i, b := range batches {
			gradient(b)
			if end != 0 || differs(early, grads) >= 0 {
				t.Errorf("%d threads: values changed after they were reported, or %d never were", threads, end)
			}
			if want[i] == nil {
				want[i] = append(want[i], grads...)
			}
			if at := differs(grads, want[i]); at >= 0 {
				t.Fatalf("%d threads, %d examples: gradient %d is %g; with 1 thread %g", threads, b.N, at, grads[at], want[i][at])
			}
		}
		if n := testing.AllocsPerRun(1, func() { gradient(batches[1]) }); n != 0 {
			t.Errorf("%d threads: a step allocates %v times; want never", threads, n)
		}
	}
}

// BenchmarkCharlm measures a gradient of 8 sequences on one thread and on two, on each device.
func BenchmarkCharlm(b *testing.B) {
	in := model.Input{Channels: 1, Height: 1, Width: 64, Classes: 65, Sequence: true}
	for _, dev := range nn.Devices() {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", dev.Name(), threads), func(b *testing.B) {
				d := lookup(b, "charlm", in)
				e := open(b, d, engine.Options{Device: dev, Threads: threads})
				params, grads, batch := initial(b, d, 1), make([]float32, d.Values()), modeltest.RandomBatch(in, 8, 1)
				for b.Loop() {
					if _, err := e.Gradient(params, grads, batch); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
