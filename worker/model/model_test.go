package model_test

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

func open(t testing.TB, d *model.Description, batch int) model.Model {
	t.Helper()
	m, err := model.New(d, batch)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

var (
	digits = model.Input{Channels: 1, Height: 28, Width: 28, Classes: 10}
	small  = model.Input{Channels: 3, Height: 13, Width: 15, Classes: 5}

	initial, lookup = modeltest.Params, modeltest.Lookup
)

// TestBuiltinsComputeTheGradientOfTheirDescription covers each model on small images of odd size,
// with a batch that fits the graph, one that is padded and one that is computed in pieces.
func TestBuiltinsComputeTheGradientOfTheirDescription(t *testing.T) {
	race.Skip(t)
	onEachBLAS(t, func(t *testing.T) {
		for _, name := range []string{"mlr", "mlp", "lenet", "cnn", "cnn:relu-logits"} {
			t.Run(name, func(t *testing.T) {
				if testing.Short() && strings.HasPrefix(name, "cnn") {
					t.Skip("lenet has its layers; run it without -short")
				}
				d := lookup(t, name, model.Input{Channels: 2, Height: 12, Width: 13, Classes: 5})
				m := open(t, d, 3)
				modeltest.Check(t, m, modeltest.Reference(d), initial(t, d, 1),
					modeltest.RandomBatch(d.Input, 3, 1), modeltest.RandomBatch(d.Input, 1, 2), modeltest.RandomBatch(d.Input, 5, 3))
			})
		}
	})
}

// TestAnyOrderOfLayersIsComputed covers the combinations that the built-in models do not have.
func TestAnyOrderOfLayersIsComputed(t *testing.T) {
	race.Skip(t)
	conv := func(name string, filters, kernel, pad int) model.Layer {
		return model.Conv2D{Name: name, Filters: filters, Kernel: kernel, Pad: pad}
	}
	for name, layers := range map[string][]model.Layer{
		"pool and relu before any parameter": {model.MaxPool{Size: 2}, model.ReLU{}, conv("a", 2, 3, 0), model.Dense{Name: "b", Out: 5}},
		"pool of 3 without relu":             {conv("a", 3, 2, 1), model.MaxPool{Size: 3}, conv("b", 2, 3, 2), model.Dense{Name: "c", Out: 5}},
		"relu after pool":                    {conv("a", 3, 2, 0), model.MaxPool{Size: 2}, model.ReLU{}, model.MaxPool{Size: 2}, model.Dense{Name: "c", Out: 5}},
		"dropout on images and twice":        {model.Dropout{Rate: 0.2}, conv("a", 3, 3, 1), model.ReLU{}, model.Dropout{Rate: 0.5}, model.Dense{Name: "b", Out: 7}, model.Dropout{Rate: 0.1}, model.Dense{Name: "c", Out: 5}},
		"one filter":                         {conv("a", 1, 3, 1), model.ReLU{}, conv("b", 1, 1, 0), model.Dense{Name: "c", Out: 5}},
		"kernel and padding over the border": {conv("a", 2, 5, 6), conv("b", 2, 13, 0), model.Dense{Name: "c", Out: 5}},
		"padding wider than the kernel":      {conv("a", 2, 2, 4), model.ReLU{}, model.MaxPool{Size: 2}, model.Dense{Name: "c", Out: 5}},
		"convolution to logits":              {conv("a", 4, 3, 1), conv("b", 5, 13, 0), model.MaxPool{Size: 3}, model.Flatten{}},
		"two relus":                          {model.Dense{Name: "a", Out: 9}, model.ReLU{}, model.ReLU{}, model.Dense{Name: "b", Out: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			in := small
			if name == "convolution to logits" {
				in.Height, in.Width = 15, 15
			}
			d, err := model.Describe("test", in, model.Defaults{}, layers...)
			if err != nil {
				t.Fatal(err)
			}
			m := open(t, d, 2)
			modeltest.Check(t, m, modeltest.Reference(d), initial(t, d, 2), modeltest.RandomBatch(d.Input, 2, 1), modeltest.RandomBatch(d.Input, 3, 2))
		})
	}
}

func TestBuiltinsHaveThePublishedNumberOfParameters(t *testing.T) {
	for name, want := range map[string]int{"mlr": 7850, "mlp": 235146, "lenet": 61706, "cnn": 813258, "cnn:relu-logits": 813258, "qp": 1000} {
		if d := lookup(t, name, digits); d.Values() != want {
			t.Errorf("%s has %d parameters, want %d", name, d.Values(), want)
		}
	}
}

func TestLookupRefusesWhatItCannotBuildAndSaysWhy(t *testing.T) {
	for _, c := range []struct {
		name string
		in   model.Input
		want string
	}{
		{"alexnet", digits, "lenet"},
		{"lenet", model.Input{Channels: 1, Height: 8, Width: 8, Classes: 10}, "too small"},
		{"cnn", model.Input{Channels: 1, Height: 3, Width: 28, Classes: 10}, "too small"},
		{"mlp", model.Input{Channels: 1, Height: 28, Width: 28, Classes: 1}, "two"},
		{"mlp", model.Input{Classes: 10}, "positive"},
		{"qp:size=3", digits, "dimension"},
		{"qp:condition=0.5", digits, "condition"},
		{"qp:dimension=x", digits, "dimension"},
	} {
		_, err := model.Lookup(c.name, c.in)
		if !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s on %+v: %v; want a usage error that mentions %q", c.name, c.in, err, c.want)
		}
	}
}

func TestModelsAdaptToImagesAndClasses(t *testing.T) {
	for _, in := range []model.Input{{Channels: 3, Height: 32, Width: 32, Classes: 100}, {Channels: 1, Height: 28, Width: 28, Classes: 47}, {Channels: 1, Height: 16, Width: 24, Classes: 2}} {
		for _, name := range model.Names() {
			if name == "qp" || model.ForSequences(name) || model.ForRatings(name) || model.ForDocuments(name) {
				continue
			}
			d := lookup(t, name, in)
			if last := d.Shapes[len(d.Shapes)-1]; last.Values() != in.Classes {
				t.Errorf("%s on %+v ends in %v", name, in, last)
			}
		}
	}
}

// TestInitialisationOfATensorDependsOnItsNameAlone: a layer can be added or renamed without
// changing the others.
func TestInitialisationOfATensorDependsOnItsNameAlone(t *testing.T) {
	long := lookup(t, "lenet", digits)
	short, err := model.Describe("short", digits, model.Defaults{}, model.MaxPool{Size: 1},
		model.Conv2D{Name: "conv1", Filters: 6, Kernel: 5, Pad: 2}, model.ReLU{}, model.Dense{Name: "fc1", Out: 10})
	if err != nil {
		t.Fatal(err)
	}
	a, b := make([]float32, long.Values()), make([]float32, short.Values())
	if err := errors.Join(long.Init(7, a), short.Init(7, b)); err != nil {
		t.Fatal(err)
	}
	if n := 6 * 25; !slices.Equal(a[:n], b[:n]) {
		t.Error("conv1/w starts differently in another model")
	}
	c := make([]float32, long.Values())
	if err := long.Init(8, c); err != nil {
		t.Fatal(err)
	}
	if slices.Equal(a[:150], c[:150]) {
		t.Error("another seed gives the same parameters")
	}
	limit, mean := math.Sqrt(6.0/25), 0.0
	for _, v := range a[:150] {
		if math.Abs(float64(v)) > limit {
			t.Errorf("an initial weight of %g is outside He's ±%g", v, limit)
		}
		mean += float64(v) / 150
	}
	if math.Abs(mean) > limit/4 {
		t.Errorf("the initial weights have mean %g", mean)
	}
}

func TestDropoutMasksDependOnSeedLayerAndExampleAlone(t *testing.T) {
	const n, features, rate = 64, 513, 0.25
	whole, again := make([]float32, n*features), make([]float32, n*features)
	model.DropoutMask(whole, 5, 9, rate, 0, features)
	for i := range n { // one example at a time, in reverse order
		i = n - 1 - i
		model.DropoutMask(again[i*features:(i+1)*features], 5, 9, rate, i, features)
	}
	if !slices.Equal(whole, again) {
		t.Error("a mask drawn in pieces is another mask")
	}
	dropped := 0
	for _, v := range whole {
		switch v {
		case 0:
			dropped++
		case 1 / (1 - float32(rate)):
		default:
			t.Fatalf("a factor of %g", v)
		}
	}
	if got := float64(dropped) / float64(len(whole)); math.Abs(got-rate) > 0.01 {
		t.Errorf("%.3f of the values are dropped, want %.3f", got, rate)
	}
	for name, draw := range map[string]func(){
		"seed":  func() { model.DropoutMask(again, 6, 9, rate, 0, features) },
		"layer": func() { model.DropoutMask(again, 5, 8, rate, 0, features) },
	} {
		if draw(); slices.Equal(whole, again) {
			t.Errorf("the mask does not depend on the %s", name)
		}
	}
}

func TestAnEvaluationInPiecesIsTheSumOfItsExamples(t *testing.T) {
	d := lookup(t, "mlp", small)
	m, params := open(t, d, 4), initial(t, d, 3)
	b := modeltest.RandomBatch(small, 300, 4)
	loss, correct, err := m.Evaluate(params, b)
	if err != nil {
		t.Fatal(err)
	}
	want, wantCorrect := modeltest.Reference(d)(wide(params), b, false)
	if math.Abs(loss-want) > 1e-5 || correct != wantCorrect {
		t.Errorf("300 examples: loss %v, %d correct; want %v, %d", loss, correct, want, wantCorrect)
	}
}

func wide(s []float32) []float64 {
	w := make([]float64, len(s))
	for i, v := range s {
		w[i] = float64(v)
	}
	return w
}

func TestNaNInTheParametersReachesTheGradient(t *testing.T) {
	for _, name := range []string{"mlp", "lenet"} {
		d := lookup(t, name, digits)
		m, params, grads := open(t, d, 2), initial(t, d, 1), make([]float32, d.Values())
		params[len(params)-1] = float32(math.NaN())
		loss, err := m.Gradient(params, grads, modeltest.RandomBatch(digits, 2, 1))
		if err != nil {
			t.Fatal(err)
		}
		if !math.IsNaN(loss) || !slices.ContainsFunc(grads, func(g float32) bool { return g != g }) {
			t.Errorf("%s: parameters with NaN give loss %v", name, loss)
		}
	}
}

// TestTheReferenceGivesTheSameBitsForAnyGOMAXPROCS compares gradients of a network whose products
// are so large that gonum by itself would compute them on several goroutines.
func TestTheReferenceGivesTheSameBitsForAnyGOMAXPROCS(t *testing.T) {
	d := lookup(t, "lenet", digits)
	m, params, b := open(t, d, 16), initial(t, d, 1), modeltest.RandomBatch(digits, 16, 1)
	gradient := func(procs int) []float32 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		grads := make([]float32, d.Values())
		if _, err := m.Gradient(params, grads, b); err != nil {
			t.Fatal(err)
		}
		return grads
	}
	want := gradient(1)
	for _, procs := range []int{2, 5} {
		for i, g := range gradient(procs) {
			if math.Float32bits(g) != math.Float32bits(want[i]) {
				t.Fatalf("gradient %d is %g with GOMAXPROCS 1 and %g with %d", i, want[i], g, procs)
			}
		}
	}
}

// Example shows a step of plain gradient descent.
func Example() {
	d, err := model.Lookup("mlr", model.Input{Channels: 1, Height: 2, Width: 2, Classes: 2})
	if err != nil {
		panic(err)
	}
	m, err := model.New(d, 2)
	if err != nil {
		panic(err)
	}
	defer m.Close()
	params, grads := make([]float32, d.Values()), make([]float32, d.Values())
	b := model.Batch{X: []float32{1, 0, 0, 1, 0, 1, 1, 0}, Y: []int32{0, 1}, N: 2}
	for range 3 {
		loss, err := m.Gradient(params, grads, b)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%.3f\n", loss)
		for i, g := range grads {
			params[i] -= g
		}
	}
	// Output:
	// 0.693
	// 0.313
	// 0.195
}

func TestGradientFLOPsCountsEachProductOnceForwardAndTwiceBackward(t *testing.T) {
	for name, want := range map[string]float64{
		"mlr":   2 * 2 * 7840,
		"mlp":   2 * (2*200704 + 3*(32768+1280)),
		"lenet": 2 * (2*784*6*25 + 3*(100*16*150+400*120+120*84+84*10)),
	} {
		if got := lookup(t, name, digits).GradientFLOPs(); got != want {
			t.Errorf("%s: %v operations, want %v", name, got, want)
		}
	}
}
