package model

import (
	"errors"
	"math"
	"slices"
	"testing"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

func openQuadratic(t *testing.T, q Quadratic) (*Description, *quadratic) {
	t.Helper()
	d, err := q.Describe()
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(d, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d, m.(*quadratic)
}

// TestQuadraticIsItsFormula compares with a dense matrix, built by applying A to each unit vector.
func TestQuadraticIsItsFormula(t *testing.T) {
	q := Quadratic{Dimension: 40, Condition: 50, Reflections: 3, Seed: 9}
	d, m := openQuadratic(t, q)
	optimum := q.Optimum()
	a := make([][]float64, q.Dimension)
	for i := range a {
		x := slices.Clone(optimum)
		x[i]++ // the step is not quite exact, so the columns are divided by its true length
		m.apply(x)
		a[i] = slices.Clone(m.y)
		for j := range a[i] {
			a[i][j] /= float64(x[i]) - float64(optimum[i])
		}
	}
	trace, want := 0.0, 0.0
	for i, l := range q.Eigenvalues() {
		want += l
		trace += a[i][i]
		for j := range i {
			if math.Abs(a[i][j]-a[j][i]) > 1e-12 {
				t.Fatalf("A is not symmetric at (%d, %d): %g, %g", i, j, a[i][j], a[j][i])
			}
		}
	}
	if math.Abs(trace-want) > 1e-10 {
		t.Errorf("the trace of A is %g, its eigenvalues' sum %g", trace, want)
	}
	if l := q.Eigenvalues(); l[0] != 1/q.Condition || l[len(l)-1] != 1 {
		t.Errorf("the eigenvalues are %g … %g, want %g … 1", l[0], l[len(l)-1], 1/q.Condition)
	}
	params, grads := make([]float32, q.Dimension), make([]float32, q.Dimension)
	if err := d.Init(3, params); err != nil {
		t.Fatal(err)
	}
	loss, err := m.Gradient(params, grads, Batch{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	value := 0.0
	for i := range params {
		sum := 0.0
		for j := range params {
			sum += a[j][i] * (float64(params[j]) - float64(optimum[j]))
		}
		value += sum * (float64(params[i]) - float64(optimum[i])) / 2
		if math.Abs(sum-float64(grads[i])) > 1e-6 {
			t.Errorf("gradient %d is %g, want %g", i, grads[i], sum)
		}
	}
	if math.Abs(loss-value) > 1e-9*value {
		t.Errorf("the loss is %v, want %v", loss, value)
	}
	loss, correct, err := m.Evaluate(optimum, Batch{})
	if loss != 0 || correct != 0 || err != nil {
		t.Errorf("at the optimum: loss %v, %d correct, %v", loss, correct, err)
	}
}

// TestQuadraticNoiseHasItsSizeAndIsAFunctionOfTheSeed measures mean and variance, and that the noise
// falls with the number of examples.
func TestQuadraticNoiseHasItsSizeAndIsAFunctionOfTheSeed(t *testing.T) {
	const n, sigma, examples = 100000, 0.5, 4
	q := Quadratic{Dimension: n, Condition: 10, Noise: sigma}
	_, m := openQuadratic(t, q)
	at := q.Optimum() // where the gradient is noise alone
	a, b := make([]float32, n), make([]float32, n)
	for _, g := range [][]float32{a, b} {
		if _, err := m.Gradient(at, g, Batch{N: examples, Seed: 5}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(a, b) {
		t.Error("the same seed gives other noise")
	}
	mean, variance := 0.0, 0.0
	for _, g := range a {
		mean += float64(g) / n
		variance += float64(g) * float64(g) / n
	}
	if want := sigma * sigma / examples; math.Abs(mean) > 0.005 || math.Abs(variance/want-1) > 0.02 {
		t.Errorf("the noise has mean %g and variance %g, want 0 and %g", mean, variance, want)
	}
	if _, err := m.Gradient(at, b, Batch{N: examples, Seed: 6}); err != nil || slices.Equal(a, b) {
		t.Errorf("another seed gives the same noise (%v)", err)
	}
	for _, err := range []error{
		func() error { _, err := m.Gradient(at[1:], a, Batch{}); return err }(),
		func() error { _, err := m.Gradient(at, nil, Batch{}); return err }(),
	} {
		if !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("vectors that do not fit: got %v, want a usage error", err)
		}
	}
}

func TestQuadraticConvergesAtTheRateOfItsCondition(t *testing.T) {
	q := Quadratic{Dimension: 20, Condition: 4, Reflections: 2, Seed: 1}
	d, m := openQuadratic(t, q)
	params, grads := make([]float32, 20), make([]float32, 20)
	if err := d.Init(1, params); err != nil {
		t.Fatal(err)
	}
	first, loss := 0.0, 0.0
	const steps = 20
	for step := range steps {
		var err error
		if loss, err = m.Gradient(params, grads, Batch{}); err != nil {
			t.Fatal(err)
		}
		if step == 0 {
			first = loss
		}
		for i, g := range grads {
			params[i] -= 2 / (1 + 1/4.0) * g // the best fixed rate: 2 / (largest + smallest eigenvalue)
		}
	}
	// The distance shrinks by (κ−1)/(κ+1) = 0.6 a step at least, the loss by its square.
	if bound := first * math.Pow(0.36, steps-1) * 1.01; loss > 4*bound {
		t.Errorf("after %d steps the loss is %g, theory promises %g", steps-1, loss, bound)
	}
}
