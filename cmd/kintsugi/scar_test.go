package main

import (
	"errors"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/scar"
)

func TestPartialRecoveryIsSetByAFractionAndAPeriod(t *testing.T) {
	for text, want := range map[string]scarKnobs{
		"scar":                    {fraction: 0.125, period: 16},
		"scar:1/8":                {fraction: 0.125, period: 16},
		"scar:0.25":               {fraction: 0.25, period: 16},
		"scar,64":                 {fraction: 0.125, period: 64},
		"scar:1/2,8":              {fraction: 0.5, period: 8},
		"scar:1,1":                {fraction: 1, period: 1},
		"scar:1/3,1000":           {fraction: 1.0 / 3, period: 1000},
		"scar:1/4,random":         {fraction: 0.25, period: 16, choice: scar.Random},
		"scar,roundrobin":         {fraction: 0.125, period: 16, choice: scar.RoundRobin},
		"scar:1/4,32,threshold":   {fraction: 0.25, period: 32, choice: scar.Threshold},
		"scar:adaptive":           {fraction: 0.125, period: 16, adaptive: true},
		"scar:adaptive,threshold": {fraction: 0.125, period: 16, adaptive: true, choice: scar.Threshold},

		"scar:1/8,16,mostused":              {fraction: 0.125, period: 16, choice: scar.MostUsed},
		"scar:1/8,32,coasting":              {fraction: 0.125, period: 32, encoding: kernels.Int8, coasting: true},
		"scar:1/8,32,threshold,shadow:sign": {fraction: 0.125, period: 32, choice: scar.Threshold, encoding: kernels.Sign},
		"scar:1/8,16,coasting:int4":         {fraction: 0.125, period: 16, encoding: kernels.Int4, coasting: true},
		"scar,shadow:int4":                  {fraction: 0.125, period: 16, encoding: kernels.Int4},
		"scar,coasting:bf16":                {fraction: 0.125, period: 16, encoding: kernels.BF16, coasting: true},
		"scar:adaptive,shadow,recentlyused": {fraction: 0.125, period: 16, adaptive: true, choice: scar.RecentlyUsed, encoding: kernels.Int8},
		"scar:1/4,half":                     {fraction: 0.25, period: 16, half: true},
	} {
		if got, ok, err := parseScar(text); got != want || !ok || err != nil {
			t.Errorf("%s: %+v, %v, %v; want %+v", text, got, ok, err, want)
		}
	}
	for _, text := range []string{"scar:", "scar:0", "scar:2", "scar:1/0", "scar:-1", "scar:NaN", "scar:1/8,0", "scar:1/8,", "scar,131072", "scar:1/8,x",
		"scar:1/8,16,", "scar:1/8,16,often", "scar:1/8,16,shadow:", "scar:1/8,16,shadow:fp32", "scar:1/8,16,coasting:topk", "scar:1/8,half,coasting", "scar:shadow,half",
		"scar,random,priority", "scar,half:int8", "scar:1/8,random,16", "scar:adaptive,16", "scar:1/8,16,random,2", "scar:1/8,adaptive"} {
		if _, ok, err := parseScar(text); !ok || !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: %v, %v; want a usage error", text, ok, err)
		}
	}
	for _, text := range []string{"checkpoint", "none", "scarf", ""} {
		if _, ok, err := parseScar(text); ok || err != nil {
			t.Errorf("%s: %v, %v; it is another word", text, ok, err)
		}
	}
}

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
