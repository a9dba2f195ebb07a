package main

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

func TestParametersDoNotDependOnHowTheRunIsSpread(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	data := writeImages(t, 300, 28)
	lenet := func(t *testing.T, flags ...string) string {
		t.Helper()
		dir := newDir(t)
		must(t, append([]string{
			"train", "--model", "lenet", "--data", "idx", "--data-dir", data, "--blas", "gonum", "--batch", "6", "--steps", "20",
			"--workers", "2", "--out", dir,
		}, flags...)...)
		return dir
	}
	want := lenet(t, "--servers", "1", "--threads", "1", "--kernels", "host")
	type variant struct {
		name  string
		flags []string
	}
	variants := []variant{
		{"two servers", []string{"--servers", "2"}},
		{"a server killed", []string{"--servers", "2", "--checkpoint-every", "1", "--fault", "kill server/1 at step 8"}},
	}
	if !testing.Short() {
		variants = append(variants,
			variant{"three servers", []string{"--servers", "3"}},
			variant{"two threads", []string{"--servers", "1", "--threads", "2"}},
			variant{"two threads of an engine", []string{"--blas-threads", "2"}},
			variant{"a conductor killed", []string{"--servers", "3", "--checkpoint-every", "1", "--fault", "kill server/0 at step 12"}},
		)
		for _, d := range kernels.Devices() {
			variants = append(variants, variant{"kernels " + d.Name(), []string{"--servers", "2", "--threads", "2", "--kernels", d.Name()}})
		}
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) { sameBits(t, lenet(t, v.flags...), want) })
	}
}

func TestARerunEndsWithTheSameParameters(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	dir, again := newDir(t), newDir(t)
	must(t, quadratic(100, "--seed", "7", "--learning-rate", "0.3", "--optimizer", "momentum", "--momentum", "0.5", "--out", dir)...)
	must(t, "rerun", dir, "--out", again)
	sameBits(t, again, dir)
	if a, b := readRun(t, again), readRun(t, dir); string(a.Config) != string(b.Config) {
		t.Errorf("the settings are\n%s; want\n%s", a.Config, b.Config)
	}
}

func TestAPauseLosesNothing(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir, want := newDir(t), newDir(t)
	must(t, quadratic(200, "--out", want)...)
	must(t, quadratic(200, "--out", dir, "--fault", "pause server/1 at step 50 for 1s")...)
	r := readRun(t, dir)
	if len(r.Views) != 1 || r.Summary.ReworkSteps != 0 || r.Summary.WallSeconds < 1 {
		t.Errorf("%d views, %d steps done again, %.2f s; want 1, 0 and more than a second", len(r.Views), r.Summary.ReworkSteps, r.Summary.WallSeconds)
	}
	sameBits(t, dir, want)
}

func TestASlowWorkerMakesStepsSlowerAndNothingElse(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	dir, want := newDir(t), newDir(t)
	flags := func(dir string) []string {
		return append(quadratic(60, "--out", dir), "--model", "qp:dimension=100000,noise=0.1")
	}
	must(t, flags(want)...)
	must(t, append(flags(dir), "--fault", "slow worker/1 x40 from step 30 to step 45")...)
	sameBits(t, dir, want)
	r := readRun(t, dir)
	var before, in []float64 // seconds that each step waited for its gradients
	for _, s := range r.Steps {
		switch {
		case s.Step > 2 && s.Step <= 30:
			before = append(before, s.WaitSeconds)
		case s.Step > 35 && s.Step <= 45: // the worker learns of the fault shortly after its step
			in = append(in, s.WaitSeconds)
		}
	}
	slices.Sort(before)
	slices.Sort(in)
	// Medians are compared, because other work on the machine makes single steps wait as well.
	if usual, slow := before[len(before)/2], in[len(in)/2]; slow < 2*usual {
		t.Errorf("a step waits %.2g s, and %.2g s while worker/1 is slow; want at least twice as long", usual, slow)
	}
	if len(r.Faults) != 2 || r.Faults[0].Action != "slow" || r.Faults[1].Action != "unslow" {
		t.Errorf("faults %+v; want slow and unslow", r.Faults)
	}
}
