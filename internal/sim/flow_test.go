package sim

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// drawFlowing returns the run of a seed whose workers push gradients while they compute them.
func drawFlowing(seed uint64) Config {
	cfg := Draw(seed+9_000_000, steps())
	switch seed % 4 {
	case 1:
		cfg = drawCoded(seed + 1_000_000)
	case 2:
		cfg = Draw(EveryFault+seed+1_000_000, steps())
	}
	cfg.Flows = true
	return cfg
}

// Whatever goes wrong, it does not matter that heads have parts of gradients that are given up.
func TestNoSeedBreaksAPromiseOfPushesInParts(t *testing.T) {
	race.Skip(t)
	var sum FlowResult
	n := seeds(160, 60)
	for seed := range n {
		r, err := Run(drawFlowing(seed))
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		sum.GivenUp += r.Flows.GivenUp
		sum.InPart += r.Flows.InPart
	}
	t.Logf("%+v", sum)
	if uint64(sum.GivenUp) < n || uint64(sum.InPart) < n {
		t.Errorf("the storms prove nothing: %+v", sum)
	}
}
