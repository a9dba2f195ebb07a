package rates

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// rippled returns the trainee of a quadratic ½·Σ λ·x², with curvatures from largest/100 to largest
// and gradients with noise of this deviation.
func rippled(l *kintsugi.Layout, largest float64, noise float32) func(seed uint64) (Trainee, error) {
	curvature := make([]float32, l.Values)
	for i := range curvature {
		curvature[i] = float32(largest * math.Pow(100, -float64(i)/float64(l.Values-1)))
	}
	return func(seed uint64) (Trainee, error) {
		return Trainee{
			Init: func(params []float32) error {
				for i := range params {
					params[i] = 1
				}
				return nil
			},
			Gradient: func(_ context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
				rng := rand.New(rand.NewPCG(seed, uint64(id.Version)<<8|uint64(id.Slot)))
				loss := 0.0
				for i, c := range curvature {
					grads[i] = c*params[i] + noise*float32(rng.NormFloat64())
					loss += float64(c) * float64(params[i]) * float64(params[i]) / 2
				}
				return loss, 8, nil
			},
			Close: func() error { return nil },
		}, nil
	}
}

func oneTensor(t *testing.T, n int) *kintsugi.Layout {
	t.Helper()
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "x", Shape: []int{n}}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A quadratic with largest curvature L is stable below 2(1 + momentum)/L. Without noise, the
// blow-up is found above that, by no more than the steps that it takes to notice. Noise grows with
// the rate, and may lead to it earlier. The chosen rate is below.
func TestTheRangeTestFindsTheEdgeOfStability(t *testing.T) {
	layout := oneTensor(t, 64)
	for _, largest := range []float64{0.1, 1, 30} {
		for _, momentum := range []float64{0, 0.9} {
			for _, noise := range []float32{0, 0.05} {
				cfg := Config{
					Model: "qp", Layout: layout, Schedule: conductor.Schedule{Rule: kintsugi.RuleMomentum, Momentum: momentum, LearningRate: 1, Decay: conductor.Decay{Form: conductor.Cosine}},
					Workers: 2, Low: 1e-5, High: 1e4, Steps: 500, Seeds: 3, Threads: 2, Open: rippled(layout, largest, noise*float32(math.Sqrt(largest))), Progress: io.Discard,
				}
				row, err := Run(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				limit := 2 * (1 + momentum) / largest
				least := limit
				if noise > 0 {
					least /= 2
				}
				if row.BlowUp < least || row.BlowUp > 10*limit {
					t.Errorf("L %v, momentum %v, noise %v: blow-up at %.3g, the limit is %.3g", largest, momentum, noise, row.BlowUp, limit)
				}
				if row.Chosen >= limit || row.Chosen < limit/200 {
					t.Errorf("L %v, momentum %v, noise %v: chosen is %.3g, the limit %.3g", largest, momentum, noise, row.Chosen, limit)
				}
			}
		}
	}
}

// A pass moves each tensor at its own rate: if that is four times the learning rate for all, a
// quarter of the learning rates gives the same losses, bit for bit.
func TestTheRangeTestHasTheRatesOfTensors(t *testing.T) {
	cfg := Config{
		Model: "qp", Layout: oneTensor(t, 64), Schedule: conductor.Schedule{Rule: kintsugi.RuleMomentum, Momentum: 0.5}, Workers: 2,
		Low: 1e-3, High: 1e3, Steps: 200, Seeds: 1, Threads: 1, Open: rippled(oneTensor(t, 64), 1, 0.05), Progress: io.Discard,
	}
	want, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Layout, err = cfg.Layout.WithRates(map[string]float32{"x": 4}); err != nil {
		t.Fatal(err)
	}
	cfg.Low, cfg.High = cfg.Low/4, cfg.High/4
	got, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if 4*got.Chosen != want.Chosen || len(got.Curve) != len(want.Curve) {
		t.Fatalf("chosen %v after %d steps; want a quarter of %v after %d", got.Chosen, len(got.Curve), want.Chosen, len(want.Curve))
	}
	for i, p := range got.Curve {
		if math.Float64bits(p.Loss) != math.Float64bits(want.Curve[i].Loss) {
			t.Fatalf("loss %v in step %d, want %v", p.Loss, i, want.Curve[i].Loss)
		}
	}
}

// A pass clips gradients: if all are longer than allowed, they may be four times as long, and the
// losses are the same, bit for bit.
func TestTheRangeTestClips(t *testing.T) {
	pass := func(clip float64, by float32) []float64 {
		open := rippled(oneTensor(t, 64), 1, 0.05)
		p := pass{cfg: &Config{Layout: oneTensor(t, 64), Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD}, Workers: 2, ClipNorm: clip, Open: func(seed uint64) (Trainee, error) {
			x, err := open(seed)
			return Trainee{Init: x.Init, Close: x.Close, Gradient: func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
				loss, n, err := x.Gradient(ctx, params, grads, id)
				for i := range grads {
					grads[i] *= by
				}
				return loss, n, err
			}}, err
		}}, rates: slices.Repeat([]float64{0.1}, 50)}
		if err := p.run(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		return p.losses
	}
	want := pass(0.01, 1)
	if !slices.Equal(pass(0.01, 4), want) {
		t.Error("clipped gradients make other steps if they were longer")
	}
	if slices.Equal(pass(0, 1), want) {
		t.Error("clipping makes no difference: nothing is shown")
	}
}

// The same curve leads to the same rates, whatever the unit of the loss and the number of seeds.
func TestTheReadingOfARangeTestDoesNotDependOnUnits(t *testing.T) {
	rates, curve := make([]float64, 200), make([]float64, 200)
	for i := range rates {
		rates[i] = rangeRate(1e-4, 1, i, len(rates))
		curve[i] = 1 + 1/(1+math.Exp(float64(i-100)/10)) // falls fastest at 100
	}
	f := find(rates, [][]float64{curve}, []bool{false})
	if f.BlowUp != 0 || len(f.Points) != 200 || f.Lowest != rates[199] || f.Chosen != f.Lowest/2 || math.Abs(math.Log(f.Steepest/rates[100])) > 0.1 {
		t.Errorf("a curve that does not blow up: %+v", f)
	}
	var scaled []float64
	for _, l := range curve {
		scaled = append(scaled, 1000*l)
	}
	g := find(rates, [][]float64{scaled, scaled}, []bool{false, false})
	if math.Abs(g.Chosen/f.Chosen-1) > 1e-9 || math.Abs(g.Lowest/f.Lowest-1) > 1e-9 {
		t.Errorf("chosen %v and %v, lowest %v and %v", f.Chosen, g.Chosen, f.Lowest, g.Lowest)
	}
	// If one seed ends early, all of them do.
	h := find(rates, [][]float64{curve, curve[:150]}, []bool{false, true})
	if h.BlowUp != rates[149] || len(h.Points) != 149 || h.Chosen != h.BlowUp/8 {
		t.Errorf("blow-up at %v, %d points; want %v, 149", h.BlowUp, len(h.Points), rates[149])
	}
}

// Noise is not divergence, however long it is observed. A loss that climbs out of the noise is, and
// so is one that is not finite.
func TestDivergenceIsToldFromNoise(t *testing.T) {
	for seed := range uint64(20) {
		var flat trend
		rng := rand.New(rand.NewPCG(seed, 1))
		for i := range 2000 {
			if flat.add(1 + 0.3*rng.NormFloat64()) {
				t.Fatalf("seed %d: noise is called divergence after %d losses", seed, i)
			}
		}
		var climbing trend
		at := -1
		for i := range 200 {
			loss := math.Exp(-float64(i)/20) + 0.05*rng.NormFloat64()
			if i >= 100 {
				loss += 0.01 * math.Exp(float64(i-100)/3)
			}
			if climbing.add(loss) {
				at = i
				break
			}
		}
		if at < 100 || at > 120 {
			t.Errorf("seed %d: a loss that rises from 100 on is noticed at %d", seed, at)
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		var s trend
		if s.add(1) || !s.add(bad) {
			t.Errorf("a loss of %v does not end a pass", bad)
		}
	}
}

func TestTheRangeTestIsWritten(t *testing.T) {
	layout := oneTensor(t, 64)
	row, err := Run(t.Context(), Config{
		Model: "qp", Data: "none", Layout: layout, Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.5}, Workers: 1,
		Low: 1e-3, High: 1e3, Steps: 200, Seeds: 1, Threads: 1, Open: rippled(layout, 1, 0), Progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := Write(t.TempDir(), page.Experiment{Command: "kintsugi tune lr"}, row)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<td>" + fmt.Sprintf("%.3g", row.Chosen) + "</td>", "chosen: " + row.Rule, `class="curve" d="M`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(string(text), "NaN") {
		t.Error("the page draws what is no number")
	}
	// A range that is too high from the start is refused, and not evaluated.
	_, err = Run(t.Context(), Config{
		Model: "qp", Layout: layout, Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD}, Workers: 1,
		Low: 100, High: 1000, Steps: 100, Seeds: 1, Threads: 1, Open: rippled(layout, 1, 0), Progress: io.Discard,
	})
	if err == nil || !strings.Contains(err.Error(), "begin with a smaller one") {
		t.Errorf("a range that begins beyond the limit: %v", err)
	}
	_, err = Run(t.Context(), Config{
		Model: "qp", Layout: layout, Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD}, Workers: 1,
		Low: 1e-4, High: 1e-2, Steps: 100, Seeds: 1, Threads: 1, Open: rippled(layout, 1, 0), Progress: io.Discard,
	})
	if err == nil || !strings.Contains(err.Error(), "raise the highest") {
		t.Errorf("a range that ends below the limit: %v", err)
	}
}
