package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// goldRun trains with faults and returns the record of the run.
func goldRun(t *testing.T, dir string, flags []string, faults ...string) *record.Run {
	t.Helper()
	args := append([]string{"--recovery", "gold", "--out", dir}, flags...)
	for _, f := range faults {
		args = append(args, "--fault", f)
	}
	must(t, quadratic(200, args...)...)
	noOrphans(t, dir)
	run := readRun(t, dir)
	if run.Summary.Steps != 200 || len(run.Summary.Failures) < len(faults) {
		t.Errorf("%d steps, failures %+v", run.Summary.Steps, run.Summary.Failures)
	}
	must(t, "checkpoint", "verify", dir)
	return run
}

// Two or three processes die at once, and their hosts live on. No step is taken back, and the run
// has the bits of an undisturbed one.
func TestGoldTakesNothingBackWhereMemoryIsLeft(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	want := newDir(t)
	must(t, quadratic(200, "--out", want)...)
	for name, c := range map[string]struct{ flags, faults []string }{
		"all servers at once":                    {nil, []string{"kill server/0 at step 80", "kill server/1 at step 80"}},
		"a server and the coordinator":           {nil, []string{"kill coordinator at step 60", "kill server/0 at step 60"}},
		"as a checkpoint gets its name":          {[]string{"--checkpoint-every", "20"}, []string{"kill server/0 when naming 1"}},
		"one server alone":                       {[]string{"--servers", "1", "--gradient-time", "5ms"}, []string{"kill server/0 at step 50", "kill server/0 at step 120"}}, // or both faults kill the same life
		"a server of chains and the coordinator": {[]string{"--servers", "3", "--replicas", "2"}, []string{"kill coordinator at step 60", "kill server/1 at step 60"}},
	} {
		if testing.Short() && name != "all servers at once" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			run := goldRun(t, dir, c.flags, c.faults...)
			if s := run.Summary; s.ReworkSteps != 0 || len(s.Restores) > 0 {
				t.Errorf("%d steps were done again, restores %+v", s.ReworkSteps, s.Restores)
			}
			if !strings.Contains(name, "one server") {
				sameBits(t, dir, want)
			}
			if strings.Contains(name, "the coordinator") { // its next life does not wait for the lease of the one before
				if log, err := os.ReadFile(filepath.Join(dir, "logs", "coordinator-0.log")); err != nil || !strings.Contains(string(log), "leads no more") {
					t.Errorf("%v: the coordinator says\n%s", err, log)
				}
			}
		})
	}
}

// All replicas of one shard are gone, because a host died or all servers that had it. Only this
// shard is restored, as it was saved last.
func TestGoldBringsBackAloneWhatNobodyHas(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	for name, c := range map[string]struct{ flags, faults []string }{
		"a host":                      {nil, []string{"lose server/1 at step 100"}},
		"head and tail together":      {[]string{"--servers", "3", "--replicas", "2"}, []string{"kill server/0 at step 100", "kill server/1 at step 100"}},
		"a host and another's server": {nil, []string{"lose server/0 at step 100", "kill server/1 at step 100"}},
	} {
		if testing.Short() && name != "head and tail together" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			run := goldRun(t, newDir(t), c.flags, c.faults...)
			if s := run.Summary; s.ReworkSteps != 0 || len(s.Restores) > 0 {
				t.Errorf("%d steps were done again, restores %+v", s.ReworkSteps, s.Restores)
			}
			back := make(map[string]int)
			for _, f := range run.Summary.Failures {
				if f.PartialChunks > 0 {
					back[f.Part]++
				}
			}
			if len(back) != 1 {
				t.Errorf("the shards of %v came back alone, want those of one server; failures %+v", back, run.Summary.Failures)
			}
		})
	}
}

// Every host dies at once. If the coordinator sees one death after the other, each shard is
// restored as it was saved last. If it sees them together, all shards go back to the newest full
// checkpoint. Either way the run goes on from what was saved, and ends.
func TestGoldGoesOnFromWhatWasSavedWhereNothingIsLeft(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	run := goldRun(t, newDir(t), []string{"--checkpoint-every", "20"}, "lose server/0 at step 110", "lose server/1 at step 110")
	partial := 0
	for _, f := range run.Summary.Failures {
		if f.PartialChunks > 0 {
			partial++
		}
	}
	if s := run.Summary; partial < 2 && len(s.Restores) == 0 {
		t.Errorf("nothing came back: restores %+v, failures %+v", s.Restores, s.Failures)
	}
}
