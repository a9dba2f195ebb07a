package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// drawStrange returns the run of a seed with the given number of replicas, in which servers do not
// reach each other, or claim so, under every fault.
func drawStrange(seed uint64, replicas int) Config {
	cfg := drawChain(seed, replicas)
	rng := rand.New(rand.NewPCG(seed, 0x7374))
	cfg.Servers = max(2, cfg.Servers)
	cfg.Strange = time.Duration(50+rng.IntN(1000)) * time.Millisecond
	switch rng.IntN(4) {
	case 0:
		cfg.FaultEvery = 0 // nothing else goes wrong
	case 1:
		cfg.NextAnswers = replicas > 2
	case 2:
		if replicas > 1 {
			cfg.Copies = kintsugi.Step(1 + seed%7)
		}
	}
	return cfg
}

// Whatever servers report of each other, and whichever is left out: no promise is broken, and in
// the end all servers are back in.
func TestNoSeedBreaksAPromiseWhileServersDoNotReachEachOther(t *testing.T) {
	race.Skip(t)
	n := seeds(40, 20)
	parted := 0
	for seed := range n {
		for replicas := 1; replicas <= 3; replicas++ {
			r, err := Run(drawStrange(seed, replicas))
			if err != nil {
				t.Errorf("seed %d, %d replicas: %v", seed, replicas, err)
			}
			parted += r.parted
		}
	}
	if uint64(parted) < n/2 {
		t.Errorf("servers were left out %d times in %d runs: the storms prove nothing", parted, 3*n)
	}
}

// Two servers of a run in which nothing else fails never reach each other again. The run ends
// without a step taken back, with the bits of an undisturbed one.
func TestServersThatNeverMeetAgainDoNotChangeTheModel(t *testing.T) {
	race.Skip(t)
	for seed := range uint64(40) {
		for _, replicas := range []int{2, 3} {
			cfg := synchronous(drawChain(seed, replicas))
			calm, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			cfg.estrangeAt, cfg.first = calm.Virtual/3, int(seed)%cfg.Servers
			got, err := Run(cfg)
			switch {
			case err != nil:
				t.Errorf("seed %d, %d replicas: %v", seed, replicas, err)
			case got.Lines != 1 || got.parted == 0:
				t.Errorf("seed %d, %d replicas: %d lines, %d servers were left out", seed, replicas, got.Lines, got.parted)
			case !slices.EqualFunc(calm.Steps, got.Steps, sameGradients) || !slices.Equal(calm.Params, got.Params):
				t.Errorf("seed %d, %d replicas: servers that do not reach each other change the model", seed, replicas)
			}
		}
	}
}
