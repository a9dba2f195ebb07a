package bench

import (
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/sim"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// What the sweep over quotas rests on: with a fixed quota the model depends on the quota and the seed, not on how
// long workers take. Only the order of a sum differs, and with it the last bits.
func TestAFixedQuotaTrainsTheSameModelWhateverTheTimes(t *testing.T) {
	model, err := sim.NewSoftmax(data.Digits(1, 200, 1).Set(), 200, 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	run := func(workers int, times string, busy kintsugi.Busy, quota int) []float32 {
		x, err := sim.ParseTimes(times, 1)
		if err != nil {
			t.Fatal(err)
		}
		r, err := sim.Train(sim.Training{
			Seed: 3, Workers: workers, Consistency: agg.Config{Quota: quota, Lead: kintsugi.Infinite, Busy: busy},
			Schedule: schedule(2), Steps: 30, Problem: model, Times: x, Ranked: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.Params
	}
	want := run(3, "constant", kintsugi.Wait, 3)
	for _, busy := range []kintsugi.Busy{kintsugi.Interrupt, kintsugi.Wait, kintsugi.Pull} {
		got := run(8, "exp:1", busy, 3)
		for i := range got {
			if math.Abs(float64(got[i]-want[i])) > 1e-3 {
				t.Fatalf("%v: parameter %d is %v, want %v", busy, i, got[i], want[i])
			}
		}
	}
}

func TestCrossingsAreInterpolated(t *testing.T) {
	c := crossings{target: 1, before: 3, at: math.Inf(1)}
	if c.add(10, 2) || !math.IsInf(c.at, 1) {
		t.Errorf("a loss of 2 meets the target 1 at %v", c.at)
	}
	if !c.add(14, 0.5) || math.Abs(c.at-(10+4*2.0/3)) > 1e-12 {
		t.Errorf("it is met at %v, want 12.67", c.at)
	}
}

// A small sweep says of each cell what it should, and its report is whole.
func TestASmallSweep(t *testing.T) {
	cfg := DBWConfig{
		Set: data.Digits(1, 300, 1).Set(), Examples: 300, Workers: 4, Busy: kintsugi.Wait, Batches: []int{8}, Rates: []float64{4}, Alphas: []float64{0, 1},
		Quotas: []int{1, 2, 4}, Controllers: []string{"dbw", "bdbw"}, Seeds: 2, Steps: 40, Parallel: 2, Progress: io.Discard,
	}
	r, err := DBW(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 4 || len(r.Ways) != 6 || len(r.Estimates) != 6 || len(r.Slowdown) != 3 || len(r.Claims) < 6 {
		t.Fatalf("%d cells, %d ways, %d estimates, %d slowdowns, %d claims", len(r.Cells), len(r.Ways), len(r.Estimates), len(r.Slowdown), len(r.Claims))
	}
	for _, c := range r.Cells {
		if !c.Ratio.Known() || c.Ratio < 0.3 || c.Ratio > 10 || !(c.Best <= c.All*1.5) {
			t.Errorf("%+v", c)
		}
		if c.Alpha == 0 && c.Quota < 3 {
			t.Errorf("without stragglers %s waits for %.1f of 4", c.Controller, c.Quota)
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	var page strings.Builder
	if err := r.WriteHTML(&page, "a <small> sweep"); err != nil {
		t.Fatal(err)
	}
	if s := page.String(); strings.Count(s, "<svg") != 2 || strings.Count(s, "</svg>") != 2 || strings.Contains(s, "%!") || strings.Contains(s, "<small>") {
		t.Error("the page is not whole")
	}
}
