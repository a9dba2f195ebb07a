package main

import (
	"testing"
)

// Servers of a relaxed chain are killed: first the one that the conductor runs on, then the one
// that heads two shards by then. The shards that they headed go back fewer steps than lie between
// two copies, and the other shards stay as they are. No checkpoint is restored, and the run reports
// what was lost.
func TestAHeadOfCopiesIsKilledAndFewStepsAreLost(t *testing.T) {
	notUnderRace(t)
	onlyLong(t)
	const every = 20
	dir := newDir(t)
	must(t, quadratic(600, "--servers", "3", "--recovery", "chain:paper,20", "--seed", "5", "--out", dir,
		"--fault", "kill server/0 at step 110", "--fault", "kill server/1 at step 400")...)
	noOrphans(t, dir)
	run := readRun(t, dir)
	s := run.Summary
	if s.Steps != 600 || len(s.Restores) > 0 || s.ReworkSteps > 0 || len(s.Failures) != 2 {
		t.Fatalf("%d steps, restores %+v, %d steps done again, failures %+v", s.Steps, s.Restores, s.ReworkSteps, s.Failures)
	}
	for i, f := range s.Failures {
		if f.PartialChunks == 0 || !(f.PartialAge >= 0 && f.PartialAge < every) || f.LostSteps != 0 || !f.RecoverySeconds.Known() {
			t.Errorf("copies every %d steps, and failure %+v", every, f)
		}
		if i > 0 && f.PartialChunks <= s.Failures[0].PartialChunks {
			t.Errorf("it headed two shards: %+v after %+v", f, s.Failures[0])
		}
	}
	for _, p := range run.Partials {
		if p.AdoptedStep-p.OldestStep >= every {
			t.Errorf("copies every %d steps, and %+v", every, p)
		}
	}
	if last := run.Views[len(run.Views)-1]; last.Line != 3 || last.Keeps != 1 || last.Restore != "" {
		t.Errorf("the last view is %+v", last)
	}
	must(t, "checkpoint", "verify", dir)
}
