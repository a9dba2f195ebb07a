package main

import (
	"testing"
)

// One of four servers is killed, and then the one that the conductor runs on. No step is taken
// back, the others keep what they have, and the run ends with the loss of undisturbed runs.
func TestOnlyTheLostShardComesBack(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	scar := []string{"--servers", "4", "--recovery", "scar:1/4,8", "--seed", "3"}
	calm := newDir(t)
	must(t, quadratic(killSteps, append(scar, "--out", calm)...)...)
	if got := readRun(t, calm).Summary; got.RunningSaves == 0 || got.FailedSaves > 0 || len(got.Failures) > 0 {
		t.Errorf("%d saves for the running checkpoint, %d failed, failures %+v", got.RunningSaves, got.FailedSaves, got.Failures)
	}
	dir := newDir(t)
	must(t, quadratic(killSteps, append(scar, "--out", dir, "--fault", "kill server/2 at step 100", "--fault", "kill server/0 at step 200")...)...)
	noOrphans(t, dir)
	run := readRun(t, dir)
	s := run.Summary
	if s.Steps != killSteps || s.ReworkSteps != 0 || len(s.Restores) > 0 || len(s.Failures) != 2 {
		t.Fatalf("%d steps, %d of them twice, restores %+v, failures %+v", s.Steps, s.ReworkSteps, s.Restores, s.Failures)
	}
	for i, step := range run.Steps[1:] { // the previous conductor may tell a watcher of its line later
		if before := run.Steps[i]; step.Line < before.Line || step.Step <= before.Step { // one may be missing: its conductor died before it could report it
			t.Errorf("step %d of line %d is recorded after step %d of line %d", step.Step, step.Line, before.Step, before.Line)
		}
	}
	for _, p := range run.Partials {
		if !p.Distance.Known() || p.OldestStep > p.AdoptedStep || !p.MeanAge.Known() {
			t.Errorf("it is not known what came back: %+v", p)
		}
	}
	if len(run.Partials) != 2 {
		t.Errorf("%d shards came back, want 2", len(run.Partials))
	}
	for i, part := range []string{"server/2", "server/0"} {
		f := s.Failures[i]
		if f.Part != part || f.LostSteps > 0 || f.PartialChunks == 0 || !f.RecoverySeconds.Known() {
			t.Errorf("failure %d is %+v; want chunks of %s alone to come back", i, f, part)
		}
	}
	// How old the restored chunks are depends on the disk. They must not be those of the beginning.
	begin, want := float64(readRun(t, calm).Steps[0].Loss), float64(readRun(t, calm).Summary.FinalLoss)
	if got := float64(s.FinalLoss); !(got-want < (begin-want)/20) {
		t.Errorf("the run ends with loss %v, the calm one began with %v and ended with %v", got, begin, want)
	}
	must(t, "checkpoint", "verify", dir)
}
