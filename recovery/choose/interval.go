package choose

import (
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/fade"
)

// Interval learns what full checkpoints take from the steps of a run, and says how far apart they
// cost least: Young's formula ("A first order approximation to the optimum checkpoint interval",
// Communications of the ACM 17:9, 1974). The zero value has seen nothing. Times are in seconds.
type Interval struct {
	alone fade.Spread // seconds of a step beside which nothing is saved
	cost  fade.Spread // seconds that a save takes from the steps beside it
	many  fade.Mean   // steps beside a save
	took  fade.Mean   // seconds until a save is durable

	more  float64 // of the present save: by how much the steps beside it were longer
	steps float64 // how many they are
	lasts float64 // seconds until it was durable; 0: it is not

	failed bool // the newest save did
}

// The bounds of what Apart returns, in seconds.
const (
	Shortest = 1.0  // durable files are not the only thing that a store has to do
	Longest  = 1200 // where failures are too rare to tell: what a run loses at most, before an alert is due
)

// again is after how many seconds a save is tried again that failed, and another one begun before
// any has ended.
const again = 10.0

// Step notes a step. beside says that a full checkpoint was under way in it.
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

// What is made of little, and of much.
const (
	known  = 3.0 // of fewer values no mean is believed
	outage = 4.0 // a step that lasts so many times as long as others waited for something else than work
)

// Saved notes that a full checkpoint has ended, well or not. The step in which it did is told after
// that.
func (i *Interval) Saved(e kintsugi.CheckpointEvent) {
	if i.failed = e.Err != ""; i.failed {
		return
	}
	i.close()
	i.lasts = max(e.Took.Seconds(), math.SmallestNonzeroFloat64)
}

// close ends a save that is durable: the steps beside it have ended too.
func (i *Interval) close() {
	if i.lasts == 0 {
		return
	}
	i.took.Add(i.lasts)
	if i.alone.Weight() >= known && i.steps > 0 { // else nobody knows how much longer they were
		// A save makes steps longer by no more than it lasts: what is beyond that was an outage.
		i.cost.Add(min(i.more, i.lasts))
		i.many.Add(i.steps)
	}
	i.more, i.steps, i.lasts = 0, 0, 0
}

// StepTime returns how many seconds a step lasts with no save beside it; 0: nobody knows yet.
func (i *Interval) StepTime() float64 { return i.alone.Value() }

// Cost returns the seconds that a full checkpoint takes from the steps beside it. Before that was
// measured, and a little ever after, it is believed to be a tenth of the time until it is durable.
func (i *Interval) Cost() float64 {
	weight := i.cost.Weight()
	// Less than the standard error is not known to be less: a measurement that says by chance that
	// saves are free would have them come as fast as the store takes them.
	took := i.took.Value()
	if i.took.Weight() == 0 {
		took = i.lasts
	}
	noise := i.many.Value() * i.alone.Variance() / max(1, weight)
	least := math.Sqrt(max(noise, i.cost.Uncertain()))
	return (beside*took + weight*max(least, i.cost.Value())) / (1 + weight)
}

// Apart returns how many seconds should pass from the begin of one full checkpoint to that of the
// next, if failures that take the run back to one are backEvery seconds apart, +Inf for never. At
// most half of the time is spent on saving, since a store may have others to serve.
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
