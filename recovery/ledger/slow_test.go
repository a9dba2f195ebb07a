package ledger

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// The bound is what a perturbation costs in the worst case: a map that contracts by c everywhere,
// perturbed away from its fixed point. The run is followed step by step.
func TestPosteriorBoundIsTheCostOfTheWorstCase(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	follow := func(c, x, epsilon float64, at int, norm float64) (steps, distance float64) {
		for n := 0; ; n++ {
			if n == at {
				distance = x
				x += norm
			}
			if n >= at && x <= epsilon {
				return float64(n), distance
			}
			x *= c
		}
	}
	for range 500 {
		c, start, epsilon := 0.5+0.45*rng.Float64(), 1+9*rng.Float64(), 1e-3*(1+rng.Float64())
		undisturbed, _ := follow(c, start, epsilon, 0, 0)
		at := rng.IntN(int(undisturbed))
		norm := 3 * rng.Float64()
		perturbed, distance := follow(c, start, epsilon, at, norm)
		bound := PosteriorBound(c, epsilon, undisturbed, distance, Perturbed{Step: float64(at), Norm: norm})
		if cost := perturbed - undisturbed; math.Abs(bound-cost) > 1e-9 {
			t.Fatalf("c %g, perturbed at step %d of %g by %g at %g: it costs %g steps, the bound is %g", c, at, undisturbed, norm, distance, cost, bound)
		}
	}
	if got := PosteriorBound(0.5, 1, 9, 0.1, Perturbed{Step: 4, Norm: 0.2}); got != -5 {
		t.Errorf("a run that is there already needs no step: %g", got)
	}
}

// The standard error of Behind is the spread of what it measures, also where a failure took the
// losses back by more than both sides are long, so that the slope counts more than the jump.
func TestTheStandardErrorOfBehindIsItsSpread(t *testing.T) {
	for _, back := range []float64{0, 40, 200, -60} {
		rng := rand.New(rand.NewPCG(8, 9))
		const trials = 4000
		var sum, squares, stated float64
		for range trials {
			var before, after []float64
			for s := range 90 {
				at, list := float64(s), &before
				if s >= 60 {
					at, list = at-back, &after
				}
				*list = append(*list, 5-0.02*at+0.05*rng.NormFloat64()-20)
			}
			steps, deviation, ok := Behind(before, after)
			if !ok {
				t.Fatalf("%g steps back: the loss falls, and it is not seen", back)
			}
			sum, squares, stated = sum+steps, squares+steps*steps, stated+deviation
		}
		mean := sum / trials
		if spread, said := math.Sqrt(squares/trials-mean*mean), stated/trials; said < 0.85*spread || said > 1.15*spread {
			t.Errorf("%g steps back: measured as %.1f with a spread of %.2f, and the standard error is %.2f", back, mean, spread, said)
		}
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
