package choose

import (
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/fade"
)

// Interval measures from the steps of a run what full checkpoints cost, and computes the cheapest
// time between them by Young's formula ("A first order approximation to the optimum checkpoint
// interval", Communications of the ACM 17:9, 1974). The zero value has measured nothing. Times are
// in seconds. One goroutine at a time may use it.
type Interval struct {
	alone fade.Spread // seconds of a step during which nothing is saved
	cost  fade.Spread // seconds that a save takes from the steps during it
	many  fade.Mean   // steps during a save
	took  fade.Mean   // seconds until a save is durable

	more  float64 // for the present save: by how much the steps during it were longer
	steps float64 // their number
	lasts float64 // seconds until it was durable; 0: it is not

	failed bool // the newest save has failed
}

// The bounds of the result of Apart, in seconds.
const (
	Shortest = 1.0  // a store has other things to do than to make files durable
	Longest  = 1200 // if failures are too rare to decide it; an alert on the age of the checkpoint is due at 1800
)

// again is after how many seconds at most a failed save is tried again, and the time between saves
// before any has ended.
const again = 10.0

// Step records a step. beside says that a full checkpoint was under way during the step.
func (i *Interval) Step(e kintsugi.StepEvent, beside bool) {
	seconds := (e.Wait + e.Apply).Seconds()
	if beside {
		i.more += seconds - i.alone.Value()
		i.steps++
		return
	}
	i.close()
	i.more, i.steps = 0, 0 // of a save that failed
	if i.alone.Weight() >= known {
		seconds = min(seconds, outage*i.alone.Value())
	}
	i.alone.Add(seconds)
}

// Limits on which measurements are believed.
const (
	known  = 3.0 // no mean of fewer values is believed
	outage = 4.0 // a step that takes so many times as long as others has waited for something other than work
)

// Saved records the end of a full checkpoint, whether it succeeded or not. Call it before Step for
// the step in which it ended.
func (i *Interval) Saved(e kintsugi.CheckpointEvent) {
	if i.failed = e.Err != ""; i.failed {
		return
	}
	i.close()
	i.lasts = max(e.Took.Seconds(), math.SmallestNonzeroFloat64)
}

// close ends a durable save: the steps during it have ended too.
func (i *Interval) close() {
	if i.lasts == 0 {
		return
	}
	i.took.Add(i.lasts)
	if i.alone.Weight() >= known && i.steps > 0 { // otherwise it is not known how much longer they were
		// A save makes steps longer by at most its own duration. A larger difference was an outage.
		i.cost.Add(min(i.more, i.lasts))
		i.many.Add(i.steps)
	}
	i.more, i.steps, i.lasts = 0, 0, 0
}

// StepTime returns the seconds of a step during which nothing is saved; 0: not known yet.
func (i *Interval) StepTime() float64 { return i.alone.Value() }

// Cost returns the seconds that a full checkpoint takes from the steps during it. Before it has
// been measured, it is assumed to be a tenth of the time until the checkpoint is durable; later
// measurements leave that assumption a little weight.
func (i *Interval) Cost() float64 {
	weight := i.cost.Weight()
	took := i.took.Value()
	if i.took.Weight() == 0 {
		took = i.lasts
	}
	// A measured cost below the standard error is not known to be that small. If a measurement said
	// by chance that saves are free, they would be made as fast as the store takes them.
	noise := i.many.Value() * i.alone.Variance() / max(1, weight)
	least := math.Sqrt(max(noise, i.cost.Uncertain()))
	return (beside*took + weight*max(least, i.cost.Value())) / (1 + weight)
}

// Apart returns the seconds from the beginning of one full checkpoint to that of the next, if
// failures that take the run back to a full checkpoint are backEvery seconds apart; +Inf: never. At
// most half of the time is spent on saving, since a store may serve others too.
func (i *Interval) Apart(backEvery float64) float64 {
	if i.took.Weight() == 0 && i.lasts == 0 {
		return again
	}
	best := float64(Longest)
	if !math.IsInf(backEvery, 1) {
		best = min(best, math.Sqrt(2*i.Cost()*backEvery))
	}
	if i.failed {
		best = min(best, again)
	}
	return max(best, Shortest, 2*i.took.Value(), 2*i.lasts)
}
