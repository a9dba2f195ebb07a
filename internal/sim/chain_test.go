package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// drawChain returns the run of a seed with the given number of replicas, under all faults.
func drawChain(seed uint64, replicas int) Config {
	cfg := Draw(seed, steps())
	cfg.Servers = max(cfg.Servers, replicas)
	cfg.Replicas, cfg.Partial, cfg.Outside, cfg.Faults = replicas, false, false, AllFaults
	cfg.Hold = leaseTime + time.Second // longer than a lease, for faults with twins
	return cfg
}

// Whatever goes wrong, a line goes on as long as each shard has a replica with all of it, and
// replicas are equal to the bit.
func TestNoSeedBreaksAPromiseOfAChain(t *testing.T) {
	race.Skip(t)
	n := seeds(120, 60)
	views, lines := 0, 0
	for seed := range n {
		for _, replicas := range []int{2, 3} {
			r, err := Run(drawChain(seed, replicas))
			if err != nil {
				t.Errorf("seed %d, %d replicas: %v", seed, replicas, err)
			}
			views, lines = views+r.Views, lines+r.Lines
		}
	}
	if views < lines*3/2 {
		t.Errorf("%d views on %d lines: hardly any line outlives a server", views, lines)
	}
}

// Every step counts every worker, so servers of chains that die do not change a single bit, as long
// as no two die together. An undisturbed run says what the bits must be.
func TestServersOfChainsThatDieDoNotChangeTheModel(t *testing.T) {
	race.Skip(t)
	died := 0
	for seed := range uint64(40) {
		for _, replicas := range []int{2, 3} {
			cfg := synchronous(drawChain(seed, replicas))
			calm, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			cfg.killEvery = calm.Virtual / 4
			got, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			died += got.Views - 1
			if got.Lines != 1 {
				continue // the second died before the first was back: only a checkpoint is left
			}
			if !slices.EqualFunc(calm.Steps, got.Steps, sameGradients) || !slices.Equal(calm.Params, got.Params) {
				t.Errorf("seed %d, %d replicas: the deaths of servers change the model", seed, replicas)
			}
		}
	}
	if died < 100 {
		t.Errorf("%d views in 80 runs: hardly anybody dies", died)
	}
}
