package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// drawMoving returns the run of a seed, under every fault, in which servers often stay away for
// longer than they are waited for, or for ever. How shards survive is drawn too.
func drawMoving(seed uint64, replicas int) Config {
	cfg := drawChain(seed, replicas)
	rng := rand.New(rand.NewPCG(seed, 0x6d6f7665))
	cfg.Servers = max(2, cfg.Servers)
	cfg.Partial, cfg.RunEvery, cfg.Outside = rng.IntN(3) > 0, kintsugi.Step(1+rng.IntN(6)), replicas == 1 && rng.IntN(3) > 0
	cfg.MoveAfter = time.Duration(1+rng.IntN(3000)) * time.Millisecond
	cfg.Absence = []time.Duration{cfg.MoveAfter + leaseTime + time.Second, time.Hour}[rng.IntN(2)]
	return cfg
}

// Whatever goes wrong while shards move: what a living server has stays as it is, what nobody has
// comes back as it was saved, nothing counts twice, what is left outside a process is not taken for
// more than it is, and the run ends although servers never come back.
func TestNoSeedBreaksAPromiseWhileShardsMove(t *testing.T) {
	race.Skip(t)
	n := seeds(80, 50)
	moved, recalled := 0, 0
	for seed := range n {
		for replicas := 1; replicas <= 2; replicas++ {
			r, err := Run(drawMoving(seed, replicas))
			if err != nil {
				t.Errorf("seed %d, %d replicas: %v", seed, replicas, err)
			}
			moved, recalled = moved+r.Moved, recalled+r.Recalled
		}
	}
	if uint64(moved) < n/2 || uint64(recalled) < n/4 {
		t.Errorf("shards were away from home %d times and %d were found outside: the storms prove nothing", moved, recalled)
	}
}

// Chains lose one server after the other for good. As long as the replicas of each are restored
// before the next one dies, the run has the bits of an undisturbed one. With three servers and two
// replicas, the second death leaves every shard to one server.
func TestServersOfChainsThatStayAwayDoNotChangeTheModel(t *testing.T) {
	race.Skip(t)
	whole := 0
	for seed := range uint64(40) {
		cfg := drawChain(seed, 2)
		cfg.Servers, cfg.Steps, cfg.Compute, cfg.Straggler = 3+int(seed%3), 60, 300*time.Millisecond, 1 // leases expire between two deaths
		cfg = synchronous(cfg)
		calm, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg.killEvery, cfg.kills, cfg.MoveAfter, cfg.Absence, cfg.stay = calm.Virtual/4, 2, calm.Virtual/20, time.Hour, true
		got, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got.Lines != 1 {
			continue // the second died before the first one's replicas were restored
		}
		if whole++; !slices.EqualFunc(calm.Steps, got.Steps, sameGradients) || !slices.Equal(calm.Params, got.Params) {
			t.Errorf("seed %d: servers that stay away change the model", seed)
		}
	}
	if whole < 10 {
		t.Errorf("%d of 40 runs stayed on their line: it proves nothing", whole)
	}
}

// One server stays away for a while, and nothing else fails. Its shard is restored elsewhere, and
// goes home when the server is back. No step is taken back.
func TestAShardComesHomeWithItsServer(t *testing.T) {
	race.Skip(t)
	home := 0
	for seed := range uint64(40) {
		cfg := drawMoving(seed, 1)
		cfg.Servers, cfg.Steps = 2+int(seed%3), 60
		cfg.Partial, cfg.RunEvery, cfg.Consistency = true, 1, agg.Config{Lead: kintsugi.Infinite}
		cfg.Faults, cfg.StopAfter, cfg.Hold = 0, 0, 0
		calm, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg.MoveAfter, cfg.killEvery, cfg.kills, cfg.first = 10*time.Millisecond, calm.Virtual/3, 1, int(seed)%cfg.Servers
		cfg.Absence, cfg.stay = leaseTime+calm.Virtual/6, true
		r, err := Run(cfg)
		switch {
		case err != nil:
			t.Fatalf("seed %d: %v", seed, err)
		case r.Moved == 0 || r.Partials != 1 || r.Lines != 2 || r.Base == 0:
			t.Errorf("seed %d: %d views have a shard away from home, %d shards came back alone, %d lines, the last from step %d", seed, r.Moved, r.Partials, r.Lines, r.Base)
		case r.Home:
			home++
		}
	}
	if home < 20 {
		t.Errorf("%d of 40 shards came home", home)
	}
}
