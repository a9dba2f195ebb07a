package ledger

import (
	"math"

	"github.com/kintsugi-ml/kintsugi"
)

// The loss of a shard that comes back alone takes the run a part of the way back to where its saved
// values were current. The run has stood there, so the loss there is known: this file shares out
// what it has fallen since.

// exposed is how far one shard is from what is saved of it.
type exposed struct {
	kintsugi.Exposure // the newest

	slopes, squares, weight, weights float64 // fading sums: of ⟨ḡ, x − saved⟩/‖x − saved‖, of its square, of weights and of their squares
	moved, aged                      float64 // fading sums: of ‖x − saved‖², and of the age of what is saved
}

const (
	// slopeKeep is how much of the sums is left when a shard is measured again. The gradient of one
	// step is noise to a good part, so what it says of the way back is averaged over about a dozen.
	slopeKeep = 0.85

	// certain is how many standard errors of the slope are taken for noise.
	certain = 2

	// movedKeep is the same for how fast a shard moves, over times in which everything is saved more than once.
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

// age is that of what is saved, in the mean over the chunks, in steps.
func (x *exposed) age() float64 { return float64(x.Age) / float64(max(1, x.Chunks)) }

// speed is how far the shard moves in a step, squared, in the mean; 0 before it is known.
func (x *exposed) speed() float64 {
	if !(x.aged > 0) {
		return 0
	}
	return x.moved / x.aged
}

// rise returns by how much the loss rises along the gradient if the shard goes back, as far as that is no noise.
func (x *exposed) rise() float64 {
	points := x.weight * x.weight / x.weights
	if !(points >= 2) {
		return 0
	}
	mean := x.slopes / x.weight
	variance := max(0, x.squares/x.weight-mean*mean) * points / (points - 1)
	return max(0, -mean-certain*math.Sqrt(variance/points)) * math.Sqrt(x.Squared)
}

// Exposed books how far the shards of a run are from what is saved of them, all of them together.
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

// Restored books that a shard is now what is saved of it.
func (l *Ledger) Restored(shard int) {
	if x, ok := l.Exposure(shard); ok {
		l.exposed[shard] = exposed{Exposure: kintsugi.Exposure{Chunks: x.Chunks}}
	}
}

// Back returns what it is to the run if a shard alone comes back as it is saved. ok is false if
// nobody has said how far it is.
//
// The model: if all shards went back, the loss would rise by what it has fallen in as many steps as
// what is saved is old, in the mean by how fast they move. Of that each shard takes what the
// gradient says, −⟨ḡ, x − saved⟩ less two standard errors and no less than 0. A convex loss rises
// by at least the sum of these; where they say more than it has fallen, they are made smaller
// together. The rest is the curvature of the way, and shared by ‖δ‖². So no shard costs less than
// nothing, and none more than all of them: the steps that what is saved is old. Where saved values
// go on by themselves (coasting) they are nearer than that, and this is too much until failures
// have calibrated it.
func (l *Ledger) Back(shard int) (p Perturbation, ok bool) {
	if shard < 0 || shard >= len(l.exposed) {
		return p, false
	}
	x := &l.exposed[shard]
	return Perturbation{Dot: x.rise() * l.back().linear, Squared: x.Squared}, true
}

// wayBack is how the loss rises towards what is saved.
type wayBack struct {
	linear    float64 // in [0, 1]: what is left of what the gradient says
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

// fallen returns by how much the loss has fallen in the last steps, by its trend; 0 where that does not fall.
func (l *Ledger) fallen(steps float64) float64 {
	if l.negative {
		slope, _, _ := l.loss.slope()
		return max(0, -slope*steps)
	}
	slope, _, _ := l.logLoss.slope()
	return max(0, math.Exp(l.logLoss.now(slope))*math.Expm1(min(1, -slope*steps))) // farther back no line reaches
}
