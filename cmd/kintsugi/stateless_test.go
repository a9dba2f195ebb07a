package main

import "testing"

// Killed servers find their shards in memory outside the process. No step is taken back, and the
// run has the bits of an undisturbed one.
func TestServersThatAreKilledTakeNoStepBack(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	want := newDir(t)
	must(t, quadratic(200, "--out", want)...)
	for name, faults := range map[string][]string{
		"one":                  {"kill server/1 at step 60"},
		"the conductor's":      {"kill server/0 at step 60"},
		"both at once":         {"kill server/0 at step 100", "kill server/1 at step 100"},
		"again and again":      {"kill server/1 at step 60", "kill server/1 at step 61", "kill server/0 at step 62", "kill server/0 at step 90", "kill server/1 at step 120"},
		"in the middle of one": {"kill server/1 when committing 50"},
		"as it becomes known":  {"kill server/0 when publishing 50"},
		"while gradients land": {"kill server/0 when pushing 90"},
		"with the coordinator": {"kill coordinator at step 80", "kill server/1 at step 80"},
	} {
		if testing.Short() && name != "both at once" && name != "in the middle of one" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			args := quadratic(200, "--recovery", "stateless", "--out", dir)
			for _, f := range faults {
				args = append(args, "--fault", f)
			}
			must(t, args...)
			sameBits(t, dir, want)
			noOrphans(t, dir)
			run := readRun(t, dir)
			if run.Summary.ReworkSteps != 0 || len(run.Summary.Failures) == 0 {
				t.Errorf("%d steps were done again, failures %+v", run.Summary.ReworkSteps, run.Summary.Failures)
			}
		})
	}
}

// A server and a worker that are killed together do not end the run. The worker's next life
// computes other gradients, so the bits differ from those of an undisturbed run.
func TestAServerAndAWorkerKilledTogetherEndNothing(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	dir := newDir(t)
	must(t, quadratic(200, "--recovery", "stateless", "--out", dir, "--fault", "kill server/0 at step 80", "--fault", "kill worker/1 at step 80")...)
	if s := readRun(t, dir).Summary; s.Steps != 200 || s.ReworkSteps != 0 {
		t.Errorf("%d steps, %d done again", s.Steps, s.ReworkSteps)
	}
}
