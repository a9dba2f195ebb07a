package sim

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// Workers sometimes do not push to a head, and claim nevertheless that every head has their
// gradient. The step stays as it was decided: they are made to push again. The run ends on its
// line, with the bits of a run in which they forget nothing, for any number of replicas.
func TestAGradientThatAHeadNeverGotIsPushedAgain(t *testing.T) {
	race.Skip(t)
	times := 0
	for seed := range seeds(60, 20) {
		for replicas := 1; replicas <= 3; replicas++ {
			cfg := synchronous(drawChain(seed, replicas))
			if seed%2 == 1 {
				cfg.Codec = "topk:0.25:fp32" // the bytes are kept, and the residual too
			}
			calm, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			cfg.forgets = 0.02
			got, err := Run(cfg)
			switch {
			case err != nil:
				t.Errorf("seed %d, %d replicas: %v", seed, replicas, err)
			case got.Lines != 1 || !slices.EqualFunc(calm.Steps, got.Steps, sameGradients) || !slices.Equal(calm.Params, got.Params):
				t.Errorf("seed %d, %d replicas: what workers forget changes the model", seed, replicas)
			}
			times += got.startedOver
		}
	}
	if times < 50 {
		t.Errorf("workers were made to start over %d times: this shows nothing", times)
	}
}

// The same while connections break, processes stand still and messages are duplicated: no promise
// is broken, and every run ends.
func TestNoSeedBreaksAPromiseWhileWorkersForget(t *testing.T) {
	race.Skip(t)
	for seed := range seeds(40, 20) {
		cfg := drawChain(seed, int(1+seed%3))
		cfg.Consistency, cfg.Faults, cfg.forgets = agg.Config{Lead: kintsugi.Infinite}, NetworkFaults, 0.02
		if _, err := Run(cfg); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
