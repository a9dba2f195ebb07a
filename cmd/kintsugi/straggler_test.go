package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// fates counts what became of the gradients of a worker, according to a run's record.
func fates(r *record.Run, slot uint32) (n [3]int) {
	for _, s := range r.Steps {
		for _, t := range s.Times {
			if t.Slot == slot {
				n[t.Fate]++
			}
		}
	}
	return n
}

// A worker that takes a thousand times as long as others is interrupted in each step. If it had to
// finish, it would end one gradient while the others make all steps. In the middle of the run all
// workers die and come back.
func TestDynamicQuotasInterruptASlowWorkerAndOutliveAll(t *testing.T) {
	notUnderRace(t)
	dir := newDir(t)
	const steps = 240
	must(t, quadratic(steps, "--model", "qp:dimension=20000,noise=0.1", "--workers", "3", "--consistency", "dbw", "--codec", "topk:0.1", "--out", dir,
		"--fault", "slow worker/2 x1000 from step 5",
		"--fault", "kill worker/0 at step 60", "--fault", "kill worker/1 at step 60", "--fault", "kill worker/2 at step 60")...)
	r := readRun(t, dir)
	if r.Summary.Steps != steps || len(r.Summary.Failures) != 3 || len(r.Summary.Restores) != 0 {
		t.Errorf("%d steps, failures %+v, restores %+v; want %d, three, none", r.Summary.Steps, r.Summary.Failures, r.Summary.Restores, steps)
	}
	for _, f := range r.Summary.Failures {
		if !f.RecoverySeconds.Known() {
			t.Errorf("the run has not recovered from the death of %s", f.Part)
		}
	}
	usual := usualCompute(r, 0)
	spent, whole := 0.0, fates(r, 2)
	for _, s := range r.Steps {
		for _, x := range s.Times {
			if x.Slot == 2 && x.Fate == kintsugi.GivenUp {
				spent += x.Compute.Seconds()
			}
		}
	}
	if mean := spent / float64(max(1, whole[kintsugi.GivenUp])); whole[kintsugi.GivenUp] < steps/3 || mean > 250*usual {
		t.Errorf("of the slow worker's gradients %d were in time, %d late and %d given up, after %.3g s on average; want at least %d given up, long before %.3g s",
			whole[0], whole[1], whole[2], mean, steps/3, 1000*usual)
	}
	reasons := 0
	for _, s := range r.Steps {
		if s.Quota < 1 || s.Quota > s.Workers {
			t.Errorf("step %d of %d workers has a quota of %d", s.Step, s.Workers, s.Quota)
		}
		if s.Reason != "" {
			reasons++
		}
	}
	if reasons < 3 {
		t.Errorf("%d steps say why they waited for as many as they did", reasons)
	}
	page, err := os.ReadFile(filepath.Join(dir, record.ReportFile))
	if err != nil || !strings.Contains(string(page), "gradients a step waits for") || !strings.Contains(string(page), " of 3: ") {
		t.Errorf("the report does not show the quota with its reasons (%v)", err)
	}
}

// usualCompute returns the median of the seconds that a worker took to compute its finished
// gradients.
func usualCompute(r *record.Run, slot uint32) float64 {
	var took []float64
	for _, s := range r.Steps {
		for _, x := range s.Times {
			if x.Slot == slot && x.Fate != kintsugi.GivenUp {
				took = append(took, x.Compute.Seconds())
			}
		}
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// A worker that waits, or pulls, finishes its present gradient and goes on with the newest
// parameters. Its gradients are late, and it skips the versions in between.
func TestASlowWorkerThatIsNotInterruptedFinishesLate(t *testing.T) {
	onlyLong(t)
	for _, busy := range []string{"wait", "pull"} {
		dir := newDir(t)
		must(t, quadratic(600, "--model", "qp:dimension=20000,noise=0.1", "--workers", "3", "--consistency", "backup:1,"+busy, "--out", dir,
			"--fault", "slow worker/2 x150 from step 1")...)
		r := readRun(t, dir)
		slow, quick := fates(r, 2), fates(r, 0)
		if slow[kintsugi.GivenUp] > 0 || slow[kintsugi.Late] == 0 || 2*(slow[0]+slow[1]) > quick[0]+quick[1] {
			t.Errorf("%s: in time, late and given up: %v of the slow worker, %v of another", busy, slow, quick)
		}
	}
}

// A single worker is waited for. An interrupt, or another life of it, does not change that.
func TestDynamicQuotasWithOneWorkerCanBeInterrupted(t *testing.T) {
	notUnderRace(t)
	dir := newDir(t)
	p := start(t, quadratic(400, "--gradient-time", "5ms", "--workers", "1", "--consistency", "dbw", "--checkpoint-every", "20", "--out", dir)...)
	p.reaches(dir, 60)
	p.signal(syscall.SIGINT)
	if r := p.wait(); r.status != exitInterrupted {
		t.Fatalf("exit status %d:\n%s", r.status, r.stderr)
	}
	noOrphans(t, dir)
	must(t, "train", "--resume", dir)
	r := readRun(t, dir)
	if r.Summary.Steps != 400 {
		t.Errorf("the run ended with step %d of 400", r.Summary.Steps)
	}
	for _, s := range r.Steps {
		if s.Quota != 1 || len(s.Counted) != 1 {
			t.Fatalf("step %d waited for %d and counted %v", s.Step, s.Quota, s.Counted)
		}
	}
}

// A gradient that is not finite ends a run whose quota is chosen by a controller, as it ends
// others.
func TestDynamicQuotasDoNotHideAGradientThatIsNotFinite(t *testing.T) {
	notUnderRace(t)
	dir := newDir(t)
	r := kin(t, quadratic(300, "--model", "qp:dimension=100", "--learning-rate", "1e5", "--workers", "3", "--consistency", "dbw", "--out", dir)...)
	if r.status != exitFailed || !strings.Contains(r.stderr, "not finite: gradient of worker/") {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
	noOrphans(t, dir)
}
