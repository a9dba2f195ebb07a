package engine_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels/blas"
	"github.com/kintsugi-ml/kintsugi/kernels/nn"
	"github.com/kintsugi-ml/kintsugi/worker/engine"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

var (
	digits = model.Input{Channels: 1, Height: 28, Width: 28, Classes: 10}
)

// initial returns a description's parameters, with biases moved off 0, where a ReLU has its kink.
func initial(t testing.TB, d *model.Description, seed uint64) []float32 {
	t.Helper()
	params := make([]float32, d.Values())
	if err := d.Init(seed, params); err != nil {
		t.Fatal(err)
	}
	for i := range params {
		params[i] += (float32(i%7) - 3.5) * 0.003
	}
	return params
}

func lookup(t testing.TB, name string, in model.Input) *model.Description {
	t.Helper()
	d, err := model.Lookup(name, in)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

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

// onEach runs test with each device on the reference BLAS, and with the fastest device on each library.
func onEach(t *testing.T, test func(t *testing.T, o engine.Options)) {
	for _, dev := range nn.Devices() {
		t.Run(dev.Name(), func(t *testing.T) { test(t, engine.Options{Device: dev, BLAS: openBLAS(t, "gonum")}) })
	}
	for _, name := range []string{"openblas", "mkl"} {
		t.Run(name, func(t *testing.T) { test(t, engine.Options{BLAS: openBLAS(t, name), Threads: 2}) })
	}
}

// TestBuiltinsComputeTheGradientOfTheirDescription covers each model on small images of odd size.
func TestBuiltinsComputeTheGradientOfTheirDescription(t *testing.T) {
	onEach(t, func(t *testing.T, o engine.Options) {
		for _, name := range []string{"mlr", "mlp"} {
			t.Run(name, func(t *testing.T) {
				d := lookup(t, name, model.Input{Channels: 2, Height: 12, Width: 13, Classes: 5})
				modeltest.Check(t, open(t, d, o), modeltest.Reference(d), initial(t, d, 1),
					modeltest.RandomBatch(d.Input, 3, 1), modeltest.RandomBatch(d.Input, 1, 2), modeltest.RandomBatch(d.Input, 19, 3))
			})
		}
	})
}

// TestThreadsDoNotChangeBits compares gradients of batches of one piece and of two.
func TestThreadsDoNotChangeBits(t *testing.T) {
	for _, lib := range []string{"gonum", "openblas"} {
		for _, name := range []string{"mlp"} {
			t.Run(lib+"/"+name, func(t *testing.T) {
				gemm := openBLAS(t, lib)
				d := lookup(t, name, digits)
				params := initial(t, d, 1)
				for _, n := range []int{64, 270} {
					if n > 64 && (testing.Short() || lib == "gonum") {
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

// distance returns ‖a − b‖ / ‖b‖.
func distance(a, b []float32) float64 {
	diff, norm := 0.0, 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		diff += d * d
		norm += float64(b[i]) * float64(b[i])
	}
	return math.Sqrt(diff / norm)
}

// TestTheEngineAgreesWithGorgonia compares whole gradients of the models at their real size.
func TestTheEngineAgreesWithGorgonia(t *testing.T) {
	impl, err := blas.Open("gonum", 1)
	if err != nil {
		t.Fatal(err)
	}
	model.UseBLAS(impl)
	for _, name := range []string{"mlr", "mlp"} {
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
		onEach(t, func(t *testing.T, o engine.Options) {
			got := make([]float32, d.Values())
			loss, err := open(t, d, o).Gradient(params, got, b)
			if err != nil {
				t.Fatal(err)
			}
			if e := distance(got, want); !(e <= 1e-5) {
				t.Errorf("%s: the gradients are %.2g apart, relatively; want at most 1e-5", name, e)
			}
			if !(math.Abs(loss-wantLoss) <= 1e-5*wantLoss) {
				t.Errorf("%s: loss %v, Gorgonia's %v", name, loss, wantLoss)
			}
		})
	}
}

func TestAStepAllocatesNothing(t *testing.T) {
	for _, name := range []string{"mlp"} {
		for _, threads := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/%d", name, threads), func(t *testing.T) {
				d := lookup(t, name, digits)
				e := open(t, d, engine.Options{Threads: threads, BLAS: openBLAS(t, "openblas")})
				params, grads, b := initial(t, d, 1), make([]float32, d.Values()), modeltest.RandomBatch(digits, 20, 1)
				step := func() {
					if _, err := e.Gradient(params, grads, b); err != nil {
						t.Fatal(err)
					}
					b.N = 17 // a smaller batch fits into what is there
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
