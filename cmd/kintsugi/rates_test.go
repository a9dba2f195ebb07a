package main

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/measure"
)

// Rates on the command line reach every process of a run, and its next lives: a run whose server is
// killed ends with the bits of a calm one, which are not those of a run with one rate.
func TestRatesReachEveryProcess(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	train := func(more ...string) string {
		dir := newDir(t)
		must(t, append([]string{"train", "--model", "mlr", "--data", "digits", "--workers", "2", "--servers", "2", "--steps", "40", "--eval-every", "0", "--out", dir}, more...)...)
		return dir
	}
	rates := []string{"--rate", "*w=0.5", "--rate", "*=3"}
	calm := train(rates...)
	sameBits(t, train(append(rates, "--fault", "kill server/0 at step 15")...), calm)
	_, uneven := lastParams(t, calm)
	if _, even := lastParams(t, train()); slices.Equal(uneven, even) {
		t.Error("rates make no difference")
	}
}

// The loop that bench train compares a cluster with does the same work: it ends with the bits of
// train, with rates and clipping, through a killed server. So does the loop over a program that
// gives them, and lets only matrices decay.
func TestTheLoopOfBenchTrainMakesTheStepsOfTrain(t *testing.T) {
	onlyLong(t)
	t.Setenv("OMP_NUM_THREADS", "1") // else it would be set for the tests that follow
	const steps = 30
	for name, c := range map[string]struct {
		b      measure.BenchTrain
		differ []string // flags of train with which it makes other steps
	}{
		"a model":   {measure.BenchTrain{Models: []string{"mlp"}, Rates: []string{"fc3/*=4", "*/b=0.5"}, ClipNorm: 0.5}, []string{"--clip-norm", "0"}},
		"a program": {measure.BenchTrain{Models: []string{"a program"}, Program: slices.Concat(ownProgram[1:], []string{"recipe", "rated"}), ClipNorm: job.Suggested}, []string{"--rate", "*=1"}},
	} {
		b := c.b
		b.Workers, b.Servers, b.Steps, b.Rounds, b.BLAS, b.Wire, b.Device, b.ServerDevice = 3, 2, steps, 1, "auto", "auto", "auto", "cpu"
		cfg, end, err := b.Config(t.Context(), b.Models[0])
		if err != nil {
			t.Fatal(name, err)
		}
		want, perSecond, err := cfg.Loop(t.Context(), steps)
		end()
		if err != nil || !(perSecond > 0) {
			t.Fatalf("%s: %v steps/s, %v", name, perSecond, err)
		}
		train := func(more ...string) []float32 {
			dir := newDir(t)
			args := slices.Concat([]string{"train", "--model", cfg.Model, "--workers", "3", "--servers", "2", "--steps", fmt.Sprint(steps), "--eval-every", "0", "--out", dir}, b.Flags(), more)
			must(t, args...)
			_, params := lastParams(t, dir)
			return params
		}
		same := func(got []float32) bool {
			return slices.EqualFunc(got, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
		}
		if !same(train("--fault", "kill server/0 at step 12")) {
			t.Errorf("%s: the loop makes other steps than train", name)
		}
		if same(train(c.differ...)) {
			t.Errorf("%s: %q makes no difference: nothing is shown", name, c.differ)
		}
	}
}
