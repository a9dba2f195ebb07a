package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// drawGold returns the run of a seed whose servers have everything that helps shards survive: a
// running checkpoint, and chains or memory outside the processes. It has every fault.
func drawGold(seed uint64, replicas int) Config {
	cfg := drawChain(seed, replicas)
	rng := rand.New(rand.NewPCG(seed, 0x676f6c64))
	cfg.Partial, cfg.RunEvery, cfg.Outside = true, kintsugi.Step(1+rng.IntN(6)), replicas == 1
	return cfg
}

// Whatever goes wrong, alone or together: a shard is kept while anybody has it, a shard that nobody
// has comes back as it was saved, no step is taken back as long as any shard is left, and nothing
// counts twice.
func TestNoSeedBreaksAPromiseOfGold(t *testing.T) {
	race.Skip(t)
	n := seeds(100, 50)
	partials, recalled := 0, 0
	for seed := range n {
		for replicas := 1; replicas <= 3; replicas++ {
			r, err := Run(drawGold(seed, replicas))
			if err != nil {
				t.Errorf("seed %d, %d replicas: %v", seed, replicas, err)
			}
			if recalled += r.Recalled; replicas > 1 {
				partials += r.Partials
			}
		}
	}
	if uint64(partials) < n/20 || uint64(recalled) < n {
		t.Errorf("%d shards came back alone and %d were found outside: the storms prove nothing", partials, recalled)
	}
}

// The number of replicas changes all the time, under every fault. The change alone takes no step
// back, and other faults meanwhile break no promise.
func TestNoSeedBreaksAPromiseWhileReplicasAreChosen(t *testing.T) {
	race.Skip(t)
	n := seeds(80, 50)
	lines, calm := 0, 0
	for seed := range n {
		cfg := drawGold(seed, 1)
		cfg.Servers = max(2, cfg.Servers)
		cfg.Choose = cfg.Storm / 8
		r, err := Run(cfg)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		lines += r.Lines
		cfg.Faults = 0
		if r, err = Run(cfg); err != nil {
			t.Errorf("seed %d, without faults: %v", seed, err)
		}
		if calm += r.Lines - 1; r.Partials > 0 {
			t.Errorf("seed %d: nothing fails, and %d shards came back", seed, r.Partials)
		}
	}
	if uint64(lines) < n*3/2 || uint64(calm) < n/2 {
		t.Errorf("%d lines, %d changes without faults: hardly anything is chosen", lines, calm)
	}
}
