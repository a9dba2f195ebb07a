package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// drawSeveral returns the run of a seed whose workers have several pushes in flight, as with rennala
// and where late gradients count.
func drawSeveral(seed uint64) Config {
	rng := rand.New(rand.NewPCG(seed, 0x637265646974))
	cfg := Draw(seed+11_000_000, steps())
	if rng.IntN(2) == 0 {
		cfg = drawOdd(seed + 2_000_000)
	}
	if rng.IntN(3) == 0 {
		cfg.Faults = AllFaults
		cfg.Hold = leaseTime + 1e9 // longer than a lease, for faults with twins
	}
	c := agg.Config{Lead: kintsugi.Infinite, PerWorker: 1 + rng.IntN(4), Credit: 2 + rng.IntN(4)}
	c.Quota = 1 + rng.IntN(min(c.PerWorker, c.Credit)*cfg.Workers)
	if c.PerWorker == 1 || rng.IntN(2) == 0 {
		c.Late, c.Staleness = agg.Apply, uint32(1+rng.IntN(4))
		if rng.IntN(3) == 0 {
			c.Staleness = kintsugi.Infinite
		}
		if rng.IntN(2) == 0 {
			c.Continue, c.Keep = true, kintsugi.KeepRule(rng.IntN(4))
		}
	}
	cfg.Consistency = c
	cfg.Flows = rng.IntN(3) == 0
	return cfg
}

// Whatever goes wrong, a worker may have several pushes in flight.
func TestNoSeedBreaksAPromiseOfSeveralPushes(t *testing.T) {
	race.Skip(t)
	most := 0
	for seed := range seeds(160, 60) {
		r, err := Run(drawSeveral(seed))
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		most = max(most, r.inFlight)
	}
	if most < 4 {
		t.Errorf("no worker has more than %d pushes in flight", most)
	}
}
