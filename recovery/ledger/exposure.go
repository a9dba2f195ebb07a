package ledger

import (
	"math"

	"github.com/kintsugi-ml/kintsugi"
)

// If a lost shard alone is restored, the run goes back a part of the way to the point at which the
// saved values were current. The run has been at that point, so the loss there is known. This file
// divides what the loss has fallen since among the shards.

// exposed says how far one shard is from its saved values.
type exposed struct {
	kintsugi.Exposure // the newest

	slopes, squares, weight, weights float64 // fading sums: of ⟨ḡ, x − saved⟩/‖x − saved‖, of its square, of weights and of their squares
	moved, aged                      float64 // fading sums: of ‖x − saved‖², and of the age of the saved values
}

const (
	// slopeKeep is the part of the sums that is left when a shard is measured again. The gradient
	// of one step is noisy, so its slope towards the saved values is averaged over about a dozen
	// measurements.
	slopeKeep = 0.85

	// certain is how many standard errors of the slope count as noise.
	certain = 2

	// movedKeep is the same for how fast a shard moves, over times in which everything is saved
	// more than once.
	movedKeep = 0.97
)

func (x *exposed) add(now kintsugi.Exposure) {
	x.Exposure = now
	if slope := now.Dot / math.Sqrt(now.Squared); finite(slope * slope) {
		x.slopes, x.squares = slopeKeep*x.slopes+slope, slopeKeep*x.squares+slope*slope
		x.weight, x.weights = slopeKeep*x.weight+1, slopeKeep*slopeKeep*x.weights+1
	}
	if now.Chunks > 0 && finite(now.Squared) {
		x.moved, x.aged = movedKeep*x.moved+now.Squared, movedKeep*x.aged+x.age()
	}
}

// age is the mean age of the saved values of the chunks, in steps.
func (x *exposed) age() float64 { return float64(x.Age) / float64(max(1, x.Chunks)) }

// speed is the mean squared distance that the shard moves in a step; 0 before it is known.
func (x *exposed) speed() float64 {
	if !(x.aged > 0) {
		return 0
	}
	return x.moved / x.aged
}

// rise returns by how much the loss rises along the gradient if the shard goes back, as far as that
// is not noise.
func (x *exposed) rise() float64 {
	points := x.weight * x.weight / x.weights
	if !(points >= 2) {
		return 0
	}
	mean := x.slopes / x.weight
	variance := max(0, x.squares/x.weight-mean*mean) * points / (points - 1)
	return max(0, -mean-certain*math.Sqrt(variance/points)) * math.Sqrt(x.Squared)
}

// Exposed records how far all shards of a run are from their saved values, by shard.
func (l *Ledger) Exposed(shards []kintsugi.Exposure) {
	if len(l.exposed) != len(shards) {
		l.exposed = make([]exposed, len(shards))
	}
	for i, x := range shards {
		l.exposed[i].add(x)
	}
}

// Exposure returns the newest exposure of a shard. ok is false if none is known.
func (l *Ledger) Exposure(shard int) (x kintsugi.Exposure, ok bool) {
	if shard < 0 || shard >= len(l.exposed) {
		return x, false
	}
	return l.exposed[shard].Exposure, true
}

// Restored records that a shard now has its saved values.
func (l *Ledger) Restored(shard int) {
	if x, ok := l.Exposure(shard); ok {
		l.exposed[shard] = exposed{Exposure: kintsugi.Exposure{Chunks: x.Chunks}}
	}
}

// Back returns the perturbation of the run if one shard is restored to its saved values. ok is
// false if its distance from them is not known.
//
// The model is as follows. If all shards went back, the loss would rise by what it has fallen in as
// many steps as the saved values are old; this age is a mean over the shards, weighted by how fast
// they move. Each shard gets the part that the gradient shows: −⟨ḡ, x − saved⟩, less two standard
// errors, and at least 0. A convex loss rises by at least the sum of these parts; if the sum is
// more than the loss has fallen, all parts are reduced by one factor. The rest is the curvature of
// the path, and is divided in proportion to ‖δ‖². So no shard costs less than nothing, and none
// costs more than all of them together, which is the age of the saved values in steps. Where saved
// values coast, they are nearer than that, so the result is too large until failures have
// calibrated it.
func (l *Ledger) Back(shard int) (p Perturbation, ok bool) {
	if shard < 0 || shard >= len(l.exposed) {
		return p, false
	}
	x := &l.exposed[shard]
	return Perturbation{Dot: x.rise() * l.back().linear, Squared: x.Squared}, true
}

// wayBack says how the loss rises towards the saved values.
type wayBack struct {
	linear    float64 // in [0, 1]: factor of the parts that the gradient shows
	curvature float64 // at least 0
}

func (l *Ledger) back() (w wayBack) {
	var rises, squared, speeds, age float64
	for i := range l.exposed {
		x := &l.exposed[i]
		rises += x.rise()
		squared += x.Squared
		speeds += x.speed()
		age += x.speed() * x.age()
	}
	fallen := l.fallen(age / speeds)
	if !(squared > 0) || !finite(squared) || !finite(fallen) {
		return w
	}
	w.linear = 1
	if rises > fallen {
		w.linear = fallen / rises
	}
	w.curvature = 2 * max(0, fallen-rises) / squared
	return w
}

// fallen returns by how much the loss has fallen in so many last steps, by its trend; 0 if the
// trend does not fall.
func (l *Ledger) fallen(steps float64) float64 {
	if l.negative {
		slope, _, _ := l.loss.slope()
		return max(0, -slope*steps)
	}
	slope, _, _ := l.logLoss.slope()
	return max(0, math.Exp(l.logLoss.now(slope))*math.Expm1(min(1, -slope*steps))) // no line reaches further back
}
