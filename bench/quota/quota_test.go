package quota

import (
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/internal/virtual"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// The sweep over quotas relies on this: with a fixed quota the model depends on the quota and the
// seed, and not on how long workers take. Only the order of a sum differs, and with it the last
// bits.
func TestAFixedQuotaTrainsTheSameModelWhateverTheTimes(t *testing.T) {
	model, err := virtual.NewSoftmax(data.Digits(1, 200, 1).Set(), 200, 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	run := func(workers int, times string, busy kintsugi.Busy, quota int) []float32 {
		x, err := virtual.ParseTimes(times, 1)
		if err != nil {
			t.Fatal(err)
		}
		r, err := virtual.Train(virtual.Training{
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

// A small sweep has the right results in each cell, and its page is complete.
func TestASmallSweep(t *testing.T) {
	race.Skip(t)
	cfg := Config{
		Sets: []*data.Set{data.Digits(1, 300, 1).Set()}, Examples: 300, Workers: 4, Busy: kintsugi.Wait, Batches: []int{8}, Rates: []float64{4}, Alphas: []float64{0, 1},
		Quotas: []int{1, 2, 4}, Controllers: []string{"dbw", "bdbw"}, Seeds: 2, Steps: 40, Parallel: 2, Progress: io.Discard,
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Sets[0]
	if len(r.Rows()) != 4 || len(s.Ways) != 12 || len(s.Fixed) != 6 || len(s.Runs) < 3 || len(s.Estimates) != 6 || len(s.Slowdown) < 2 || len(r.Cost) != 2 || len(r.Claims) < 8 {
		t.Fatalf("%d cells, %d ways, %d fixed, %d runs, %d estimates, %d slowdowns, %d costs, %d claims",
			len(r.Rows()), len(s.Ways), len(s.Fixed), len(s.Runs), len(s.Estimates), len(s.Slowdown), len(r.Cost), len(r.Claims))
	}
	for _, c := range s.Cells {
		if !c.Ratio.Known() || c.Ratio < 0.3 || c.Ratio > 10 || !(c.Best <= c.All*1.5) {
			t.Errorf("%+v", c)
		}
		if c.Alpha == 0 && c.Quota < 3 {
			t.Errorf("without stragglers %s waits for %.1f of 4", c.Controller, c.Quota)
		}
	}
	for _, e := range s.Estimates {
		if e.Estimate == "seconds of a step" && !(math.Abs(float64(e.Bias)) < 0.3) {
			t.Errorf("alpha %g: the seconds of a step are estimated %+.2f wrong", e.Alpha, float64(e.Bias))
		}
	}
	dir := t.TempDir()
	page, err := Write(dir, page.Experiment{Command: "kintsugi <small>"}, r)
	if err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if h := string(html); strings.Count(h, "<svg") != 10 || strings.Count(h, "</svg>") != 10 || strings.Contains(h, "%!") || strings.Contains(h, "NaN") || strings.Contains(h, "<small>") {
		t.Error("the page is not whole")
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil || strings.Count(text.String(), "\n\n") != 4 || !strings.Contains(text.String(), "WAIT (PsW)") {
		t.Errorf("the tables are not whole (%v):\n%s", err, text.String())
	}
}

// The mean of the k-th of n times is what drawing them gives.
func TestOrderStatisticsAreThoseOfDraws(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	const n, draws, alpha = 5, 100000, 0.4
	var sums [n]float64
	for range draws {
		var x [n]float64
		for i := range x {
			x[i] = 1 - alpha + alpha*rng.ExpFloat64()
		}
		slices.Sort(x[:])
		for i, v := range x {
			sums[i] += v
		}
	}
	for i, sum := range sums {
		if got := orderStatistic(i+1, n, alpha); math.Abs(got-sum/draws) > 0.01 {
			t.Errorf("the mean of number %d of %d is %v, of draws %v", i+1, n, got, sum/draws)
		}
	}
}

func TestSettlingNeedsFiveInARow(t *testing.T) {
	points := func(quotas ...uint32) (p []Point) {
		for _, k := range quotas {
			p = append(p, Point{Quota: k})
		}
		return p
	}
	for _, c := range []struct {
		points []Point
		want   float64
	}{
		{points(8, 8, 8, 8, 8), 0}, {points(16, 16, 8, 7, 8, 8, 8, 16), 2}, {points(8, 8, 8, 8, 9, 8, 8, 8, 8, 8), 5}, {points(16, 8, 8, 8, 8), math.Inf(1)}, {nil, math.Inf(1)},
	} {
		if got := settles(c.points, 8); got != c.want {
			t.Errorf("%v settle after %v steps, want %v", c.points, got, c.want)
		}
	}
}

// If a rival wins, the table says so, and a bound that does not hold is reported.
func TestClaimsAreCheckedAndWinsNamed(t *testing.T) {
	row := func(controller string, alpha, ratio float64) Row {
		return Row{Data: "d", Controller: controller, Batch: 16, Rate: 2, Alpha: alpha, Ratio: record.Number(ratio), Seconds: record.Number(ratio), All: 1, Scaled: record.Unknown(), Quota: 16, Workers: 16}
	}
	r := &Result{Sets: []Set{{Cells: []Row{row("dbw", 0, 1.01), row("bdbw", 0, 0.9), row("dbw", 1, 1.5), row("bdbw", 1, 3)}}}}
	held := make(map[string]Claim)
	for _, c := range judge(r) {
		held[c.Claim] = c
	}
	for claim, want := range map[string]bool{
		"without stragglers dbw waits for all": true, "and costs less than 2 % beside bsp": true, "at alpha 0 dbw takes at most 1.10 of the best fixed quota's time": true,
		"at alpha 1 dbw takes at most 1.40 of the best fixed quota's time": false, "in the median cell at most 1.05": false,
		"in the median cell dbw is no slower than bdbw": true, "in some cell twice as fast as the best fixed quota at a rate proportional to it": false,
	} {
		if c, ok := held[claim]; !ok || c.Holds != want {
			t.Errorf("%q: %+v, want %v", claim, c, want)
		}
	}
	if m := held["in the median cell dbw is no slower than bdbw"].Measured; !strings.Contains(m, "in 1 of 2 cells: d batch 16 rate 2 alpha 0 (0.90, dbw 1.01)") {
		t.Errorf("the win is not named: %s", m)
	}
}

// A point beyond an axis is drawn on its edge, and NaN is not drawn.
func TestFiguresShowWhatTheyCan(t *testing.T) {
	var f page.Figure
	f.Draw(page.Axis{Lo: 0, Hi: 10, Ticks: []float64{0, 10}, Label: number}, page.Axis{Lo: 1, Hi: 100, Log: true, Label: number},
		[]page.Series{{Name: "a", X: []float64{0, 5, 6, 7, 20}, Y: []float64{1, math.NaN(), 0, 1000, 10}}})
	if got, want := f.Lines[0].Path, "M60.0 330.0L550.0 14.0L760.0 172.0"; got != want {
		t.Errorf("the line is %s, want %s", got, want)
	}
	for _, v := range [][]float64{{}, {3}, {0, 7.3}, {-4, 5}, {1e-9, 1e9}} {
		for _, log := range []bool{false, true} {
			a := page.Span(v, log, true)
			if n := len(a.Ticks); !(a.Lo < a.Hi) || n > 60 || (!log && n < 2) {
				t.Errorf("%v, logarithmic %v: %+v", v, log, a)
			}
		}
	}
}
