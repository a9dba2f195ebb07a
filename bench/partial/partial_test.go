package partial

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// decay is an algorithm of which every number is known: value i shrinks by a factor in each step.
type decay struct {
	shrink []float32
	size   int // of a block
}

func (d decay) Blocks() (blocks []Block, values, arrays int) {
	for lo := 0; lo < len(d.shrink); lo += d.size {
		blocks = append(blocks, Block{lo, min(lo+d.size, len(d.shrink))})
	}
	return blocks, len(d.shrink), 1
}

func (d decay) Init(x []float32) error {
	for i := range x {
		x[i] = 1 + float32(i%7)
	}
	return nil
}

func (d decay) Step(x []float32, _ int) error {
	for i := range x {
		x[i] *= d.shrink[i]
	}
	return nil
}

func (d decay) Loss(x []float32) (float64, error) {
	return kernels.SquaredDistance(x, make([]float32, len(x))), nil
}
func (d decay) Touched(_ int, touch func(block int)) {
	for lo := 0; lo < len(d.shrink); lo += d.size {
		touch(lo / d.size)
	}
}

func (decay) Close() error { return nil }

func decaying(steps int, shrink func(i int) float32) Problem {
	d := decay{size: 4}
	for i := range 240 {
		d.shrink = append(d.shrink, shrink(i))
	}
	return Problem{Name: "decay", Data: "none", Steps: steps, Open: func(uint64) (Workload, error) { return d, nil }}
}

func courseOf(t *testing.T, p Problem) (*course, Workload) {
	t.Helper()
	path, err := newCourse(p, 1)
	if err != nil {
		t.Fatal(err)
	}
	w, err := p.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return path, w
}

// A state on the path that is k steps older or younger costs k steps more or less. Fractions and
// signs are kept.
func TestReworkIsHowFarAStateIsBehind(t *testing.T) {
	path, w := courseOf(t, decaying(200, func(int) float32 { return 0.97 }))
	for _, c := range []struct{ state, as int }{{100, 100}, {60, 100}, {0, 190}, {130, 100}, {100, 99}} {
		got, ok, err := path.rework(w, slices.Clone(path.states[c.state]), c.as)
		if want := float64(c.as - c.state); err != nil || !ok || math.Abs(got-want) > 1e-6 {
			t.Errorf("the state of step %d as that of step %d costs %g steps (%v, %v), want %g", c.state, c.as, got, ok, err, want)
		}
	}
	half := slices.Clone(path.states[100]) // half-way between two steps
	for i := range half {
		half[i] *= float32(math.Sqrt(0.97))
	}
	if got, ok, err := path.rework(w, half, 100); err != nil || !ok || math.Abs(got+0.5) > 0.01 {
		t.Errorf("half a step ahead costs %g steps (%v, %v)", got, ok, err)
	}
	half[0] = float32(math.NaN())
	if _, ok, err := path.rework(w, half, 100); ok || err != nil {
		t.Errorf("what does not come back is said to (%v)", err)
	}
}

// Looking at the loss less often, far from the target, changes nothing.
func TestStridesChangeNothing(t *testing.T) {
	path, w := courseOf(t, decaying(300, func(i int) float32 { return 0.9 + 0.09*float32(i)/240 }))
	rng := rand.New(rand.NewPCG(1, 1))
	for range 40 {
		at := rng.IntN(int(path.end))
		x := slices.Clone(path.states[at])
		for i := range x {
			if rng.IntN(3) == 0 {
				x[i] = path.states[at/2][i]
			}
		}
		want, y := 0.0, slices.Clone(x)
		before, _ := w.Loss(y)
		for version := at; ; version++ {
			_ = w.Step(y, version)
			loss, _ := w.Loss(y)
			if loss <= path.target {
				want = crossingAt(version, before, version+1, loss, path.target) - path.end
				break
			}
			before = loss
		}
		if got, ok, err := path.rework(w, x, at); err != nil || !ok || got != want {
			t.Fatalf("from step %d: %g (%v, %v), step by step %g", at, got, ok, err, want)
		}
	}
}

// The baseline is not measured: it is the number of steps taken back, since they are repeated to
// the bit. That holds for every workload.
func TestStepsAreRepeatedToTheBit(t *testing.T) {
	set := data.Digits(1, 500, 1).Set()
	for _, name := range Workloads {
		p, err := ProblemOf(name, set)
		if err != nil {
			t.Fatal(err)
		}
		p.Steps = 12
		path, w := courseOf(t, p)
		for _, at := range []int{7, 3, 11, 0} {
			x := slices.Clone(path.states[at])
			if err := w.Step(x, at); err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(x, path.states[at+1], func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
				t.Errorf("%s: step %d makes something else when it is repeated", name, at+1)
			}
		}
	}
}

func rowsOf(t *testing.T, p Problem, lost []float64, periods []int, trials int, strategies ...string) []Row {
	t.Helper()
	rows, err := Run(t.Context(), Config{Problems: []Problem{p}, Lost: lost, Periods: periods, Strategies: strategies, Trials: trials, Seeds: 1 + trials/40, Threads: 2, Progress: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func find(t *testing.T, rows []Row, lost float64, period int, strategy string) Row {
	t.Helper()
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Lost == lost && r.Period == period && r.Strategy == strategy })
	if i < 0 {
		t.Fatalf("no row of %s, %g lost, C = %d", strategy, lost, period)
	}
	return rows[i]
}

// If blocks move unevenly, each strategy of the list costs less than the one behind it, none saves
// more bytes than the baseline, and the loss of everything costs as much as the baseline's.
func TestPartialRecoveryCostsLess(t *testing.T) {
	race.Skip(t)
	rows := rowsOf(t, decaying(110, func(i int) float32 { return 0.98 - 0.4*float32(i/4%60)/60 }), []float64{0.5, 1}, []int{8, 16, 64}, 60, Strategies...)
	for _, period := range []int{8, 16} {
		order := []string{"coasting:int8", "replica", "shadow:int8", "priority:1/8", "partial", "full"}
		for i := range order[1:] {
			if a, b := find(t, rows, 0.5, period, order[i]), find(t, rows, 0.5, period, order[i+1]); !(a.Rework < b.Rework) {
				t.Errorf("C = %d: %s costs %.2f steps, %s %.2f", period, a.Strategy, a.Rework, b.Strategy, b.Rework)
			}
		}
		for _, s := range []string{"adaptive", "threshold:1/8"} {
			if a, b := find(t, rows, 0.5, period, s), find(t, rows, 0.5, period, "partial"); !(a.Rework < b.Rework) {
				t.Errorf("C = %d: %s costs %.2f steps, partial %.2f", period, s, a.Rework, b.Rework)
			}
		}
		if a, b := find(t, rows, 0.5, period, "roundrobin:1/8"), find(t, rows, 0.5, period, "random:1/8"); !(a.Rework < b.Rework) {
			t.Errorf("C = %d: in turn %.2f steps, at random %.2f", period, a.Rework, b.Rework)
		}
		all, full := find(t, rows, 1, period, "partial"), find(t, rows, 1, period, "full")
		if math.Abs(all.Rework-full.Rework) > 1e-3 || math.Abs(full.Rework-float64(period+1)/2) > float64(period)/4 {
			t.Errorf("C = %d: all lost costs %.3f steps, the baseline %.3f, want about %g", period, all.Rework, full.Rework, float64(period+1)/2)
		}
		for _, r := range rows {
			if slices.Contains([]string{"packed", "curved:1/8", "secant:1/8"}, r.Strategy) { // they need whole numbers, or gradients
				continue
			}
			if r.Period == period && r.Strategy != "replica" && !(r.Bytes > 0 && r.Bytes <= 1.001) {
				t.Errorf("%s saves the bytes of %.3f models in C steps", r.Strategy, r.Bytes)
			}
			// There are exceptions if what blocks add to the loss is made up for faster than the
			// loss falls: very old blocks, and noise.
			if r.Period == period && r.Rework > 0.3 && r.Strategy != "random:1/8" && r.Strategy != "coasting:sign" && !(float64(r.Predicted) > 0.4*r.Rework && float64(r.Predicted) < 2.5*r.Rework) {
				t.Errorf("%s, %g lost, C = %d: the ledger predicts %.2f steps, it costs %.2f", r.Strategy, r.Lost, r.Period, r.Predicted, r.Rework)
			}
			if r.Period == period && (r.Trials != 60 || r.Low > r.Reduction || r.High < r.Reduction || r.Missing != "") {
				t.Errorf("%+v", r)
			}
		}
	}
	if r := find(t, rows, 0.5, 64, "priority:1/8"); r.Missing == "" || r.Trials != 0 {
		t.Errorf("110 steps are fewer than 6·64: %+v", r)
	}
}

// Failures are drawn evenly from [2C, end), and hit any blocks, or neighbouring ones.
func TestFailuresAreEven(t *testing.T) {
	path, _ := courseOf(t, decaying(100, func(int) float32 { return 0.97 }))
	for _, contiguous := range []bool{false, true} {
		trials := path.trials(8, 4000, 1, contiguous)
		steps, blocks, neighbours := make([]int, 101), make([]int, 60), 0
		for _, f := range trials {
			lost := f.lost(0.25)
			if len(lost) != 15 || f.failed < 16 || float64(f.failed) >= path.end {
				t.Fatalf("%d blocks at step %d of %.2f", len(lost), f.failed, path.end)
			}
			steps[f.failed]++
			for i, b := range lost {
				blocks[b]++
				if i > 0 && b == (lost[i-1]+1)%60 {
					neighbours++
				}
			}
		}
		for _, n := range steps[16:int(path.end)] {
			if n < 20 || n > 90 {
				t.Errorf("a step fails %d times, on average %.0f", n, 4000/(path.end-16))
			}
		}
		for b, n := range blocks {
			if math.Abs(float64(n)-1000) > 5*math.Sqrt(750) {
				t.Errorf("block %d is lost %d times of 4000, want about 1000", b, n)
			}
		}
		if all := neighbours == 14*len(trials); all != contiguous {
			t.Errorf("contiguous %v: %d neighbours are lost", contiguous, neighbours)
		}
	}
}

// Real models are disturbed and recover.
func TestScarOnRealModels(t *testing.T) {
	race.Skip(t)
	set := data.Digits(1, 600, 1).Set()
	workloads := Workloads
	if testing.Short() {
		workloads = []string{"mlr", "mf"}
	}
	for _, name := range workloads {
		p, err := ProblemOf(name, set)
		if err != nil {
			t.Fatal(err)
		}
		p.Steps = 54
		rows := rowsOf(t, p, []float64{0.5}, []int{8}, 2, "full", "priority:1/8", "mostused:1/8", "curved:1/8", "secant:1/8", "adaptive", "shadow:int8", "shadow:int4", "shadow:sign", "coasting:int8", "packed", "replica")
		for _, r := range rows {
			encodes := strings.HasPrefix(r.Strategy, "shadow") || strings.HasPrefix(r.Strategy, "coasting")
			if name == "lda" && (encodes || r.Strategy == "secant:1/8") || name != "lda" && r.Strategy == "packed" || name != "lda" && name != "mf" && r.Strategy == "mostused:1/8" {
				if r.Missing == "" {
					t.Errorf("%+v", r)
				}
				continue
			}
			if r.Missing != "" || r.Trials != 2 || math.IsNaN(r.Reduction) {
				t.Errorf("%+v", r)
			}
		}
		if full, replica := find(t, rows, 0.5, 8, "full"), find(t, rows, 0.5, 8, "replica"); full.Rework < 1 || !(replica.Rework < full.Rework) {
			t.Errorf("%s: the baseline costs %.2f steps, a replica %.2f", name, full.Rework, replica.Rework)
		}
	}
}

// No perturbation costs more than the posterior bound, and some cost more than the published one. A
// random share of the blocks has that share of ‖δ‖².
func TestBounds(t *testing.T) {
	b := FindBound(10000, 7)
	if b.AbovePosterior != 0 || b.AbovePaper < 100 || b.WorstAbove < 2 || len(b.Points) == 0 || !(b.MeanCost < b.MeanPosterior) {
		t.Errorf("%+v", b)
	}
	for _, l := range b.Lost {
		if math.Abs(l.Sigmas) > 3 || math.Abs(l.Ratio-1) > 0.02 {
			t.Errorf("a share of %g: ‖δ′‖² is %.4f of what is expected, %+.1f σ", l.Share, l.Ratio, l.Sigmas)
		}
	}
}

// The interval contains the true reduction in about 95 of 100 experiments.
func TestTheBootstrapIntervalHolds(t *testing.T) {
	race.Skip(t)
	rng := rand.New(rand.NewPCG(3, 3))
	holds := 0
	const experiments, truth = 200, 0.7
	for range experiments {
		var rework, baseline []float64
		for range 60 {
			b := 1 + 15*rng.Float64()
			baseline = append(baseline, b)
			rework = append(rework, (1-truth)*b*2*rng.Float64())
		}
		if low, high := bootstrap(rework, baseline); low <= truth && truth <= high {
			holds++
		}
	}
	if holds < 0.88*experiments || holds == experiments {
		t.Errorf("%d of %d intervals hold the truth", holds, experiments)
	}
	if r := reduction([]float64{-1, 3}, []float64{4, 4}, nil); r != 0.75 {
		t.Errorf("reduction %g: a failure that saves a step counts as such", r)
	}
}

func TestScarIsWritten(t *testing.T) {
	rows := rowsOf(t, decaying(60, func(i int) float32 { return 0.98 - 0.002*float32(i%60) }), []float64{0.25, 0.5}, []int{8, 16}, 4, Strategies...)
	b := FindBound(500, 1)
	dir := t.TempDir()
	page, err := Write(dir, page.Experiment{Command: "kintsugi reproduce scar <b>", Time: time.Unix(0, 0)}, rows, &b)
	if err != nil {
		t.Fatal(err)
	}
	partial := find(t, rows, 0.5, 8, "partial")
	for file, want := range map[string][]string{
		page: {"decay: 1/4 lost", "decay: 1/2 lost", "&lt;b&gt;", `class="curve"`, "n/a", "posterior bound", "31–62 %",
			fmt.Sprintf("%.0f %% (%.0f to %.0f)", 100*partial.Reduction, 100*partial.Low, 100*partial.High)},
		filepath.Join(dir, "table.json"): {`"strategy": "priority:1/8"`, `"reduction_low"`, `"above_posterior": 0`},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s lacks %q", file, w)
			}
		}
		if strings.Contains(string(text), "NaN") {
			t.Errorf("%s has a number that is none", file)
		}
	}
}

func TestStrategiesAndWorkloadsThatDoNotExist(t *testing.T) {
	for _, s := range []string{"best", "priority", "priority:2", "shadow:zip", "shadow:int2", "curved", "used:1/8", ""} {
		if err := CheckStrategy(s); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("strategy %q: %v", s, err)
		}
	}
	for _, s := range Strategies {
		if err := CheckStrategy(s); err != nil {
			t.Errorf("strategy %q: %v", s, err)
		}
	}
	for _, name := range []string{"gan", "mlr"} { // gan does not exist, and mlr needs images
		if _, err := ProblemOf(name, nil); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("workload %q: %v", name, err)
		}
	}
}

func TestClaimsAreJudgedBeyondTheIntervals(t *testing.T) {
	row := func(period int, strategy string, low, reduction, high float64) Row {
		return Row{Workload: "w", Lost: 0.5, Period: period, Strategy: strategy, Trials: 9, Low: low, Reduction: reduction, High: high}
	}
	rows := []Row{
		row(8, "full", 0, 0, 0), row(8, "partial", 0.3, 0.4, 0.5), row(8, "roundrobin:1/8", 0.35, 0.45, 0.55), row(8, "random:1/8", -0.3, -0.2, -0.1), row(8, "replica", 0.8, 0.9, 0.95),
		row(16, "full", 0, 0, 0), row(16, "partial", 0.3, 0.4, 0.5), row(16, "priority:1/8", 0.1, 0.2, 0.3), row(16, "roundrobin:1/8", 0.35, 0.45, 0.55), row(16, "replica", 0.8, 0.9, 0.95),
		row(32, "priority:1/8", 0.8, 0.85, 0.9), row(32, "roundrobin:1/8", 0.4, 0.84, 0.95), row(32, "replica", 0.8, 0.9, 0.95),
		{Workload: "w", Lost: 0.5, Period: 64, Strategy: "priority:1/8", Missing: "too short"},
	}
	want := []string{
		"partial is better than full in 2 of 2 cells, and worse in 0",
		"priority:1/8 is better than roundrobin:1/8 in 0 of 2 cells, and worse in 1: w, 1/2 lost, C = 16",
		"roundrobin:1/8 is better than random:1/8 in 1 of 1 cells, and worse in 0",
		"full is better than random:1/8 in 1 of 1 cells, and worse in 0",
		"the best strategy has 90 % of the replica's reduction in 1 of 2 cells with C ≥ 16; least is 50 %, w, 1/2 lost, C = 16 with roundrobin:1/8",
	}
	if got := Claims(rows); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := Claims(nil); len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
}
