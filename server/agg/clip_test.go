package agg

import (
	"math"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// A gradient counts with its weight times its length: no more than the bound, and all of it if it
// is shorter.
func TestNoGradientCountsForMoreThanItsBound(t *testing.T) {
	for _, scale := range []Scale{Mean, Sum} {
		cfg := Config{ClipNorm: 2, Scale: scale}
		r := NewRound(cfg, 3)
		norms := []float64{0.5, 1.5, 2, 8, 1e30}
		for slot, norm := range norms {
			r.Offer(kintsugi.Ticket{Push: kintsugi.PushID{Line: 1, Slot: kintsugi.Slot(slot), Version: 3}, Examples: 4, SquaredNorm: norm * norm})
		}
		d, ok := r.Decide(len(norms))
		if !ok {
			t.Fatal("no step")
		}
		whole := map[Scale]float64{Mean: 4, Sum: 1}[scale]
		for i, c := range d.Choices {
			want := float32(whole * min(1, 2/norms[i]))
			if c.Weight != want {
				t.Errorf("scale %d: a norm of %v weighs %v, want %v", scale, norms[i], c.Weight, want)
			}
		}
		if want := map[Scale]float32{Mean: 1.0 / 20, Sum: 1}[scale]; d.Scale != want {
			t.Errorf("scale %d: the sum is multiplied by %v, want %v: a step is not made up for what is clipped", scale, d.Scale, want)
		}
	}
}

// Of two bounds the lower one applies: the bound of all gradients, and the usual length for one
// that was kept in an outage. A worker's path is not a gradient and has no bound.
func TestWhatWasKeptInAnOutageIsClippedOnce(t *testing.T) {
	weight := func(cfg Config, norm, usual float64) float32 {
		cfg.ClipNorm = 2
		x := kintsugi.Ticket{Examples: 1, SquaredNorm: norm * norm, Kept: 3}
		return cfg.weight(&x, 1, step{usual: usual * usual, counted: 1, members: 1})
	}
	for _, c := range []struct {
		keep              kintsugi.KeepRule
		norm, usual, want float64
	}{
		{kintsugi.KeepDecay, 8, 4, 0.5 * 2 / 8},
		{kintsugi.KeepDecay, 8, 1, 0.5 * 1 / 8},
		{kintsugi.KeepDecay, 1, 4, 0.5},
		{kintsugi.KeepAverage, 8, 1, 2.0 / 8},
		{kintsugi.KeepSum, 8, 1, 3 * sumRate * 2 / 8},
		{kintsugi.KeepLocal, 8, 1, 1},
	} {
		if got := weight(Config{Keep: c.keep}, c.norm, c.usual); got != float32(c.want) {
			t.Errorf("%v, norm %v, usually %v: weight %v, want %v", c.keep, c.norm, c.usual, got, float32(c.want))
		}
	}
}

func TestABoundOfNormsIsANumber(t *testing.T) {
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		if err := (Config{ClipNorm: bad}).Check(4); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}
