package main

import (
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/choose"
)

// A run that chooses its interval of checkpoints saves its first step and its last. A server that
// dies in between goes back to the newest checkpoint.
func TestARunChoosesHowFarApartCheckpointsAre(t *testing.T) {
	notUnderRace(t)
	dir := newDir(t)
	must(t, quadratic(400, "--gradient-time", "4ms", "--recovery", "checkpoint", "--checkpoint-every", "auto", "--fault", "kill server/0 at step 250", "--out", dir)...)
	run := readRun(t, dir)
	released := make(map[kintsugi.Step]float64)
	for _, s := range run.Steps {
		released[kintsugi.Step(s.Step)] = s.Seconds // of the newest line
	}
	var saved []kintsugi.Step
	for _, c := range run.Checkpoints {
		if c.Error != "" {
			t.Fatalf("checkpoint of step %d: %s", c.Step, c.Error)
		}
		if c.Line == run.Summary.Restores[0].Line {
			saved = append(saved, kintsugi.Step(c.Step))
		}
	}
	if len(saved) < 2 || saved[len(saved)-1] != 400 || run.Checkpoints[0].Step != 1 {
		t.Fatalf("checkpoints %+v", run.Checkpoints)
	}
	for i, step := range saved[1 : len(saved)-1] {
		if gap := released[step] - released[saved[i]]; gap < 0.999*choose.Shortest {
			t.Errorf("steps %d and %d are saved, which were released %.3f s apart", saved[i], step, gap)
		}
	}
}

// Full checkpoints by time are at least the given time apart within a line, begin with the first
// step, and are what a run goes back to.
func TestCheckpointsAreTakenByTime(t *testing.T) {
	notUnderRace(t)
	const apart = 200 * time.Millisecond
	dir := newDir(t)
	must(t, quadratic(400, "--gradient-time", "4ms", "--recovery", "checkpoint", "--checkpoint-every", apart.String(), "--fault", "kill server/0 at step 250", "--out", dir)...)
	run := readRun(t, dir)
	released := make(map[[2]uint64]float64)
	for _, s := range run.Steps {
		released[[2]uint64{s.Line, s.Step}] = s.Seconds
	}
	kept, last := 0, run.Checkpoints[0]
	for i, c := range run.Checkpoints {
		if c.Error != "" {
			t.Fatalf("checkpoint of step %d: %s", c.Step, c.Error)
		}
		at := released[[2]uint64{c.Line, c.Step}]
		if i > 0 && c.Line == last.Line && c.Step < 400 {
			if gap := at - released[[2]uint64{last.Line, last.Step}]; gap < 0.999*apart.Seconds() {
				t.Errorf("steps %d and %d are saved, which were released %.3f s apart", last.Step, c.Step, gap)
			}
			kept++
		}
		last = c
	}
	s := run.Summary
	if first := run.Checkpoints[0]; first.Step != 1 || kept < 2 || last.Step != 400 || len(s.Restores) != 1 || s.Restores[0].RestoredStep == 0 {
		t.Errorf("checkpoints %+v, restores %+v", run.Checkpoints, s.Restores)
	}
}
