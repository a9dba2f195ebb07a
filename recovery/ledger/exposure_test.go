package ledger

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// watched is a run on a quadratic whose chunks are saved in turn, as its ledger sees it: through
// losses and gradients of batches.
type watched struct {
	*quadratic
	ledger *Ledger
	rng    *rand.Rand
	at     int
	saved  []float64 // saved values, by parameter
	steps  []int     // step of the saved values, by chunk

	noise    float64 // of losses, relative to them
	gradient float64 // noise of what gradients say about a shard, relative to the cost of its loss
	floor    float64 // the loss does not fall below it; it is not part of what is lost
	drift    float64 // by how much the loss rises in a step, whatever the parameters are
}

const (
	watchedShards = 4
	watchedChunks = 16 // per shard; one of them is saved in a step
	watchedValues = 5  // per chunk
)

func newWatched(seed uint64) *watched {
	rng := rand.New(rand.NewPCG(seed, 12))
	chunks := watchedShards * watchedChunks
	w := &watched{quadratic: newQuadratic(rng, chunks*watchedValues), ledger: New(50), rng: rng, steps: make([]int, chunks)}
	w.saved = append(w.saved, w.z...)
	return w
}

// step makes a step, and reports it and the shards to the ledger.
func (w *watched) step() {
	w.at++
	exact := w.quadratic.step(w.at, nil)
	loss := (w.floor + exact.Loss + w.drift*float64(w.at)) * (1 + w.noise*w.rng.NormFloat64())
	w.ledger.Observe(Step{Step: kintsugi.Step(w.at), Loss: loss, SquaredNorm: exact.SquaredNorm})
	for c := w.at % watchedChunks; c < len(w.steps); c += watchedChunks {
		copy(w.saved[c*watchedValues:(c+1)*watchedValues], w.z[c*watchedValues:])
		w.steps[c] = w.at
	}
	w.ledger.Exposed(w.exposures())
}

func (w *watched) shard(s int) (lo, hi int) {
	n := len(w.z) / watchedShards
	return s * n, (s + 1) * n
}

func (w *watched) exposures() []kintsugi.Exposure {
	list := make([]kintsugi.Exposure, watchedShards)
	for s := range list {
		x := &list[s]
		for _, at := range w.steps[s*watchedChunks : (s+1)*watchedChunks] {
			x.Chunks, x.Age = x.Chunks+1, x.Age+uint64(w.at-at)
		}
		lo, hi := w.shard(s)
		for i := lo; i < hi; i++ {
			d := w.z[i] - w.saved[i]
			x.Dot += w.lambda[i] * w.z[i] * d
			x.Squared += d * d
		}
		x.Dot += w.gradient * w.lift(s) * w.rng.NormFloat64()
	}
	return list
}

// lift is by how much the loss would rise if shard s were lost.
func (w *watched) lift(s int) float64 {
	y := append([]float64(nil), w.z...)
	lo, hi := w.shard(s)
	copy(y[lo:hi], w.saved[lo:hi])
	return w.loss(y) - w.loss(w.z)
}

// age is the mean age of what is saved, weighted by how fast shards move.
func (w *watched) age() float64 {
	var speeds, sum float64
	for i := range w.ledger.exposed {
		x := &w.ledger.exposed[i]
		speeds, sum = speeds+x.speed(), sum+x.speed()*x.age()
	}
	return sum / speeds
}

// looks calls look with each shard's estimate after every step, once the ledger has seen enough.
func (w *watched) looks(steps int, look func(shard int, estimate float64, known bool)) {
	for w.at < steps {
		w.step()
		for s := range watchedShards {
			back, ok := w.ledger.Back(s)
			estimate, known := w.ledger.Rework(back)
			if w.at >= 100 {
				look(s, estimate, ok && known)
			}
		}
	}
}

// While a run converges, the estimate is within half of the age of what is saved from the true cost
// of a loss, and within a tenth in the mean, although losses have noise of a tenth and gradients
// are only noise. It is never negative, and never more than that age.
func TestAnEstimateIsNearTheCostWhileTheLossFalls(t *testing.T) {
	known, all, sum := 0, 0, 0.0
	for seed := range uint64(8) {
		w := newWatched(seed)
		w.noise, w.gradient = 0.1, 1
		w.looks(220, func(shard int, estimate float64, ok bool) {
			if all++; !ok {
				return
			}
			known++
			decrease := w.loss(w.z)
			next := append([]float64(nil), w.z...)
			for i := range next {
				next[i] -= w.rate * w.lambda[i] * next[i]
			}
			cost := math.Log1p(w.lift(shard)/decrease) / math.Log(decrease/w.loss(next))
			off := math.Abs(estimate - cost)
			if age := w.age(); estimate < 0 || estimate > age*(1+1e-9) || off > age/2 {
				t.Errorf("seed %d, step %d, shard %d: %.2f steps are predicted, it costs %.2f; what is saved is %.1f steps old", seed, w.at, shard, estimate, cost, age)
			} else {
				sum += off / age
			}
		})
	}
	if known < all*95/100 || sum > 0.1*float64(known) {
		t.Errorf("known in %d of %d looks, wrong by %.3f of the age in the mean", known, all, sum/float64(known))
	}
}

// If the loss stands still or rises, nothing is known, except in one of a hundred looks, and then
// the estimate is still no more than the age.
func TestOnAPlateauTheCostIsUnknown(t *testing.T) {
	for name, set := range map[string]func(*watched){
		"plateau":        func(w *watched) { w.floor, w.noise = 1, 0.1 },
		"rise":           func(w *watched) { w.floor, w.noise, w.drift = 1, 0.1, 0.001 },
		"rise, no noise": func(w *watched) { w.floor, w.drift = 1, 0.001 },
	} {
		known, all := 0, 0
		for seed := range uint64(8) {
			w := newWatched(seed)
			set(w)
			for i := range w.z { // it has converged, and gradients are noise
				w.z[i], w.saved[i] = 1e-3*w.z[i], 1e-3*w.saved[i]
			}
			w.gradient = 100
			w.looks(500, func(_ int, estimate float64, ok bool) {
				if all++; !ok {
					return
				}
				if known++; estimate < 0 || estimate > w.age()*(1+1e-9) {
					t.Errorf("%s, seed %d, step %d: %g steps are predicted, what is saved is %g steps old", name, seed, w.at, estimate, w.age())
				}
			})
		}
		if known > all/100 || name == "rise, no noise" && known > 0 {
			t.Errorf("%s: a cost is known in %d of %d looks", name, known, all)
		}
	}
}

// Whatever shards and gradients say, no estimate is negative, and none is more than the age of what
// is saved. Together they raise the loss by as much as it has fallen.
func TestWhatIsSharedOutIsWhatTheLossHasFallen(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 13))
	tooMuch := 0
	for trial := range 400 {
		l := falling(100) // by a tenth in a step
		shards := make([]kintsugi.Exposure, 1+rng.IntN(5))
		for range 1 + rng.IntN(30) {
			for i := range shards {
				x := kintsugi.Exposure{Chunks: 1 + uint32(rng.IntN(9)), Squared: math.Exp(8 * rng.NormFloat64()), Dot: rng.NormFloat64() * math.Exp(5*rng.NormFloat64())}
				x.Age = uint64(x.Chunks) * uint64(1+rng.IntN(40))
				if trial%2 == 1 { // gradients agree that the way back goes up, and may say that it does more than it can
					x.Dot = -math.Exp(float64(trial%11-8)) * math.Sqrt(x.Squared) * (1 + 0.05*rng.NormFloat64())
				}
				shards[i] = x
			}
			l.Exposed(shards)
		}
		if l.back().linear < 1 {
			tooMuch++
		}
		age := (&watched{ledger: l}).age()
		sum := 0.0
		for i := range shards {
			back, _ := l.Back(i)
			steps, ok := l.Rework(back)
			if !ok || steps < 0 || steps > age+1e-6 {
				t.Fatalf("shard %d of %+v costs %g steps (%v), what is saved is %g steps old", i, shards, steps, ok, age)
			}
			sum += steps
		}
		if math.Abs(sum-age) > 1e-6*(1+age) {
			t.Errorf("%+v cost %g steps together, what is saved is %g steps old", shards, sum, age)
		}
	}
	if tooMuch < 40 || tooMuch > 200 {
		t.Errorf("gradients say too much in %d of 400 cases", tooMuch)
	}
	l := falling(100)
	for _, shard := range []int{-1, 0, 1} {
		if x, ok := l.Exposure(shard); ok {
			t.Errorf("nobody has told of shard %d, and it is %+v", shard, x)
		}
		l.Restored(shard)
	}
	if _, ok := l.Back(0); ok {
		t.Error("nobody has told of a shard, and it is known how far it is from what is saved")
	}
	l.Exposed([]kintsugi.Exposure{{Chunks: 1, Squared: math.Inf(1), Age: 3}})
	if back, _ := l.Back(0); back.Dot != 0 {
		t.Errorf("%+v of parameters that have overflowed", back)
	}
	if steps, ok := l.Rework(Perturbation{Squared: math.Inf(1)}); ok {
		t.Errorf("parameters that have overflowed cost %g steps", steps)
	}
	l.Exposed([]kintsugi.Exposure{{Chunks: 1, Squared: 4, Age: 3}})
	l.Restored(0)
	if back, ok := l.Back(0); !ok || back != (Perturbation{}) {
		t.Errorf("%+v, %v after the shard has come back", back, ok)
	}
}

// What is remembered of a shard is a mean whose weights fall with each later measurement, and that
// measurements without a number leave alone. It is compared with sums over all of them.
func TestWhatIsRememberedOfAShardIsAWeightedMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	l := New(50)
	var list []kintsugi.Exposure
	// sum adds up f over the measurements that count, with their weights.
	sum := func(keep float64, counts func(kintsugi.Exposure) bool, f func(weight float64, x kintsugi.Exposure) float64) (total float64) {
		weight := 1.0
		for _, x := range slices.Backward(list) {
			if counts(x) {
				total += f(weight, x)
				weight *= keep
			}
		}
		return total
	}
	known := func(x kintsugi.Exposure) bool { return finite(x.Squared) }
	saved := func(x kintsugi.Exposure) bool { return known(x) && x.Chunks > 0 }
	slope := func(x kintsugi.Exposure) float64 { return x.Dot / math.Sqrt(x.Squared) }
	for range 40 {
		chunks := 1 + rng.IntN(5)
		x := kintsugi.Exposure{Chunks: uint32(chunks), Age: uint64(chunks * (1 + rng.IntN(9))), Squared: 1 + rng.Float64(), Dot: -5 - rng.Float64()}
		switch len(list) % 10 {
		case 3:
			x.Chunks, x.Age = 0, 0
		case 7:
			x.Squared = math.NaN()
		}
		list = append(list, x)
		l.Exposed([]kintsugi.Exposure{x})
		got := &l.exposed[0]

		moved := sum(movedKeep, saved, func(w float64, x kintsugi.Exposure) float64 { return w * x.Squared })
		aged := sum(movedKeep, saved, func(w float64, x kintsugi.Exposure) float64 { return w * float64(x.Age) / float64(x.Chunks) })
		if !near(got.speed(), moved/aged) {
			t.Fatalf("after %d: it moves by %g in a step, want %g", len(list), got.speed(), moved/aged)
		}

		if !finite(x.Squared) {
			continue
		}
		weight := sum(slopeKeep, known, func(w float64, _ kintsugi.Exposure) float64 { return w })
		points := weight * weight / sum(slopeKeep, known, func(w float64, _ kintsugi.Exposure) float64 { return w * w })
		mean := sum(slopeKeep, known, func(w float64, x kintsugi.Exposure) float64 { return w * slope(x) }) / weight
		variance := sum(slopeKeep, known, func(w float64, x kintsugi.Exposure) float64 { return w * (slope(x) - mean) * (slope(x) - mean) }) / weight
		want := 0.0
		if points >= 2 {
			want = max(0, -mean-certain*math.Sqrt(variance/(points-1))) * math.Sqrt(x.Squared)
		}
		if !near(got.rise(), want) {
			t.Fatalf("after %d: the loss rises by %g, want %g", len(list), got.rise(), want)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(math.Abs(a), math.Abs(b)) }
