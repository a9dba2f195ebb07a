package cluster

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/internal/loop"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	models "github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/rows"
)

// plainly returns a model on a generated set, and its configuration for Plain.
func plainly(t *testing.T, model, set string) PlainConfig {
	t.Helper()
	s, err := data.Open(set, "")
	if err != nil {
		t.Fatal(err)
	}
	in := models.Input{Channels: s.Shape[0], Height: s.Shape[1], Width: s.Shape[2], Classes: s.Classes, Users: s.Users, Items: s.Items}
	if s.Corpus != nil {
		in = models.Input{Words: s.Corpus.Vocabulary, Tokens: len(s.Corpus.Train.Words)}
	}
	d, err := models.Lookup(model, in)
	if err != nil {
		t.Fatal(err)
	}
	l, err := kintsugi.NewLayout(d.Tensors())
	if err != nil {
		t.Fatal(err)
	}
	return PlainConfig{Desc: d, Set: s, Layout: l, Seed: 1, Workers: 1}
}

// TestLeastSquaresEndWhereTheTextbookDoes: the algorithm draws nothing at random, so another solver
// ends with the same rows, up to rounding.
func TestLeastSquaresEndWhereTheTextbookDoes(t *testing.T) {
	cfg := plainly(t, "mf:als,rank=5", "ratings")
	cfg.Steps = 6
	want, err := Plain(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	params, grads := make([]float32, len(want)), make([]float32, len(want))
	if err := cfg.Desc.Init(1, params); err != nil {
		t.Fatal(err)
	}
	a, err := rows.NewAlternate(cfg.Desc, cfg.Set.Train.(*data.Ratings), 1)
	if err != nil {
		t.Fatal(err)
	}
	for v := range kintsugi.Step(cfg.Steps) {
		if _, _, err := a.Gradient(t.Context(), params, grads, kintsugi.PushID{Version: v}); err != nil {
			t.Fatal(err)
		}
		for i, g := range grads {
			if math.Float32bits(g) != 0 {
				params[i] = g
			}
		}
	}
	for i := range want {
		if math.Abs(float64(params[i]-want[i])) > 1e-4 {
			t.Fatalf("value %d is %v, by Gonum %v", i, params[i], want[i])
		}
	}
}

// TestGradientsOfFactorsAreThoseOfTheTextbook, for a batch in which rows repeat.
func TestGradientsOfFactorsAreThoseOfTheTextbook(t *testing.T) {
	cfg := plainly(t, "mf:rank=5", "ratings")
	n := cfg.Desc.Values()
	params, grads := make([]float32, n), make([]float32, n)
	x, want := make([]float64, n), make([]float64, n)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range params {
		params[i] = float32(rng.NormFloat64())
		x[i] = float64(params[i])
	}
	batch := rng.Perm(cfg.Set.Train.Len())[:3000]
	plainFactors(*cfg.Desc.Factors, cfg.Set.Train.(*data.Ratings), x, batch, want)
	m, err := models.New(cfg.Desc, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := models.Batch{N: len(batch), X: make([]float32, 3*len(batch))}
	cfg.Set.Train.Fill(b.X, nil, batch)
	if _, err := m.Gradient(params, grads, b); err != nil {
		t.Fatal(err)
	}
	for i := range grads {
		if math.Abs(float64(grads[i])-want[i]) > 1e-6 {
			t.Fatalf("value %d is %v, want %v", i, grads[i], want[i])
		}
	}
}

// Plain loops learn what is planted in the generated sets.
func TestPlainLoopsLearn(t *testing.T) {
	race.Skip(t)
	cfg := plainly(t, "lda:topics=10", "topics")
	cfg.Steps = 40
	untrained, _ := rows.HeldOut(t.Context(), *cfg.Desc.Topics, make([]float32, cfg.Desc.Values()), cfg.Set.Corpus.Test)
	params, err := Plain(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if loss, err := rows.HeldOut(t.Context(), *cfg.Desc.Topics, params, cfg.Set.Corpus.Test); err != nil || !(loss < untrained-0.3) {
		t.Errorf("topics: %v nats a word (%v), %v before", loss, err, untrained)
	}
	cfg = plainly(t, "mlr", "cover")
	cfg.Steps, cfg.Batch, cfg.Schedule = 200, 128, conductor.Schedule{Rule: kintsugi.RuleMomentum, LearningRate: 0.05, Momentum: 0.9}
	if params, err = Plain(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	n := cfg.Set.Test.Len()
	b := models.Batch{N: n, X: make([]float32, n*54), Y: make([]int32, n)}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	cfg.Set.Test.Fill(b.X, b.Y, all)
	m, err := models.New(cfg.Desc, n)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, correct, err := m.Evaluate(params, b); err != nil || float64(correct) < 0.7*float64(n) {
		t.Errorf("cover: %d of %d are right (%v)", correct, n, err)
	}
	cfg.Schedule.Rule = kintsugi.RuleAdamW
	if _, err := Plain(t.Context(), cfg); err == nil {
		t.Error("a rule that the loop does not know was taken for another")
	}
}

// The plain loop follows a run in all that its optimizer does: rates of tensors, clipping, weight
// decay of matrices and a schedule. Parameters and gradients are of order 1, and a run rounds them
// to float32 some ten times in each of 20 steps, so they may differ by 20·10·2⁻²⁴.
func TestAPlainLoopMakesTheStepsOfARun(t *testing.T) {
	const steps, workers = 20, 3
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{4, 2}}, {Name: "b", Shape: []int{4}}})
	if err != nil {
		t.Fatal(err)
	}
	if l, err = l.WithRates(map[string]float32{"b": 3}); err != nil {
		t.Fatal(err)
	}
	set, err := data.Open("cover", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []kintsugi.Rule{kintsugi.RuleSGD, kintsugi.RuleMomentum, kintsugi.RuleAdagrad, kintsugi.RuleAdam} {
		cfg := PlainConfig{Set: set, Layout: l, Workers: workers, Batch: 1, Steps: steps, ClipNorm: 1.5, Schedule: conductor.Schedule{
			Rule: rule, LearningRate: 0.05, Momentum: 0.5, WeightDecay: 0.1, DecayMatrices: true, Warmup: 5, Steps: steps, Decay: conductor.Decay{Form: conductor.Cosine}}}
		loop, start := loop.New(l, rule, workers, cfg.ClipNorm), make([]float32, l.Values)
		for i := range start {
			start[i] = 1 - float32(i)/8
		}
		copy(loop.Params, start)
		calls := 0
		got, err := cfg.descend(t.Context(), rand.New(rand.NewPCG(1, 1)), start, func(x []float64, _ []int, g []float64) error {
			for i := range g {
				g[i] = x[i] * float64(1+calls%workers) / 2 // some are longer than allowed
			}
			calls++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for v := range steps {
			for w, g := range loop.Gradients {
				for i := range g {
					g[i] = loop.Params[i] * float32(1+w) / 2
				}
				loop.Count(w, 1)
			}
			if err := loop.Step(cfg.Schedule.At(kintsugi.Step(v) + 1)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range got {
			if math.Abs(float64(got[i]-loop.Params[i])) > steps*10/float64(1<<24) {
				t.Errorf("rule %d: value %d is %v, in a run %v", rule, i, got[i], loop.Params[i])
			}
		}
	}
}
