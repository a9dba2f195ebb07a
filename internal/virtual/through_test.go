package virtual

import (
	"math"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// lossesThrough returns the losses of a run of four workers through an outage in which half of the
// parameters are lost: before the outage, of the restored parameters, and after the given pushes of
// each worker.
func lossesThrough(t *testing.T, workers int, o Through, pushes ...kintsugi.Step) (before, back float64, after []float64) {
	t.Helper()
	cfg := training(t, "async", workers, 0)
	cfg.Problem, cfg.Steps = NewNoisy(16, 0.02), pushes[len(pushes)-1]*kintsugi.Step(workers)
	cfg.Each = func(e kintsugi.StepEvent, params []float32) bool {
		for _, k := range pushes {
			if e.Step == k*kintsugi.Step(workers) {
				after = append(after, cfg.Problem.Loss(params))
			}
		}
		return true
	}
	before, back, _, err := o.Train(cfg)
	if err != nil || len(after) != len(pushes) {
		t.Fatalf("%d losses, %v", len(after), err)
	}
	return before, back, after
}

// What workers have learnt alone brings back what was lost, if their pushes count as the ends of
// their paths: after one push of each worker the loss is below that before the outage. If they
// count in any other way, or not at all, it is not.
func TestPathsBringBackWhatWasLost(t *testing.T) {
	race.Skip(t)
	o := Through{Step: 40, Alone: 50, Lost: 0.5, Age: 32}
	for _, o.Way = range PathWays() {
		before, back, after := lossesThrough(t, 4, o, 1)
		t.Logf("%v: %.4f, comes back as %.4f, then %.4f", o.Way, before, back, after[0])
		if !(back > before) || (after[0] < before) != (o.Way == PathBack) {
			t.Errorf("%v: the loss is %v before the outage, %v when the servers are back, %v when paths count", o.Way, before, back, after[0])
		}
	}
}

// With one worker nothing is lost: its path leads to the same parameters as without the loss.
func TestOneWorkerHasAllThatWasLost(t *testing.T) {
	o := Through{Step: 40, Alone: 50, Age: 32, Way: PathBack}
	_, _, want := lossesThrough(t, 1, o, 1)
	o.Lost = 0.5
	_, _, got := lossesThrough(t, 1, o, 1)
	if math.Abs(got[0]-want[0]) > 1e-5*want[0] { // the path is divided by the rate and multiplied again
		t.Errorf("the loss is %v, want %v as where nothing was lost", got[0], want[0])
	}
}
