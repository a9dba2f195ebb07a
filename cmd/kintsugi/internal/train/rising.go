package train

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// rising notices a training that loses its progress. Nothing fails in this case: the loss is
// finite, and a run may stay like that for hours.
type rising struct {
	last  kintsugi.Step
	n     int     // number of losses so far
	mean  float64 // their moving average
	first float64 // mean after the warm-up
	best  float64 // smallest mean since then
	at    kintsugi.Step
	lost  int // consecutive steps in which more than half of the progress is lost
	told  bool
}

const (
	risingWarm = 20  // losses after which their mean is meaningful
	risingLast = 200 // required number of such steps: after a partial restore, fewer are needed to catch up
)

// step notes the loss of a step. It returns true, once, if more than half of the run's progress has
// been lost for some time.
func (r *rising) step(step kintsugi.Step, loss float64) (tell bool) {
	if step <= r.last { // a restore took steps back: repeating them is no sign of a wrong rate
		*r = rising{told: r.told}
	}
	r.last = step
	if r.n++; math.IsNaN(loss) || math.IsInf(loss, 0) {
		return false // reported elsewhere
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

// sayRises reports that the loss has risen. at is the step with the smallest mean, best.
func (w *watcher) sayRises(e kintsugi.StepEvent, at kintsugi.Step, best float64) {
	const what = "the loss has risen and stays: more than half of what was won is lost"
	w.log.Warn(what, "step", e.Step, "loss", e.Loss, "was", best, "at_step", at, "hint", "a smaller --learning-rate, as kintsugi tune lr finds one")
	w.rec.Record(e.Time, &record.Note{Level: "warn", Text: fmt.Sprintf("%s. At step %d it was %.3g, at step %d it is %.3g; the learning rate may be too large", what, at, best, e.Step, e.Loss)})
}
