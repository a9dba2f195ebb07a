package main

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// A worker alone, whose parameters servers take as they are, makes the steps of a run without local
// steps: of the same batches, with the same rates, clipping and decay. Only rounding differs, in
// the way there and back.
func TestLocalStepsOfOneWorkerAreStepsOfARun(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	train := func(more ...string) []float32 {
		dir := newDir(t)
		must(t, append([]string{"train", "--model", "mlr", "--data", "digits", "--workers", "1", "--servers", "2", "--optimizer", "sgd", "--learning-rate", "0.25", "--eval-every", "0",
			"--weight-decay", "0.125", "--weight-decay-for", "matrices", "--clip-norm", "0.5", "--rate", "*/b=4", "--out", dir}, more...)...)
		_, params := lastParams(t, dir)
		return params
	}
	apart := func(a, b []float32) (most float64) {
		for i := range a {
			most = max(most, math.Abs(float64(a[i])-float64(b[i])))
		}
		return most
	}
	whole := train("--steps", "96", "--warmup", "16", "--decay", "linear")
	if d := apart(train("--steps", "24", "--local-steps", "4", "--warmup", "4", "--decay", "linear"), whole); d > 1e-6 {
		t.Errorf("a parameter is %g off", d)
	}
	if d := apart(train("--steps", "24", "--local-steps", "4", "--warmup", "4", "--decay", "linear", "--clip-norm", "0"), whole); d < 1e-3 {
		t.Errorf("a parameter is %g off at most, without clipping: nothing is shown", d)
	}
}

// A gradient of local steps is computed again to the same bits, by a worker that was killed and for
// servers that were. Servers keep the momentum of the mean; with int8 and bf16 they get it rounded.
func TestLocalStepsGoThroughFailures(t *testing.T) {
	t.Parallel()
	train := func(more ...string) string {
		dir := newDir(t)
		must(t, quadratic(60, append([]string{"--optimizer", "adam", "--learning-rate", "0.01", "--local-steps", "5", "--outer", "nesterov:0.7,0.5", "--recovery", "chain", "--out", dir}, more...)...)...)
		return dir
	}
	calm := train()
	if r := readRun(t, calm); r.Header.LocalSteps != 5 || r.Summary.Steps != 60 || !(float64(r.Steps[59].Loss) < float64(r.Steps[0].Loss)/4) {
		t.Errorf("%d local steps, %d steps, loss %v to %v", r.Header.LocalSteps, r.Summary.Steps, r.Steps[0].Loss, r.Steps[59].Loss)
	}
	sameBits(t, train("--fault", "kill server/0 at step 15"), calm)
	sameBits(t, train("--recovery", "checkpoint", "--checkpoint-every", "10", "--fault", "kill server/1 at step 35"), calm)
	onlyLong(t)
	sameBits(t, train("--workers", "1", "--fault", "kill worker/0 at step 30"), train("--workers", "1")) // with two, steps would go on without it
	for _, codec := range []string{"int8", "bf16-nofeedback"} {
		sameBits(t, train("--codec", codec, "--fault", "kill server/0 at step 15"), train("--codec", codec))
	}
}

// A program needs to know nothing of local steps.
func TestAProgramTakesLocalSteps(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	train := func(more ...string) (string, []record.Step) {
		dir := newDir(t)
		must(t, slices.Concat([]string{"train", "--workers", "2", "--out", dir}, more, ownProgram)...)
		return dir, readRun(t, dir).Steps
	}
	calm, steps := train("--local-steps", "4")
	_, plain := train()
	if len(plain) != 4*len(steps) || steps[0].Examples != 4*plain[0].Examples {
		t.Errorf("%d steps of %d examples, and %d of %d without local steps", len(steps), steps[0].Examples, len(plain), plain[0].Examples)
	}
	struck, _ := train("--local-steps", "4", "--fault", "kill server/0 at step 10")
	sameBits(t, struck, calm)
}

// A program may take local steps by itself: those that its worker would take, with the same rates,
// decay and clipping, and of the same batches.
func TestAProgramMayTakeItsLocalStepsByItself(t *testing.T) {
	t.Parallel()
	train := func(words []string, more ...string) string {
		dir := newDir(t)
		must(t, slices.Concat([]string{"train", "--workers", "2", "--steps", "24", "--local-steps", "4", "--optimizer", "momentum", "--momentum", "0.75", "--warmup", "5", "--decay", "linear",
			"--weight-decay", "0.125", "--weight-decay-for", "matrices", "--clip-norm", "900", "--rate", "y=0.5", "--out", dir}, more, ownProgram, words)...)
		return dir
	}
	by := train([]string{"takes"}, "--fault", "kill server/0 at step 10")
	sameBits(t, by, train(nil))
	_, clipped := lastParams(t, by)
	if _, free := lastParams(t, train([]string{"takes"}, "--clip-norm", "0")); slices.Equal(clipped, free) {
		t.Error("no gradient was clipped: nothing is shown of it")
	}
	if r := readRun(t, by); r.Steps[0].Examples != 40 || !(float64(r.Steps[23].Loss) < float64(r.Steps[0].Loss)) {
		t.Errorf("a step has %d examples, want 40; the loss went from %v to %v", r.Steps[0].Examples, r.Steps[0].Loss, r.Steps[23].Loss)
	}
}

// A run may go on with other local steps if servers keep the same state.
func TestLocalStepsMayChangeWhenARunIsResumed(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	dir := newDir(t)
	must(t, quadratic(20, "--optimizer", "sgd", "--out", dir)...)
	must(t, "train", "--resume", dir, "--steps", "30", "--local-steps", "4")
	if r := readRun(t, dir); r.Summary.Steps != 30 || r.Steps[19].Examples*4 != r.Steps[20].Examples {
		t.Errorf("%d steps, of %d and then %d examples", r.Summary.Steps, r.Steps[19].Examples, r.Steps[20].Examples)
	}
	r := kin(t, "train", "--resume", dir, "--steps", "40", "--outer", "nesterov")
	if r.status != exitUsage || !strings.Contains(r.stderr, "holds the state of sgd on the servers, not of nesterov") {
		t.Errorf("status %d: %s", r.status, r.stderr)
	}
}
