package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/export"
)

// What ends a run is a function of its evaluations.
func TestEvaluationsEndARun(t *testing.T) {
	type evaluation struct {
		step           kintsugi.Step
		loss, accuracy float64
	}
	nan := math.NaN()
	falling := []evaluation{{100, 3, 0.1}, {200, 2, 0.5}, {300, 1, 0.9}}
	for _, c := range []struct {
		name     string
		until    string
		patience int
		list     []evaluation
		ends     kintsugi.Step // the evaluation that ends the run; 0: none does
	}{
		{"no target", notUntil, 0, falling, 0},
		{"an accuracy that is just reached", "accuracy=0.5", 0, falling, 200},
		{"a loss that is just reached", "loss=1", 0, falling, 300},
		{"a loss of zero", "loss=0", 0, []evaluation{{100, 0.1, 1}, {200, 0, 1}}, 200},
		{"a loss below zero", "loss=-2", 0, []evaluation{{100, -1, nan}, {200, -2.5, nan}}, 200},
		{"an accuracy that there is not", "accuracy=0.5", 0, []evaluation{{100, 1, nan}, {200, 0, nan}}, 0},
		{"a loss that is no number", "loss=1", 0, []evaluation{{100, nan, 1}}, 0},
		{"a loss that falls", notUntil, 1, falling, 0},
		{"a loss that rises", notUntil, 2, []evaluation{{100, 1, 0}, {200, 2, 0}, {300, 1.5, 0}}, 300},
		{"as low as the best is not lower", notUntil, 2, []evaluation{{100, 1, 0}, {200, 1, 0}, {300, 1, 0}}, 300},
		{"a better one in between", notUntil, 2, []evaluation{{100, 2, 0}, {200, 3, 0}, {300, 1, 0}, {400, 3, 0}, {500, 1, 0}}, 500},
		{"losses that are no numbers", notUntil, 2, []evaluation{{100, nan, 0}, {200, nan, 0}}, 200},
		{"the steps that a failure took back are evaluated again", notUntil, 2, []evaluation{{100, 1, 0}, {200, 2, 0}, {120, 1.5, 0}, {200, 2, 0}, {210, 2, 0}, {299, 2, 0}, {300, 2, 0}}, 300},
		{"and one of them is better", notUntil, 1, []evaluation{{200, 2, 0}, {120, 1.5, 0}, {200, 2, 0}, {299, 2, 0}, {300, 2, 0}}, 300},
		{"versions that come late", notUntil, 2, []evaluation{{103, 1, 0}, {201, 2, 0}, {300, 2, 0}}, 300},
	} {
		until, err := parseTarget(c.until)
		if err != nil {
			t.Fatal(err)
		}
		j := judge{until: until, patience: c.patience, every: 100}
		ends := kintsugi.Step(0)
		for _, e := range c.list {
			if why := j.add(e.step, e.loss, e.accuracy); why != "" {
				ends = e.step
				break
			}
		}
		if ends != c.ends {
			t.Errorf("%s: it ends at step %d, want %d", c.name, ends, c.ends)
		}
	}
}

// The file holds the parameters of the lowest loss, whoever has written it before.
func TestTheBestParametersAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), bestFile)
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a", Shape: []int{2}}, {Name: "b", Shape: []int{1, 3}}})
	if err != nil {
		t.Fatal(err)
	}
	step := uint64(0)
	add := func(b *best, loss float64) []byte {
		t.Helper()
		step++
		params := []float32{float32(step), 1, 2, 3, 4}
		if err := b.add(layout, record.Evaluation{Line: 1, Step: step, Loss: record.Number(loss), Accuracy: record.Number(math.NaN())}, params); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		return text[len(text)-4*len(params):]
	}
	of := func(step float32) []byte { return kernels.Bytes([]float32{step, 1, 2, 3, 4}) }
	b := openBest(path)
	for i, c := range []struct {
		loss float64
		best float32 // step of the file then; 0: there is none
	}{{math.NaN(), 0}, {3, 2}, {4, 2}, {math.NaN(), 2}, {2.5, 5}, {2.5, 5}} {
		if i == 4 {
			b = openBest(path) // as a run that goes on does
			if b.was != nil || b.loss != 3 || b.step != 2 {
				t.Fatalf("the file is of step %d, loss %v: %v", b.step, b.loss, b.was)
			}
		}
		if got := add(b, c.loss); (got == nil) != (c.best == 0) || got != nil && !slices.Equal(got, of(c.best)) {
			t.Errorf("after a loss of %v the file is not of step %v", c.loss, c.best)
		}
	}
	if err := os.WriteFile(path, []byte("cut"), 0o666); err != nil {
		t.Fatal(err)
	}
	b = openBest(path)
	if b.was == nil || !slices.Equal(add(b, 9), of(7)) {
		t.Errorf("a damaged file was not replaced: %v", b.was)
	}
	b.path = filepath.Join(path, "below-a-file")
	if err := b.add(layout, record.Evaluation{Step: 8, Loss: 1}, make([]float32, 5)); err == nil || b.loss != 9 {
		t.Errorf("a file that cannot be written: %v, and the best loss is %v", err, b.loss)
	}
}

func TestStepsThatAreEvaluated(t *testing.T) {
	for _, c := range []struct {
		step, steps, every uint64
		returned, last     bool
		want               bool
	}{
		{step: 10, steps: 30, every: 10, want: true},
		{step: 11, steps: 30, every: 10},
		{step: 11, steps: 30, every: 10, returned: true, want: true},
		{step: 11, steps: 30, every: 30, returned: true}, // evaluations after failures alone would say little
		{step: 30, steps: 30, every: 10},                 // train evaluates its last checkpoint
		{step: 30, steps: 30, every: 10, last: true, want: true},
		{step: 31, steps: 31, every: 10, last: true, want: true},
		{step: 10, steps: 30, every: 0, last: true}, // a monitor, by default
		{step: 30, steps: 30, every: 0, last: true},
	} {
		if got := dueAt(c.step, c.steps, c.every, c.returned, c.last); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A run ends when its evaluations say so, with a checkpoint. One that goes on after that knows them.
func TestARunEndsEarly(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	train := func(args ...string) (*record.Run, string) {
		t.Helper()
		out := must(t, append([]string{"train"}, args...)...)
		return readRun(t, dir), out
	}
	run, out := train("--model", "mlr", "--data", "digits", "--workers", "2", "--servers", "2", "--steps", "2000", "--eval-every", "10", "--until", "loss=1", "--keep-best", "--out", dir)
	last := run.Newest.Step
	if last >= 1000 || !strings.Contains(out, "meets --until loss=1") || !strings.Contains(out, "best parameters: "+filepath.Join(dir, "best.safetensors")) {
		t.Errorf("the run has ended at step %d and says %s", last, out)
	}
	if step, _ := lastParams(t, dir); uint64(step) != last {
		t.Errorf("the newest checkpoint is of step %d, and the last step was %d", step, last)
	}
	loss, step := bestOf(t, dir)
	lowest := slices.MinFunc(run.Evaluations, func(a, b record.Evaluation) int {
		return int(math.Copysign(1, float64(a.Loss-b.Loss)))
	})
	if loss != float64(lowest.Loss) || step != lowest.Step {
		t.Errorf("the best parameters are of step %d, loss %v; want step %d, loss %v", step, loss, lowest.Step, lowest.Loss)
	}
	// With a rate that is far too large, no later evaluation is better. The first part's best counts.
	run, out = train("--resume", dir, "--until", "none", "--patience", "2", "--learning-rate", "50", "--decay", "constant")
	if want := fmt.Sprintf("no evaluation since that of step %d had a lower loss", lowest.Step); !strings.Contains(out, want) || run.Newest.Step >= 1000 {
		t.Errorf("the run has ended at step %d and says %s; want %q", run.Newest.Step, out, want)
	}
	if _, again := bestOf(t, dir); again != step {
		t.Errorf("the best parameters are of step %d now; want those of step %d", again, step)
	}
}

// A monitor ends a run on several hosts in the same way.
func TestAMonitorEndsARunEarly(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := t.TempDir()
	endpoint, file := freeAddress(t), filepath.Join(dir, "run.yaml")
	if err := os.WriteFile(file, []byte("model: mlr\ndata: digits\nworkers: 1\nservers: 1\nsteps: 5000\nuntil: loss=1\nkeep-best: true\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	start(t, "etcd", "--listen", endpoint, "--peer", "a="+freeAddress(t), "--dir", filepath.Join(dir, "etcd"))
	waitListening(t, endpoint)
	role := func(name string, more ...string) *childProcess {
		return start(t, append([]string{name, "--config", file, "--etcd", endpoint}, more...)...)
	}
	store, out := filepath.Join(dir, "store"), filepath.Join(dir, "watched")
	role("coordinator", "--store", store)
	role("server", "--index", "0", "--store", store)
	worker, monitor := role("worker", "--index", "0"), role("monitor", "--eval-every", "10", "--out", out)
	for _, p := range []*childProcess{worker, monitor} {
		if r := p.wait(); r.status != exitDone || p == monitor && (!strings.Contains(r.stdout, "meets --until loss=1") || !strings.Contains(r.stdout, "best.safetensors")) {
			t.Errorf("%v ended with status %d: %s%s", p.cmd.Args[1], r.status, r.stdout, r.stderr)
		}
	}
	if loss, _ := bestOf(t, out); !(loss <= 1) {
		t.Errorf("the best loss is %v", loss)
	}
	run := readRun(t, out) // the servers are still there, so the last version, some steps after the best, could be had
	if n := len(run.Evaluations); n < 2 || run.Evaluations[n-1].Step != run.Newest.Step {
		t.Errorf("the last of %d steps is not evaluated: %+v", run.Newest.Step, run.Evaluations)
	}
}

// bestOf returns what the file of the best parameters in a run's folder says of them.
func bestOf(t *testing.T, dir string) (loss float64, step uint64) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "best.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	about, err := export.Metadata(f)
	if err == nil {
		loss, err = strconv.ParseFloat(about["test_loss"], 64)
	}
	if err == nil {
		step, err = strconv.ParseUint(about["step"], 10, 64)
	}
	if err != nil {
		t.Fatal(err)
	}
	return loss, step
}
