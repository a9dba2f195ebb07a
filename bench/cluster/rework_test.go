package cluster

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// runOf returns a run whose loss after each number of steps a function gives, evaluated every so
// many steps.
func runOf(steps, every int, loss func(step float64) float64) *record.Run {
	run := &record.Run{}
	for s := 0; s <= steps; s += every {
		run.Evaluations = append(run.Evaluations, record.Evaluation{Line: 1, Step: uint64(s), Loss: record.Number(loss(float64(s)))})
	}
	return run
}

// A run that is some steps behind is measured to be so, whichever of its steps were evaluated, and
// although batches have noise ten times as large as the progress of a step: both runs have the same
// batches.
func TestReworkIsHowManyStepsARunIsBehind(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	noise := make([]float64, 193)
	for i := range noise {
		noise[i] = 0.01 * rng.NormFloat64()
	}
	curve := func(s float64) float64 { return 0.2 + 2*math.Exp(-s/100) }
	behind := func(l, calm losses) (float64, error) {
		above, err := l.above(calm)
		perStep, ok := fall([]losses{calm})
		if !ok {
			t.Errorf("a loss that falls from %.3f to %.3f is not seen to fall", calm[128], calm[192])
		}
		return above / perStep, err
	}
	calm := lossesOf(runOf(192, 1, func(s float64) float64 { return curve(s) + noise[int(s)] }), 128)
	for _, lag := range []float64{-1.5, 0, 0.25, 7} {
		for _, every := range []int{1, 3} {
			run := runOf(192, every, func(s float64) float64 { return curve(s-lag) + noise[int(s)] })
			if got, err := behind(lossesOf(run, 128), calm); err != nil || math.Abs(got-lag) > 0.1*math.Abs(lag) {
				t.Errorf("a run %g steps behind is measured as %g, %v", lag, got, err)
			}
		}
	}
	some := lossesOf(runOf(192, 5, curve), 128)
	if got, err := behind(some, lossesOf(runOf(192, 4, curve), 128)); err != nil || math.Abs(got) > 0.05 {
		t.Errorf("a run that is evaluated at other steps is %g steps behind, %v", got, err)
	}
	if got, err := lossesOf(runOf(130, 1, curve), 128).above(calm); err == nil {
		t.Errorf("a run that ends too early is %g above", got)
	}
	still := lossesOf(runOf(192, 1, func(s float64) float64 { return 1 + noise[int(s)] }), 128)
	if got, ok := fall([]losses{still, still}); ok {
		t.Errorf("runs that stand still fall by %g in a step", got)
	}
}

// The fall that runs have in common is certain even if that of one of them is not, and does not
// depend on the level of each.
func TestTheFallOfAllRunsIsCertainWhereThatOfOneIsNot(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	var runs []losses
	alone := 0
	for i := range 40 {
		l := lossesOf(runOf(192, 4, func(s float64) float64 { return float64(i) - 0.001*s + 0.03*rng.NormFloat64() }), 128)
		if _, ok := fall([]losses{l}); ok {
			alone++
		}
		runs = append(runs, l)
	}
	if got, ok := fall(runs); !ok || math.Abs(got-0.001) > 0.0002 || alone > 30 {
		t.Errorf("40 runs fall by %g in a step, certain: %t, of them alone: %d", got, ok, alone)
	}
}

// Of intervals of 95 %, 95 in 100 contain the mean, however few values there are.
func TestStudentIntervalsHoldTheMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	held, trials := 0, 4000
	for range trials {
		x := make([]float64, 5)
		for i := range x {
			x[i] = 3 + 2*rng.NormFloat64()
		}
		if _, low, high := studentInterval(x); low < 3 && 3 < high {
			held++
		}
	}
	if share := float64(held) / float64(trials); math.Abs(share-0.95) > 0.015 { // four standard errors
		t.Errorf("%.3f of the intervals hold the mean", share)
	}
	if mean, low, _ := studentInterval([]float64{2}); mean != 2 || low.Known() {
		t.Errorf("one value: %v, %v", mean, low)
	}
	if mean, _, _ := studentInterval(nil); mean.Known() {
		t.Errorf("no values: %v", mean)
	}
}

func TestServersAreKilledInTurnInTheSameStep(t *testing.T) {
	cfg := ReworkConfig{Period: 16, Servers: 2}
	for seed, want := range []string{"kill server/0 when committing 105", "kill server/1 when committing 105", "kill server/0 when committing 105"} {
		if got := cfg.fault("checkpoint", seed); got != want {
			t.Errorf("seed %d: %s, want %s", seed, got, want)
		}
	}
}
