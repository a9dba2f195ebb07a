package model_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

var ratings = model.Input{Users: 7, Items: 5}

// obviousFactors is the definition of the loss, example by example.
func obviousFactors(f model.Factors) modeltest.Oracle {
	return func(params []float64, b model.Batch, training bool) (float64, int) {
		w, sum := f.Rank+1, 0.0
		for i := range b.N {
			x := params[int(b.X[3*i])*w:][:w]
			y := params[(f.Users+int(b.X[3*i+1]))*w:][:w]
			e, squares := float64(b.X[3*i+2])-x[0]-y[0], x[0]*x[0]+y[0]*y[0]
			for k := 1; k < w; k++ {
				e -= x[k] * y[k]
				squares += x[k]*x[k] + y[k]*y[k]
			}
			if sum += e * e; training {
				sum += f.Decay * squares
			}
		}
		return sum / float64(b.N), 0
	}
}

// TestFactorsComputeTheGradientOfTheirLoss compares with finite differences, for batches that name
// a row once and often.
func TestFactorsComputeTheGradientOfTheirLoss(t *testing.T) {
	d := lookup(t, "mf:rank=3,decay=0.2", ratings)
	m, err := model.New(d, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	params := make([]float32, d.Values())
	if err := d.Init(3, params); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	batch := func(n int) model.Batch {
		b := model.Batch{N: n}
		for range n {
			b.X = append(b.X, float32(rng.IntN(ratings.Users)), float32(rng.IntN(ratings.Items)), float32(rng.NormFloat64()))
		}
		return b
	}
	modeltest.Check(t, m, obviousFactors(*d.Factors), params, batch(1), batch(2), batch(200))
}

// TestAGradientOfFactorsTouchesTheRowsOfItsBatchAlone: everything else is +0, and costs nothing to
// send.
func TestAGradientOfFactorsTouchesTheRowsOfItsBatchAlone(t *testing.T) {
	d := lookup(t, "mf:rank=3", ratings)
	m, err := model.New(d, 1)
	if err != nil {
		t.Fatal(err)
	}
	params, grads := make([]float32, d.Values()), make([]float32, d.Values())
	if err := d.Init(3, params); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Gradient(params, grads, model.Batch{N: 2, X: []float32{6, 0, 1, 2, 4, -1}}); err != nil {
		t.Fatal(err)
	}
	touched := map[int]bool{6: true, 2: true, 7 + 0: true, 7 + 4: true}
	for i, g := range grads {
		if zero := math.Float32bits(g) == 0; zero == touched[i/4] {
			t.Errorf("value %d of row %d is %v", i%4, i/4, g)
		}
	}
}

func TestModelsOfRowsAreLookedUpWithTheirOptions(t *testing.T) {
	d := lookup(t, "mf:als,rank=4,decay=0.5", ratings)
	if f := d.Factors; f == nil || !f.Alternate || f.Rank != 4 || f.Decay != 0.5 || d.Values() != 12*5 || d.Defaults.Optimizer != "assign" {
		t.Errorf("%+v of %d values", d, d.Values())
	}
	documents := model.Input{Words: 50, Tokens: 1000}
	d = lookup(t, "lda:topics=8,beta=0.5", documents)
	if p := d.Topics; p == nil || p.Topics != 8 || p.Alpha != 0.1 || p.Beta != 0.5 || d.Values() != 50*8+1000 || d.Defaults.Optimizer != "add" {
		t.Errorf("%+v of %d values", d, d.Values())
	}
	for _, c := range []struct {
		name string
		in   model.Input
		want string
	}{
		{"mf", digits, "not for images"},
		{"mf:als", documents, "not for documents; those that are: lda"},
		{"lenet", ratings, "not for ratings; those that are: mf"},
		{"lda", ratings, "not for ratings"},
		{"mf:rang=3", ratings, `no option is called "rang"; know rank, decay`},
		{"mf:rank=0", ratings, "rank 0"},
		{"mf:rank=x", ratings, `option "rank=x"`},
		{"mf:als,decay=0", ratings, "decay 0"},
		{"mf", model.Input{Users: 1 << 25, Items: 1}, "33554432 users"},
		{"lda:topics=1", documents, "1 topics"},
		{"lda:alpha=0", documents, "alpha 0"},
		{"lda", model.Input{Words: 1, Tokens: 1 << 25}, "33554432 tokens"},
	} {
		if _, err := model.Lookup(c.name, c.in); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s on %+v: %v, want a usage error that says %q", c.name, c.in, err, c.want)
		}
	}
	if _, err := model.New(lookup(t, "lda", documents), 1); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("a gradient of lda: %v", err)
	}
}
