package modeltest

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// Tolerances of the comparison with the oracle. The float32 gradient of a correct engine is within
// about 1e-7 of the exact one (measured: 4e-8 to 3e-7), and finite differences in float64 within
// 1e-8. A wrong formula is off by percents. A kink of a ReLU or a pool within the difference is
// rare at this step size, and would be noticed.
const (
	gradientBound  = 1e-5 // relative, in the L2 norm over the compared coordinates
	lossBound      = 1e-5 // relative
	differenceStep = 1e-6
	perTensor      = 6 // number of coordinates compared in each tensor
)

// Check fails the test unless m fulfils the contract of model.Model at params on each of the
// batches. If oracle is nil, only bits are compared. Check does not close m.
func Check(t testing.TB, m model.Model, oracle Oracle, params []float32, batches ...model.Batch) {
	t.Helper()
	values := 0
	for _, tensor := range m.Tensors() {
		values += tensor.Values()
	}
	if values != len(params) {
		t.Fatalf("the tensors have %d values, the test %d parameters", values, len(params))
	}
	for _, b := range batches {
		grads, loss := checkBits(t, m, params, b)
		if oracle == nil {
			continue
		}
		checkLoss(t, m, oracle, params, loss, b)
		checkGradient(t, m, oracle, params, grads, b)
	}
	checkUsage(t, m, params, batches[0])
}

// checkBits checks what needs no oracle: that gradients are pure functions, and which memory is
// written.
func checkBits(t testing.TB, m model.Model, params []float32, b model.Batch) (grads []float32, loss float64) {
	t.Helper()
	before, beforeX, beforeY := slices.Clone(params), slices.Clone(b.X), slices.Clone(b.Y)
	grads = full(len(params), float32(math.NaN())) // values that are only added to, or left out, stay NaN
	gradient := func(params, grads []float32, b model.Batch) float64 {
		t.Helper()
		loss, err := m.Gradient(params, grads, b)
		if err != nil {
			t.Fatalf("gradient of %d examples: %v", b.N, err)
		}
		return loss
	}
	loss = gradient(params, grads, b)
	if i := slices.IndexFunc(grads, func(g float32) bool { return g != g }); i >= 0 {
		t.Fatalf("gradient %d of %d was not overwritten, or is NaN", i, len(grads))
	}
	untouched := func() {
		t.Helper()
		if !sameBits(params, before) || !sameBits(b.X, beforeX) || !slices.Equal(b.Y, beforeY) {
			t.Error("the parameters or the batch were written to")
		}
	}
	untouched()
	// Other parameters in another buffer, another batch, and an evaluation must not influence the
	// next gradient.
	elsewhere := full(len(params)+1, 0.01)[1:]
	other := b
	other.Seed++
	gradient(elsewhere, full(len(params)+3, 7)[3:], other)
	if _, _, err := m.Evaluate(elsewhere, b); err != nil {
		t.Fatalf("evaluate: %v", err)
	}
	copy(elsewhere, params)
	for _, p := range [][]float32{params, elsewhere} {
		again := full(len(params)+1, 1)[1:]
		if l := gradient(p, again, b); math.Float64bits(l) != math.Float64bits(loss) {
			t.Errorf("the loss of the same parameters and batch was %v and is now %v", loss, l)
		}
		for i := range again {
			if math.Float32bits(again[i]) != math.Float32bits(grads[i]) {
				t.Fatalf("gradient %d of the same parameters and batch was %g and is now %g", i, grads[i], again[i])
			}
		}
	}
	untouched()
	return grads, loss
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

func full(n int, v float32) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = v
	}
	return s
}

func wide(s []float32) []float64 {
	w := make([]float64, len(s))
	for i, v := range s {
		w[i] = float64(v)
	}
	return w
}

func checkLoss(t testing.TB, m model.Model, oracle Oracle, params []float32, loss float64, b model.Batch) {
	t.Helper()
	if want, _ := oracle(wide(params), b, true); !(math.Abs(loss-want) <= lossBound*math.Abs(want)) {
		t.Errorf("the loss of %d examples is %v, the oracle's %v", b.N, loss, want)
	}
	got, correct, err := m.Evaluate(params, b)
	if err != nil {
		t.Fatalf("evaluate: %v", err)
	}
	want, wantCorrect := oracle(wide(params), b, false)
	if !(math.Abs(got-want) <= lossBound*math.Abs(want)) || correct != wantCorrect {
		t.Errorf("an evaluation of %d examples gives loss %v, %d correct; the oracle %v, %d", b.N, got, correct, want, wantCorrect)
	}
}

// checkGradient compares the gradient with central differences at some coordinates of each tensor,
// including the first and the last.
func checkGradient(t testing.TB, m model.Model, oracle Oracle, params, grads []float32, b model.Batch) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(len(params))))
	at := wide(params)
	errSquared, squared, worst, worstAt := 0.0, 0.0, 0.0, ""
	lo := 0
	for _, tensor := range m.Tensors() {
		n := tensor.Values()
		for try := range min(perTensor, n) {
			i := lo + rng.IntN(n)
			switch try {
			case 0:
				i = lo
			case 1:
				i = lo + n - 1
			}
			x := at[i]
			at[i] = x + differenceStep
			up, _ := oracle(at, b, true)
			at[i] = x - differenceStep
			down, _ := oracle(at, b, true)
			at[i] = x
			want := (up - down) / (2 * differenceStep)
			diff := math.Abs(float64(grads[i]) - want)
			errSquared += diff * diff
			squared += want * want
			if diff >= worst {
				worst, worstAt = diff, tensor.Name
			}
		}
		lo += n
	}
	if relative := math.Sqrt(errSquared / squared); !(relative <= gradientBound) {
		t.Errorf("the gradient of %d examples is off the finite differences by %.2g, relatively (bound %.2g); worst in %s, by %.2g",
			b.N, relative, gradientBound, worstAt, worst)
	}
}

// checkUsage checks that arguments that do not fit are refused before anything is computed.
func checkUsage(t testing.TB, m model.Model, params []float32, b model.Batch) {
	t.Helper()
	grads := make([]float32, len(params))
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: got %v, want a usage error", what, err)
		}
	}
	_, err := m.Gradient(params[1:], grads, b)
	refused("parameters too short", err)
	_, err = m.Gradient(params, grads[1:], b)
	refused("gradient too short", err)
	_, err = m.Gradient(params, nil, b)
	refused("no room for a gradient", err)
	if len(b.X) == 0 {
		return // a model without data
	}
	_, err = m.Gradient(params, grads, model.Batch{})
	refused("empty batch", err)
	short := b
	short.X = b.X[1:]
	_, err = m.Gradient(params, grads, short)
	refused("examples too short", err)
	wrong := b
	wrong.Y = fullClasses(len(b.Y)+1, math.MaxInt32)[:max(1, len(b.Y))]
	_, err = m.Gradient(params, grads, wrong)
	refused("a class that does not exist", err)
	_, _, err = m.Evaluate(params, wrong)
	refused("a class that does not exist, in an evaluation", err)
	if len(b.Y) == b.N {
		return
	}
	for _, token := range []float32{-1, 0.5, 1 << 30, float32(math.NaN())} {
		wrong = b
		wrong.X = slices.Clone(b.X)
		wrong.X[0] = token
		_, err = m.Gradient(params, grads, wrong)
		refused("a token or a user that does not exist", err)
	}
}

func fullClasses(n int, v int32) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// Lookup returns the description of a built-in model for an input. It ends the test if there is
// none.
func Lookup(t testing.TB, name string, in model.Input) *model.Description {
	t.Helper()
	d, err := model.Lookup(name, in)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Params returns the initial parameters of a description for a seed, with biases moved away from 0,
// where a ReLU has its kink.
func Params(t testing.TB, d *model.Description, seed uint64) []float32 {
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

// RandomBatch returns n examples of noise that fit in, as a function of seed: enough to test
// arithmetic.
func RandomBatch(in model.Input, n int, seed uint64) model.Batch {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := model.Batch{X: make([]float32, n*in.Features()), Y: make([]int32, n*in.Labels()), N: n, Seed: seed}
	for i := range b.X {
		if b.X[i] = rng.Float32(); in.Sequence {
			b.X[i] = float32(rng.IntN(in.Classes))
		}
	}
	for i := range b.Y {
		b.Y[i] = int32(rng.IntN(in.Classes))
	}
	return b
}

// Distance returns ‖a − b‖ / ‖b‖, or ‖a‖ if b is 0.
func Distance(a, b []float32) float64 {
	diff, norm := 0.0, 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		diff += d * d
		norm += float64(b[i]) * float64(b[i])
	}
	if norm == 0 {
		return math.Sqrt(diff)
	}
	return math.Sqrt(diff / norm)
}
