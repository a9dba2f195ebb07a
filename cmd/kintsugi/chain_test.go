package main

import (
	"fmt"
	"testing"
)

// chainSteps are enough for a server that was killed to be back and to have caught up before the next one is killed.
const chainSteps = 1300

// Servers are killed one after the other, the one that the conductor runs on among them: no step is taken back, the line is
// the first one to the end, and the parameters have the bits of a run in which nothing happened.
func TestServersOfChainsAreKilledAndTheParametersAreTheSame(t *testing.T) {
	notUnderRace(t)
	for _, c := range []struct{ servers, replicas int }{{2, 2}, {3, 3}} {
		if testing.Short() && c.servers > 2 {
			continue
		}
		flags := []string{"--servers", fmt.Sprint(c.servers), "--replicas", fmt.Sprint(c.replicas), "--recovery", "chain", "--seed", "5"}
		calm, dir := newDir(t), newDir(t)
		must(t, quadratic(chainSteps, append(flags, "--recovery", "checkpoint", "--replicas", "1", "--out", calm)...)...)
		faults := []string{"--out", dir}
		for i := range 4 {
			faults = append(faults, "--fault", fmt.Sprintf("kill server/%d at step %d", i%c.servers, 100+300*i))
		}
		must(t, quadratic(chainSteps, append(flags, faults...)...)...)
		noOrphans(t, dir)
		run := readRun(t, dir)
		s := run.Summary
		if s.Steps != chainSteps || s.ReworkSteps != 0 || len(s.Restores) > 0 || len(s.Failures) != 4 {
			t.Errorf("%+v: %d steps, %d of them twice, restores %+v, failures %+v", c, s.Steps, s.ReworkSteps, s.Restores, s.Failures)
		}
		for i := 1; i < len(run.Steps); i++ {
			if run.Steps[i].Step <= run.Steps[i-1].Step { // one may be missing, of which nobody but a conductor that died could tell
				t.Errorf("%+v: after step %d the run tells of step %d", c, run.Steps[i-1].Step, run.Steps[i].Step)
			}
		}
		sameBits(t, dir, calm)
		must(t, "checkpoint", "verify", dir)
	}
}
