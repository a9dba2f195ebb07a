package sim

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// Shards are restored again and again, whatever else goes wrong. A path counts at most once,
// converted to the line on which it counts. A worker that carried it over to a line as if nothing
// had been restored would be noticed.
func TestPathsGoOnOnLinesThatKeepTheirs(t *testing.T) {
	race.Skip(t)
	n := seeds(60, 20)
	moved, found := 0, false
	for seed := range n {
		cfg := Draw(seed, 60)
		cfg.Servers, cfg.Chunks = max(2, cfg.Servers), max(4, cfg.Chunks)
		cfg.Replicas, cfg.Partial, cfg.RunEvery, cfg.Outside, cfg.Copies = 1, true, 2, seed%3 == 0, 0
		var err error
		if cfg.Consistency, err = agg.Preset([]string{"async", "ssp:3", "async:staleness=4"}[seed%3]); err != nil {
			t.Fatal(err)
		}
		cfg.Consistency.Continue, cfg.Consistency.Keep = true, kintsugi.KeepLocal
		r, err := Run(cfg)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		moved += r.Outages.Moved
		if !found {
			cfg.plant = movedWhole
			_, err := Run(cfg)
			found = err != nil
		}
	}
	t.Logf("%d gradients were taken onto other lines", moved)
	if uint64(moved) < n || !found {
		t.Errorf("%d gradients were taken onto other lines, a worker that does it wrongly is found: %v", moved, found)
	}
}
