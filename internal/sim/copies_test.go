package sim

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// Whatever goes wrong, with copies a line goes on as long as every head lives. A shard whose head
// is gone falls back to its copy, the others stay as they are, and nothing counts twice. Without
// failures nothing is lost.
func TestNoSeedBreaksAPromiseOfCopies(t *testing.T) {
	race.Skip(t)
	n := seeds(40, 10)
	partials, lines := 0, 0
	for seed := range n {
		for _, replicas := range []int{2, 3} {
			cfg := drawChain(seed, replicas)
			cfg.Copies = kintsugi.Step(1 + seed%7)
			r, err := Run(cfg)
			if err != nil {
				t.Errorf("seed %d, %d replicas: %v", seed, replicas, err)
			}
			partials, lines = partials+r.Partials, lines+r.Lines
			cfg.Faults = 0
			if r, err = Run(cfg); err != nil || r.Lines != 1 {
				t.Errorf("seed %d, %d replicas, without faults: %d lines, %v", seed, replicas, r.Lines, err)
			}
		}
	}
	if uint64(partials) < n || uint64(lines) < 2*n {
		t.Errorf("%d shards fell back to copies, on %d lines: the storms prove nothing", partials, lines)
	}
}
