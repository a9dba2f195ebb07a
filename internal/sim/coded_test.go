package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// drawCoded returns the run of a seed whose workers encode their gradients. Some of them have
// several pushes in flight.
func drawCoded(seed uint64) Config {
	rng := rand.New(rand.NewPCG(seed, 0x636f646563))
	cfg := Draw(seed+8_000_000, steps())
	if rng.IntN(2) == 0 {
		cfg = drawOdd(seed + 1_000_000)
	}
	if rng.IntN(3) == 0 {
		cfg.Faults = AllFaults
		cfg.Hold = leaseTime + 1e9 // longer than a lease, for faults with twins
	}
	if credit := 2 + rng.IntN(2); rng.IntN(3) == 0 {
		cfg.Consistency = agg.Config{Quota: 1 + rng.IntN(2*cfg.Workers), Lead: kintsugi.Infinite, PerWorker: 2, Credit: credit}
		if rng.IntN(2) == 0 {
			cfg.Consistency.Late, cfg.Consistency.Staleness = agg.Apply, uint32(1+rng.IntN(4))
		}
	}
	cfg.Consistency.Continue, cfg.Consistency.Keep = false, 0
	cfg.Codec = []string{"topk:0.1:fp32", "topk:0.25:fp32", "topk:0.5:fp32"}[rng.IntN(3)]
	return cfg
}

// Whatever goes wrong, each worker's residual is what was left out of its counted gradients.
// Nothing is sent twice, and nothing is lost, except with a worker or a line.
func TestNoSeedBreaksAPromiseOfResiduals(t *testing.T) {
	race.Skip(t)
	var sum ResidualResult
	n := seeds(160, 60)
	for seed := range n {
		r, err := Run(drawCoded(seed))
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		sum.Adopted += r.Residuals.Adopted
		sum.Returned += r.Residuals.Returned
		sum.Lost += r.Residuals.Lost
		sum.GivenUp += r.Residuals.GivenUp
	}
	if uint64(sum.Adopted) < 20*n || uint64(sum.Returned) < 5*n || uint64(sum.GivenUp) < n/10 {
		t.Errorf("the storms prove nothing: %+v", sum)
	}
}
