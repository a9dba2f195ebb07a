package failure

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// killedRun is a run on one worker whose server dies after step 3, at second 3.5, is away for 2
// seconds, and comes back from a checkpoint of step 2. In the outage its worker keeps 7 gradients,
// of which 5 are counted as one push.
func killedRun() *record.Run {
	at := func(s float64) record.At { return record.At{Seconds: 10 + s} }
	step := func(s float64, line, n uint64) *record.Step {
		return &record.Step{At: at(s), Line: line, Step: n, Counted: []uint32{0}, Times: []record.Took{{Compute: 500 * time.Millisecond}}}
	}
	kept := step(5.5, 2, 3)
	kept.Kept, kept.Dropped, kept.Late = 5, 2, 1
	return record.NewRun([]record.Event{
		&record.Header{At: at(-1), Format: record.Format}, &record.View{At: at(-1), Number: 1, Line: 1},
		step(0, 1, 1), step(1, 1, 2), &record.Evaluation{At: at(1.2), Line: 1, Step: 2, Accuracy: 0.4},
		step(3, 1, 3), &record.Failure{At: at(3.5), Part: "server/0", Injected: true}, &record.Failure{At: at(3.6), Part: "server/1", Injected: true},
		&record.View{At: at(5), Number: 2, Line: 2, RestoredStep: 2},
		kept, &record.Evaluation{At: at(6.5), Line: 2, Step: 3, Accuracy: 0.6},
		&record.Evaluation{At: at(6.6), Line: 2, Step: 2, Accuracy: 0.1}, // of a step that was not released on that line
		step(7, 2, 4), step(8, 2, 5), &record.Evaluation{At: at(9), Line: 2, Step: 5, Accuracy: 0.7},
	}, nil)
}

func TestAFailureRunCountsPushesAcrossLines(t *testing.T) {
	r := newTrial(killedRun(), Cell{Model: "cnn", Preset: Preset{Name: "x", Async: true, Servers: 2}, Workers: 1, Kills: 1, Seed: 1})
	want := []Point{{2, 1, 0.4}, {4, 5.5, 0.6}, {6, 8, 0.7}}
	if len(r.Curve) != 3 || r.Curve[0] != want[0] || r.Curve[1] != want[1] || r.Curve[2] != want[2] {
		t.Errorf("curve %+v, want %+v", r.Curve, want)
	}
	if r.Counted != 6 || r.Computed != 6+4+2+1 || r.Kept != 5 || r.Dropped != 2 || r.Redone != 1 || r.Seconds != 8 || r.NodeSeconds != 24 || r.Final != 0.7 {
		t.Errorf("%+v", r)
	}
	if len(r.Deaths) != 1 {
		t.Fatalf("two servers that die together are %d deaths", len(r.Deaths))
	}
	d := r.Deaths[0]
	if d.Counted != 3 || d.Before != 0.4 || d.After != 0.6 || math.Abs(float64(d.Gap)-2) > 1e-9 || d.Lost != 1 || d.Pending != 7 || d.Seconds != 3.5 {
		t.Errorf("%+v", d)
	}
	if want := (6 + 7) * 0.5 / 8; math.Abs(float64(r.Busy)-want) > 1e-9 {
		t.Errorf("busy %v, want %v", r.Busy, want)
	}
}

// line is a run whose accuracy rises evenly with pushes and seconds.
func line(preset string, kills int, seed uint64, from, rise float64) Trial {
	r := Trial{Preset: preset, Workers: 1, Kills: kills, Seed: seed, Async: true, Counted: 100, Computed: 100, Seconds: 10, NodeSeconds: 20}
	for i := 1; i <= 10; i++ {
		r.Curve = append(r.Curve, Point{Counted: uint64(10 * i), Seconds: float64(i), Accuracy: from + rise*float64(i)})
	}
	r.Final = record.Number(r.Curve[9].Accuracy)
	return r
}

func TestRowsCompareRunsOfTheSameSeeds(t *testing.T) {
	var runs []Trial
	for seed := range uint64(3) {
		off := 0.001 * float64(seed*seed) // the same for all runs of a seed, so that it cancels
		runs = append(runs, line("stateless/async", 0, seed, 0.2+off, 0.05), line("stateless/async", 1, seed, 0.19+off, 0.05), line("checkpoint/async", 1, seed, 0.15+off, 0.05))
	}
	rows := Rows(runs)
	if len(rows) != 3 || rows[1].Seeds != 3 {
		t.Fatalf("%+v", rows)
	}
	near := func(what string, got record.Number, want float64) {
		t.Helper()
		if math.Abs(float64(got)-want) > 1e-6 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("of undisturbed", rows[1].OfUndisturbed, -1)
	near("its error", rows[1].OfUndisturbedError, 0)
	near("of checkpoint", rows[1].OfCheckpoint, 4)
	if rows[0].OfUndisturbed.Known() {
		t.Error("an undisturbed row is compared with itself")
	}
	near("stays above .6 from", rows[0].Stays60, (8+8+8)/3.0)
	var text bytes.Buffer
	if err := page.WriteTables(&text, append(Tables(rows), OutageTable(rows)...)); err != nil || !strings.Contains(text.String(), "-1.0 ± 0.0") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// The last table of outages names the best rule, its lead over the next one with the error, and
// whether that is more than noise. The checkpoint is not a rule, however good it is.
func TestTheTableSaysWhichRuleIsBest(t *testing.T) {
	var runs []Trial
	for seed := range uint64(3) {
		noise := 0.01 * float64(seed)
		runs = append(runs, line("wait", 0, seed, 0.2, 0.05), line("checkpoint", 1, seed, 0.3, 0.05), line("decay", 1, seed, 0.2, 0.05),
			line("local", 1, seed, 0.25, 0.05), line("wait", 1, seed, 0.19+noise, 0.05))
	}
	tables := OutageTable(Rows(runs))
	last := tables[len(tables)-1]
	want := [][]string{
		{"", "1", "1", "after equal time", "local", "-5.00 of checkpoint", "decay", "+5.00 ± 0.00", "yes"},
		{"", "1", "1", "at equal counted pushes", "local", "+5.00 of undisturbed", "decay", "+5.00 ± 0.00", "yes"},
	}
	if !slices.EqualFunc(last.Lines, want, slices.Equal) {
		t.Errorf("%s: %q, want %q", last.Title, last.Lines, want)
	}
	if got := clearly(1, 0.6); got != "no" {
		t.Errorf("one point with an error of 0.6 is clear: %q", got)
	}
}

// A preset loses a shard for good if all replicas of it die: the other servers have no copy, and
// there is no memory outside processes.
func TestLostShardsHaveNoReplicaLeft(t *testing.T) {
	cfg := Config{Updates: 100, SaveEvery: 10, KillAt: []int{20, 40}}
	found := 0
	for _, p := range slices.Concat(Presets, OutagePresets) {
		if !strings.HasPrefix(p.Name, "gold:lost") {
			continue
		}
		found++
		args := strings.Join(cfg.args(Cell{Model: "cnn", Preset: p, Workers: 1, Kills: 1}), " ")
		for _, want := range []string{"--servers 3", "--replicas 2", "--fault kill server/0 at step 20", "--fault kill server/1 at step 20"} {
			if !strings.Contains(args, want) {
				t.Errorf("%s: no %q in %s", p.Name, want, args)
			}
		}
	}
	if found != 3 {
		t.Errorf("%d presets lose a shard, want 3", found)
	}
}

func TestTheGridIsDoneOnceAndBySeeds(t *testing.T) {
	cfg := Config{Models: []string{"cnn"}, Presets: Presets, Workers: []int{1, 4}, Kills: []int{0, 1, 2}, Seeds: 2, Updates: 100, KillAt: []int{20, 40},
		SaveEvery: 10, Parallel: 2, Dir: t.TempDir()}
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	cells := cfg.Cells()
	if want := 2 * 2 * (3*len(Presets) - 4); len(cells) != want || cells[len(cells)/2-1].Seed != 1 || cells[len(cells)/2].Seed != 2 {
		t.Fatalf("%d cells, want %d, those of seed 1 first", len(cells), want)
	}
	names := make(map[string]bool)
	for _, c := range cells {
		names[c.Name()] = true
		if strings.Count(strings.Join(cfg.args(c), " "), "--fault") != c.Kills*max(1, c.Preset.Die) {
			t.Errorf("%s: %v", c.Name(), cfg.args(c))
		}
	}
	if len(names) != len(cells) {
		t.Errorf("%d names of %d cells", len(names), len(cells))
	}
	if err := os.MkdirAll(cfg.cellsDir(), 0o777); err != nil {
		t.Fatal(err)
	}
	r := &Trial{Model: "cnn", Preset: Presets[len(Presets)-1].Name, Workers: 1, Kills: 1, Seed: 2, Final: 0.5}
	c := Cell{Model: "cnn", Preset: Presets[len(Presets)-1], Workers: 1, Kills: 1, Seed: 2}
	r.Args = strings.Join(cfg.args(c), " ")
	if err := cfg.save(r); err != nil {
		t.Fatal(err)
	}
	if got := cfg.load(c); got == nil || got.Final != 0.5 {
		t.Errorf("what was made before is %+v", got)
	}
	if cfg.Updates++; cfg.load(c) != nil {
		t.Error("a result of other settings is taken")
	}
}

func TestFailurePageHasEveryPreset(t *testing.T) {
	runs := []Trial{line("stateless/async", 2, 1, 0.2, 0.05), line("gold/async", 2, 1, 0.2, 0.05)}
	for i := range runs {
		runs[i].Deaths = []Death{{Seconds: 2, Before: 0.3, After: 0.2, Gap: 1}, {Seconds: 6, Before: 0.4, After: record.Unknown(), Gap: record.Unknown()}}
	}
	rows, dir := Rows(runs), t.TempDir()
	if _, err := Write(dir, page.Experiment{Command: "kintsugi x", Time: time.Unix(0, 0)}, &Config{}, rows, Tables(rows)); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || !bytes.Contains(page, []byte("gold/async")) || bytes.Contains(page, []byte("NaN")) {
		t.Errorf("%v, %d bytes", err, len(page))
	}
}
