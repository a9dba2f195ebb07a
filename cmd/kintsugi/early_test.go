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

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/export"
)

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
