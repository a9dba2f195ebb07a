package main

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// rising notices a training that loses what it had won. Nothing fails then: the loss is finite, and
// a run may stay there for hours.
type rising struct {
	last  kintsugi.Step
	n     int     // losses so far
	mean  float64 // a moving average of them
	first float64 // mean, where the run was warm
	best  float64 // the smallest mean since
	at    kintsugi.Step
	lost  int // steps in a row in which more than half of what was won is lost
	told  bool
}

const (
	risingWarm = 20  // losses after which their mean says something
	risingLast = 200 // steps that it must last: a shard that came back older makes up for it in fewer
)

// step notes the loss of a step. It reports once whether more than half of what the run had won is
// lost, and has been for some time.
func (r *rising) step(step kintsugi.Step, loss float64) (tell bool) {
	if step <= r.last { // a restore took steps back: that they have to be won again is no fault of the rate
		*r = rising{told: r.told}
	}
	r.last = step
	if r.n++; math.IsNaN(loss) || math.IsInf(loss, 0) {
		return false // whoever computes it says so
	}
	r.mean += max(0.02, 1/float64(r.n)) * (loss - r.mean)
	if r.n == risingWarm {
		r.first, r.best, r.at = r.mean, r.mean, step
	}
	if r.n < risingWarm {
		return false
	}
	if r.mean < r.best {
		r.best, r.at = r.mean, step
	}
	won := r.first - r.best
	if won < math.Abs(r.first)/4 || r.mean < r.best+won/2 {
		r.lost = 0
		return false
	}
	r.lost++
	tell = !r.told && r.lost >= risingLast
	r.told = r.told || tell
	return tell
}

// sayRises says that the loss has risen, from its smallest at a step.
func (w *watcher) sayRises(e kintsugi.StepEvent, at kintsugi.Step, best float64) {
	const what = "the loss has risen and stays: more than half of what was won is lost"
	w.log.Warn(what, "step", e.Step, "loss", e.Loss, "was", best, "at_step", at, "hint", "a smaller --learning-rate, as kintsugi tune lr finds one")
	w.rec.Record(e.Time, &record.Note{Level: "warn", Text: fmt.Sprintf("%s. At step %d it was %.3g, at step %d it is %.3g; the learning rate may be too large", what, at, best, e.Step, e.Loss)})
}
