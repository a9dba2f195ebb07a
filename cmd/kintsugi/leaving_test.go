package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// wantLeft fails unless all failures of a run were announced departures, and as many as wanted.
func wantLeft(t *testing.T, run *record.Run, want int) {
	t.Helper()
	left := 0
	for _, f := range run.Summary.Failures {
		if !f.Announced || !f.RecoverySeconds.Known() {
			t.Errorf("%+v; want an announced departure, and steps after it", f)
		}
		left++
	}
	if left != want {
		t.Errorf("%d departures; want %d", left, want)
	}
}

// Both servers have notice, one after the other, including the one that the conductor runs on. They
// hand over: no step is taken back, and the parameters have the bits of an undisturbed run.
func TestServersThatHaveNoticeTakeNoStepBack(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	calm := newDir(t)
	must(t, quadratic(320, "--seed", "5", "--out", calm)...)
	for _, recovery := range []string{"chain", "checkpoint", "scar", "stateless", "gold"} {
		if testing.Short() && (recovery == "scar" || recovery == "stateless") {
			continue
		}
		dir := newDir(t)
		must(t, quadratic(320, "--seed", "5", "--out", dir, "--recovery", recovery, "--gradient-time", "5ms", // slow enough for a busy launcher to hear of steps before the run is over
			"--fault", "notice server/0 at step 60", "--fault", "notice server/1 at step 160")...)
		noOrphans(t, dir)
		run := readRun(t, dir)
		s := run.Summary
		wantLeft(t, run, 2)
		if s.Steps != 320 || s.ReworkSteps != 0 || s.Cost.Failure.NoticeNodeSeconds <= 0 || s.Cost.Failure.OutageNodeSeconds != 0 {
			t.Errorf("%s: %d steps, %d of them twice, cost %+v", recovery, s.Steps, s.ReworkSteps, s.Cost.Failure)
		}
		if restored := len(s.Restores); recovery == "chain" && restored > 0 || recovery == "checkpoint" && restored != 2 {
			t.Errorf("%s: restores %+v", recovery, s.Restores)
		}
		sameBits(t, dir, calm)
	}
}

// A worker with notice finishes its present gradient, which is counted. No step waits for it after
// it has gone.
func TestAWorkerThatHasNoticeLeavesNothingUncounted(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	must(t, quadratic(400, "--gradient-time", "5ms", "--out", dir, "--fault", "notice worker/1 at step 100")...)
	run := readRun(t, dir)
	wantLeft(t, run, 1)
	s := run.Summary
	// When the next life has computed its first gradient, a step may be over already, so one may be
	// late.
	if s.LateGradients > 1 || s.Cost.ComputedGradients != s.CountedGradients+s.LateGradients {
		t.Errorf("%d gradients were computed, %d counted, %d late", s.Cost.ComputedGradients, s.CountedGradients, s.LateGradients)
	}
	alone, together := false, 0
	for _, step := range run.Steps {
		if step.Step > 100 && step.Workers == 1 {
			alone = true
		} else if alone && step.Workers == 2 {
			together++
		}
	}
	if !alone || together == 0 {
		t.Errorf("a step of one worker: %v, then %d of two; want both", alone, together)
	}
	noOrphans(t, dir)
}

// The coordinator steps down, and the next one leads at once: a server that dies later is replaced.
func TestACoordinatorThatHasNoticeIsFollowedByTheNext(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	dir := newDir(t)
	must(t, quadratic(400, "--out", dir, "--fault", "notice coordinator at step 50", "--fault", "kill server/1 at step 200")...)
	s := readRun(t, dir).Summary
	if len(s.Failures) != 2 || !s.Failures[0].Announced || s.Failures[1].Announced || !s.Failures[1].CaughtUpSeconds.Known() {
		t.Errorf("%+v", s.Failures)
	}
}

// A server that cannot be spared has notice while the run cannot be saved. It goes when its time is
// up, and the run goes back to the previous checkpoint.
func TestTheTimeOfANoticeIsRespected(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	dir := newDir(t)
	must(t, quadratic(300, "--out", dir, "--recovery", "checkpoint", "--checkpoint-every", "20", "--warning", "1s",
		"--fault", "pause server/1 at step 110 for 3s", "--fault", "notice server/0 at step 110")...)
	run := readRun(t, dir)
	var began, left float64
	for _, f := range run.Faults {
		if f.Action == "notice" {
			began = f.Seconds
		}
	}
	for _, l := range run.Lives {
		if l.Part == "server/0" && left == 0 {
			left = l.Seconds
		}
	}
	if took := left - began; took < 0.5 || took > 1.5 {
		t.Errorf("it left %.2f s after its notice; want it to try for about a second, and no longer", took)
	}
	if s := run.Summary; s.Steps != 300 || len(s.Restores) == 0 {
		t.Errorf("%d steps, restores %+v", s.Steps, s.Restores)
	}
}

// SIGTERM to one process of a run, whoever sends it, is a notice to that process only.
func TestSIGTERMToAProcessOfARunIsANoticeToIt(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	dir := newDir(t)
	p := start(t, quadratic(2000, "--out", dir, "--recovery", "chain")...)
	p.reaches(dir, 20)
	for pid, args := range leftOf(t, dir) {
		if strings.HasPrefix(args, "kintsugi server --index 1") {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r := p.wait(); r.status != exitDone || !strings.Contains(r.stdout, "server/1 left at step") {
		t.Errorf("status %d:\n%s", r.status, r.stdout)
	}
	wantLeft(t, readRun(t, dir), 1)
}

// The cloud takes the machine on which all processes run. That has the effect of SIGTERM to the
// launcher.
func TestANoticeOfTheCloudEndsTheRunAfterALastCheckpoint(t *testing.T) {
	t.Parallel()
	var going atomic.Bool
	cloud := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut:
			fmt.Fprint(w, "token")
		case going.Load():
			fmt.Fprintf(w, `{"action": "stop", "time": %q}`, time.Now().Add(2*time.Minute).UTC().Format(time.RFC3339))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(cloud.Close)
	dir := newDir(t)
	p := start(t, quadratic(1_000_000, "--out", dir, "--notice", "aws", "--notice-endpoint", cloud.URL)...)
	p.reaches(dir, 20)
	going.Store(true)
	if r := p.wait(); r.status != exitPreempted {
		t.Errorf("status %d:\n%s", r.status, r.stderr)
	}
	run := readRun(t, dir)
	if step, _ := lastParams(t, dir); uint64(step) != run.Summary.Steps || run.Summary.Reason != cli.ErrPreempted.Error() {
		t.Errorf("the last checkpoint is of step %d of %d; reason %q", step, run.Summary.Steps, run.Summary.Reason)
	}
	noOrphans(t, dir)
}
