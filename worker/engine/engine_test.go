package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels/blas"
	"github.com/kintsugi-ml/kintsugi/kernels/nn"
	"github.com/kintsugi-ml/kintsugi/worker/engine"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

var (
	digits = model.Input{Channels: 1, Height: 28, Width: 28, Classes: 10}
	small  = model.Input{Channels: 3, Height: 13, Width: 15, Classes: 5}

	initial, lookup = modeltest.Params, modeltest.Lookup
)

func open(t testing.TB, d *model.Description, o engine.Options) *engine.Engine {
	t.Helper()
	e, err := engine.New(d, o)
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

func openBLAS(t testing.TB, name string) blas.Gemm {
	t.Helper()
	impl, err := blas.Open(name, 1)
	if err != nil {
		t.Skip(err)
	}
	return blas.GemmOf(impl)
}

// variants are each device with the reference BLAS, Host first, and the fastest device with each
// library.
func variants(t *testing.T) []engine.Options {
	var all []engine.Options
	for _, dev := range nn.Devices() {
		all = append(all, engine.Options{Device: dev, BLAS: openBLAS(t, "gonum")})
	}
	for _, name := range []string{"builtin", "openblas", "mkl"} {
		impl, err := blas.Open(name, 1)
		if err != nil {
			continue
		}
		all = append(all, engine.Options{BLAS: blas.GemmOf(impl), Threads: 2})
	}
	return all
}

// onEach runs test with each variant.
func onEach(t *testing.T, test func(t *testing.T, o engine.Options)) {
	for _, o := range variants(t) {
		name := o.BLAS.String()
		if o.Device != nil {
			name = o.Device.Name()
		}
		t.Run(name, func(t *testing.T) { test(t, o) })
	}
}

// check holds every variant to the contract of a model: the first one to the oracle (not with
// -short), and the others to the first. These differ in the order of sums, and in a build for new
// processors (GOAMD64=v3) Host rounds less often. Through the layers of a small net, both come to
// some tens of roundings of 2⁻²⁴.
func check(t *testing.T, d *model.Description, params []float32, batches ...model.Batch) {
	t.Helper()
	var want [][]float32
	for i, o := range variants(t) {
		e := open(t, d, o)
		if i == 0 && !testing.Short() {
			modeltest.Check(t, e, modeltest.Reference(d), params, batches...)
		} else {
			modeltest.Check(t, e, nil, params, batches...)
		}
		for j, b := range batches {
			grads := make([]float32, len(params))
			if _, err := e.Gradient(params, grads, b); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				want = append(want, grads)
			} else if far := modeltest.Distance(grads, want[j]); !(far <= 3e-6) {
				t.Errorf("%s: the gradient of %d examples is %.2g from Host's, relatively; want at most 3e-6", e, b.N, far)
			}
		}
	}
}

// TestBuiltinsComputeTheGradientOfTheirDescription covers each model on small images of odd size.
func TestBuiltinsComputeTheGradientOfTheirDescription(t *testing.T) {
	for _, name := range []string{"mlr", "mlp", "lenet", "cnn", "cnn:relu-logits"} {
		t.Run(name, func(t *testing.T) {
			in := model.Input{Channels: 2, Height: 6, Width: 9, Classes: 5}
			if name == "lenet" {
				in.Height, in.Width = 12, 13 // the smallest size that it accepts
			}
			d := lookup(t, name, in)
			check(t, d, initial(t, d, 1), modeltest.RandomBatch(d.Input, 3, 1), modeltest.RandomBatch(d.Input, 1, 2), modeltest.RandomBatch(d.Input, 9, 3))
		})
	}
}

// TestAnyOrderOfLayersIsComputed covers the combinations that the built-in models do not have.
func TestAnyOrderOfLayersIsComputed(t *testing.T) {
	race.Skip(t)
	conv := func(name string, filters, kernel, pad int) model.Layer {
		return model.Conv2D{Name: name, Filters: filters, Kernel: kernel, Pad: pad}
	}
	square, tiny := small, small
	tiny.Channels, tiny.Height, tiny.Width = 2, 9, 10
	square.Height, square.Width = 15, 15
	for name, c := range map[string]struct {
		in     model.Input
		layers []model.Layer
	}{
		"pool and relu before any parameter": {small, []model.Layer{model.MaxPool{Size: 2}, model.ReLU{}, conv("a", 2, 3, 0), model.Dense{Name: "b", Out: 5}}},
		"pool of 3 without relu":             {small, []model.Layer{conv("a", 3, 2, 1), model.MaxPool{Size: 3}, conv("b", 2, 3, 2), model.Dense{Name: "c", Out: 5}}},
		"relu after pool":                    {small, []model.Layer{conv("a", 3, 2, 0), model.MaxPool{Size: 2}, model.ReLU{}, model.MaxPool{Size: 2}, model.Dense{Name: "c", Out: 5}}},
		"pool of 2 without relu":             {small, []model.Layer{conv("a", 3, 3, 1), model.MaxPool{Size: 2}, conv("b", 11, 3, 1), model.ReLU{}, model.MaxPool{Size: 2}, model.Dense{Name: "c", Out: 5}}},
		"dropout on images and twice":        {small, []model.Layer{model.Dropout{Rate: 0.2}, conv("a", 3, 3, 1), model.ReLU{}, model.Dropout{Rate: 0.5}, model.Dense{Name: "b", Out: 7}, model.Dropout{Rate: 0.1}, model.Dense{Name: "c", Out: 5}}},
		"one filter":                         {small, []model.Layer{conv("a", 1, 3, 1), model.ReLU{}, conv("b", 1, 1, 0), model.Dense{Name: "c", Out: 5}}},
		"kernel and padding over the border": {small, []model.Layer{conv("a", 2, 5, 6), conv("b", 2, 13, 0), model.Dense{Name: "c", Out: 5}}},
		"padding wider than the kernel":      {small, []model.Layer{conv("z", 2, 3, 1), conv("a", 2, 2, 4), model.ReLU{}, model.MaxPool{Size: 2}, model.Dense{Name: "c", Out: 5}}},
		"convolution to logits":              {square, []model.Layer{conv("a", 4, 3, 1), conv("b", 5, 13, 0), model.MaxPool{Size: 3}, model.Flatten{}}},
		"two relus":                          {small, []model.Layer{model.Dense{Name: "a", Out: 9}, model.ReLU{}, model.ReLU{}, model.Dense{Name: "b", Out: 5}}},
		"many filters":                       {tiny, []model.Layer{conv("a", 25, 3, 1), model.ReLU{}, conv("b", 18, 3, 0), model.ReLU{}, model.MaxPool{Size: 4}, model.Dense{Name: "c", Out: 5}}},
		"dense in parts":                     {tiny, []model.Layer{model.Dense{Name: "a", Out: 301}, model.ReLU{}, model.Dense{Name: "b", Out: 450}, model.Dense{Name: "c", Out: 5}}},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := model.Describe("test", c.in, model.Defaults{}, c.layers...)
			if err != nil {
				t.Fatal(err)
			}
			check(t, d, initial(t, d, 2), modeltest.RandomBatch(d.Input, 2, 1), modeltest.RandomBatch(d.Input, 9, 2))
		})
	}
}

// TestThreadsDoNotChangeBits compares gradients of batches of one piece and of two.
func TestThreadsDoNotChangeBits(t *testing.T) {
	for _, lib := range []string{"builtin", "openblas"} {
		for _, name := range []string{"mlp", "lenet", "cnn"} {
			t.Run(lib+"/"+name, func(t *testing.T) {
				gemm := openBLAS(t, lib)
				d := lookup(t, name, digits)
				params := initial(t, d, 1)
				for _, n := range []int{64, 270} {
					if n > 64 && (testing.Short() || lib == "openblas") {
						continue
					}
					b := modeltest.RandomBatch(digits, n, 5)
					var want []float32
					var wantLoss float64
					for _, threads := range []int{1, 2, 3, 2} {
						e := open(t, d, engine.Options{Threads: threads, BLAS: gemm})
						grads := make([]float32, d.Values())
						loss, err := e.Gradient(params, grads, b)
						if err != nil {
							t.Fatal(err)
						}
						if want == nil {
							want, wantLoss = grads, loss
						}
						if math.Float64bits(loss) != math.Float64bits(wantLoss) {
							t.Errorf("%d examples, %d threads: loss %v; with 1 thread %v", n, threads, loss, wantLoss)
						}
						if i := differs(grads, want); i >= 0 {
							t.Fatalf("%d examples, %d threads: gradient %d is %g; with 1 thread %g", n, threads, i, grads[i], want[i])
						}
					}
				}
			})
		}
	}
}

// differs returns the first index at which the bits of a and b differ, or -1.
func differs(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}

// TestTheEngineAgreesWithGorgonia compares whole gradients of the models at their real size.
func TestTheEngineAgreesWithGorgonia(t *testing.T) {
	race.Skip(t)
	impl, err := blas.Open("gonum", 1)
	if err != nil {
		t.Fatal(err)
	}
	model.UseBLAS(impl)
	for _, name := range []string{"mlr", "mlp", "lenet", "cnn", "cnn:relu-logits"} {
		d := lookup(t, name, digits)
		params, b := initial(t, d, 3), modeltest.RandomBatch(digits, 16, 3)
		m, err := model.New(d, b.N)
		if err != nil {
			t.Fatal(err)
		}
		want := make([]float32, d.Values())
		wantLoss, err := m.Gradient(params, want, b)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		for _, o := range variants(t) {
			e := open(t, d, o)
			got := make([]float32, d.Values())
			loss, err := e.Gradient(params, got, b)
			if err != nil {
				t.Fatal(err)
			}
			if far := modeltest.Distance(got, want); !(far <= 1e-5) {
				t.Errorf("%s, %s: the gradients are %.2g apart, relatively; want at most 1e-5", name, e, far)
			}
			if !(math.Abs(loss-wantLoss) <= 1e-5*wantLoss) {
				t.Errorf("%s, %s: loss %v, Gorgonia's %v", name, e, loss, wantLoss)
			}
		}
	}
}

// TestReadyReportsEachValueOnceLastLayerFirst checks that reported values are final.
func TestReadyReportsEachValueOnceLastLayerFirst(t *testing.T) {
	d := lookup(t, "lenet", digits)
	grads := make([]float32, d.Values())
	early := make([]float32, d.Values())
	var spans [][2]int
	e := open(t, d, engine.Options{Ready: func(lo, hi int) {
		spans = append(spans, [2]int{lo, hi})
		copy(early[lo:hi], grads[lo:hi])
	}})
	for _, n := range []int{3, 300} {
		spans = nil
		if _, err := e.Gradient(initial(t, d, 1), grads, modeltest.RandomBatch(digits, n, 1)); err != nil {
			t.Fatal(err)
		}
		end := d.Values()
		for _, s := range spans {
			if s[1] != end {
				t.Fatalf("%d examples: spans %v; want them to meet, from the end to 0", n, spans)
			}
			end = s[0]
		}
		if end != 0 || len(spans) != 5 {
			t.Fatalf("%d examples: spans %v; want one for each of five layers, from the end to 0", n, spans)
		}
		if !slices.Equal(early, grads) {
			t.Errorf("%d examples: a value changed after it was reported", n)
		}
	}
}

// TestNeedIsAskedBeforeParametersAreRead computes with parameters that do not exist before they are
// asked for.
func TestNeedIsAskedBeforeParametersAreRead(t *testing.T) {
	text := model.Input{Channels: 1, Height: 1, Width: 16, Classes: 11, Sequence: true}
	for _, c := range []struct {
		model string
		in    model.Input
	}{{"mlp", digits}, {"cnn", digits}, {"charlm", text}} {
		d := lookup(t, c.model, c.in)
		whole, b := initial(t, d, 1), modeltest.RandomBatch(c.in, 20, 1)
		want, got := make([]float32, d.Values()), make([]float32, d.Values())
		if _, err := open(t, d, engine.Options{}).Gradient(whole, want, b); err != nil {
			t.Fatal(err)
		}
		params := make([]float32, len(whole))
		for i := range params {
			params[i] = float32(math.NaN())
		}
		asked := 0
		e := open(t, d, engine.Options{Need: func(lo, hi int) {
			copy(params[lo:hi], whole[lo:hi])
			asked++
		}})
		if _, err := e.Gradient(params, got, b); err != nil {
			t.Fatal(err)
		}
		if i := differs(got, want); i >= 0 || asked < 3 {
			t.Errorf("%s: asked %d times; gradient %d is %g, want %g", c.model, asked, max(0, i), got[max(0, i)], want[max(0, i)])
		}
	}
}

func TestAStepAllocatesNothing(t *testing.T) {
	for _, name := range []string{"mlp", "lenet", "cnn"} {
		for _, threads := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/%d", name, threads), func(t *testing.T) {
				d := lookup(t, name, digits)
				e := open(t, d, engine.Options{Threads: threads, BLAS: openBLAS(t, "builtin")})
				params, grads, b := initial(t, d, 1), make([]float32, d.Values()), modeltest.RandomBatch(digits, 20, 1)
				step := func() {
					if _, err := e.Gradient(params, grads, b); err != nil {
						t.Fatal(err)
					}
					b.N = 17 // a smaller batch fits into the same memory
					b.X, b.Y = b.X[:17*digits.Features()], b.Y[:17]
				}
				step()
				if n := testing.AllocsPerRun(5, step); n != 0 {
					t.Errorf("a step allocates %v times; want never", n)
				}
			})
		}
	}
}

// TestTheEngineTrainsAsGorgoniaDoes makes fifty steps with each. Rounding differs from the first
// step on, so the losses drift apart, by about 1e-6 in fifty steps.
func TestTheEngineTrainsAsGorgoniaDoes(t *testing.T) {
	race.Skip(t)
	const bound = 1e-4
	steps := 50
	if testing.Short() {
		steps = 15
	}
	impl, err := blas.Open("gonum", 1)
	if err != nil {
		t.Fatal(err)
	}
	model.UseBLAS(impl)
	d := lookup(t, "lenet", digits)
	reference, err := model.New(d, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer reference.Close()
	train := func(m model.Model) (loss float64) {
		params, grads := initial(t, d, 1), make([]float32, d.Values())
		for i := range steps {
			var err error
			if loss, err = m.Gradient(params, grads, modeltest.RandomBatch(digits, 8, uint64(i%3))); err != nil {
				t.Fatal(err)
			}
			for j, g := range grads {
				params[j] -= 0.05 * g
			}
		}
		return loss
	}
	want := train(reference)
	if first, err := reference.Gradient(initial(t, d, 1), make([]float32, d.Values()), modeltest.RandomBatch(digits, 8, 0)); err != nil || !testing.Short() && want > 0.9*first {
		t.Fatalf("Gorgonia's loss goes from %v to %v, %v; want it to fall", first, want, err)
	}
	for _, o := range []engine.Options{{}, {Device: nn.Host, BLAS: openBLAS(t, "gonum")}} {
		e := open(t, d, o)
		if got := train(e); !(math.Abs(got-want) <= bound*want) {
			t.Errorf("%s: after %d steps the loss is %v, Gorgonia's %v; want them within %g, relatively", e, steps, got, want, bound)
		}
	}
}

// TestAGradientThatNobodyWaitsForEnds cancels wherever a gradient asks for parameters or reports a
// layer. No other layer begins, and the next gradient shows no trace of it.
func TestAGradientThatNobodyWaitsForEnds(t *testing.T) {
	sequence, err := model.Describe("sequence", tokens, model.Defaults{}, sequenceModels["two, with noise"]...)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*model.Description{lookup(t, "lenet", digits), sequence} {
		params, b := initial(t, d, 1), modeltest.RandomBatch(d.Input, 150, 1) // two pieces of sequences
		calls, stop := 0, -1
		var cancel context.CancelFunc
		called := func(int, int) {
			if calls++; calls == stop {
				cancel()
			}
		}
		e := open(t, d, engine.Options{Threads: 2, Ready: called, Need: called})
		want, got := make([]float32, d.Values()), make([]float32, d.Values())
		if _, err := e.Gradient(params, want, b); err != nil {
			t.Fatal(err)
		}
		all := calls
		for stop = range all + 1 {
			var ctx context.Context
			ctx, cancel = context.WithCancel(t.Context())
			if calls = 0; stop == 0 {
				cancel()
			}
			if _, err := e.GradientContext(ctx, params, got, b); !errors.Is(err, context.Canceled) || calls != stop {
				t.Errorf("%s: error %v after %d of %d calls; want %v after %d", d.Name, err, calls, all, context.Canceled, stop)
			}
			cancel()
		}
		if _, err := e.Gradient(params, got, b); err != nil {
			t.Fatal(err)
		}
		if i := differs(got, want); i >= 0 {
			t.Errorf("%s: after interruptions gradient %d is %g; want %g", d.Name, i, got[i], want[i])
		}
	}
}

func TestAnEngineSaysWhatItCannotDo(t *testing.T) {
	if _, err := engine.New(lookup(t, "qp", model.Input{}), engine.Options{}); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("an engine for a model without layers: %v; want a usage error", err)
	}
	d := lookup(t, "mlr", digits)
	e := open(t, d, engine.Options{})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	b := modeltest.RandomBatch(digits, 1, 1)
	if _, err := e.Gradient(initial(t, d, 1), make([]float32, d.Values()), b); err == nil {
		t.Error("a closed engine computes a gradient")
	}
	if _, _, err := e.Evaluate(initial(t, d, 1), b); err == nil {
		t.Error("a closed engine evaluates")
	}
}

// TestValuesThatAreNotFiniteLeaveNoTrace computes with NaN between two gradients: padding and
// scratch memory must not keep it.
func TestValuesThatAreNotFiniteLeaveNoTrace(t *testing.T) {
	d := lookup(t, "lenet", digits)
	for _, o := range variants(t) {
		e := open(t, d, o)
		params, b := initial(t, d, 1), modeltest.RandomBatch(digits, 9, 1)
		want, got := make([]float32, d.Values()), make([]float32, d.Values())
		if _, err := e.Gradient(params, want, b); err != nil {
			t.Fatal(err)
		}
		bad := slices.Clone(params)
		for i := range bad {
			bad[i] = float32(math.NaN())
		}
		loss, err := e.Gradient(bad, got, modeltest.RandomBatch(digits, 17, 1))
		if err != nil || !math.IsNaN(loss) || !slices.ContainsFunc(got, func(g float32) bool { return g != g }) {
			t.Errorf("%s: parameters of NaN give loss %v and error %v; want NaN, in the gradient too", e, loss, err)
		}
		if _, err := e.Gradient(params, got, b); err != nil {
			t.Fatal(err)
		}
		if i := differs(got, want); i >= 0 {
			t.Errorf("%s: after a gradient with NaN, gradient %d is %g; want %g", e, i, got[i], want[i])
		}
	}
}
