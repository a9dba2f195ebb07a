package main

import (
	"strings"
	"testing"
)

// Two deaths meet in a run with chains, and every shard has a replica left. No step is taken back,
// and unless a worker is among the dead, the run ends with the bits of an undisturbed one.
// gold_test.go has deaths that take all replicas of a shard.
func TestDeathsThatMeetInChainsTakeNoStepBack(t *testing.T) {
	onlyLong(t)
	notUnderRace(t)
	t.Parallel()
	const steps = 400
	want := newDir(t)
	must(t, quadratic(steps, "--recovery", "checkpoint", "--out", want)...)
	for name, c := range map[string]struct {
		replicas string
		faults   []string
	}{
		"head and tail of three":            {"3", []string{"kill server/0 at step 100", "kill server/2 at step 100"}},
		"a head and a counted worker":       {"2", []string{"kill server/0 at step 100", "kill worker/1 at step 100"}},
		"a server that catches up":          {"2", []string{"kill server/1 at step 50", "kill server/1 when joining"}},
		"as a checkpoint gets its name":     {"2", []string{"kill server/0 when naming 2"}},
		"a head, and the one after in time": {"3", []string{"kill server/0 when committing 100", "kill server/1 at step 100"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			args := quadratic(steps, "--recovery", "chain", "--servers", "3", "--replicas", c.replicas, "--checkpoint-every", "20",
				"--gradient-time", "2ms", "--out", dir) // slow enough for a killed server to be back before the end
			for _, f := range c.faults {
				args = append(args, "--fault", f)
			}
			must(t, args...)
			noOrphans(t, dir)
			s := readRun(t, dir).Summary
			if s.Steps != steps || s.ReworkSteps != 0 || len(s.Restores) > 0 || len(s.Failures) < len(c.faults) {
				t.Errorf("%d steps, %d of them twice, restores %+v, failures %+v", s.Steps, s.ReworkSteps, s.Restores, s.Failures)
			}
			must(t, "checkpoint", "verify", dir)
			if !strings.Contains(name, "worker") { // a worker's next life computes other gradients than an undisturbed run counts
				sameBits(t, dir, want)
			}
		})
	}
}
