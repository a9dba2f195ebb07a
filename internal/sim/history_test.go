package sim

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/internal/serial"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// oneServer returns what a single server would make: for each version, the sum of the gradients of
// all workers in all steps up to it.
func oneServer(cfg Config) []uint64 {
	c, err := newCluster(cfg)
	if err != nil {
		panic(err)
	}
	values := c.oracle.initial
	sums := []uint64{digest(values)}
	for step := kintsugi.Step(1); step <= cfg.Steps; step++ {
		m := kintsugi.Commit{Step: step, Optimizer: cfg.schedule().At(step)}
		examples := 0.0
		for slot := range kintsugi.Slot(cfg.Workers) {
			id := kintsugi.PushID{Line: 1, Slot: slot, Version: step - 1}
			m.Counted = append(m.Counted, kintsugi.Weighted{Push: id, Weight: float32(examplesOf(id))})
			examples += float64(examplesOf(id))
		}
		m.Scale = float32(1 / examples)
		next := make([]uint64, len(values))
		for i, v := range values {
			next[i] = stepOf(v, &m, func(k int) uint64 {
				return gradientOf(m.Counted[k].Push, kintsugi.ChunkID(i), sums[step-1])
			})
		}
		values, sums = next, append(sums, digest(next))
	}
	return sums
}

// seen returns what the workers of a run saw.
func seen(cfg Config, w *watched) *serial.History {
	h := &serial.History{Workers: cfg.Workers, Sums: oneServer(cfg)}
	for _, p := range w.pulls {
		h.Pulled(p.slot, p.version, p.sum, p.call, p.end)
	}
	for _, p := range w.pushes {
		h.Pushed(p.id.Slot, p.id.Version, p.step, p.call, p.end)
	}
	return h
}

// synchronous returns cfg without faults, with every worker counted in every step, dead or not.
// What is drawn from a seed then changes only the times.
func synchronous(cfg Config) Config {
	cfg.Consistency = agg.Config{Lead: kintsugi.Infinite}
	cfg.LeaveGrace, cfg.StartGrace, cfg.RejoinGrace = time.Hour, time.Hour, time.Hour
	cfg.Faults, cfg.StopAfter, cfg.Hold = 0, 0, 0
	return cfg
}

// While servers are killed, and streams break, stall and are cut off, workers see what a single
// server that does one thing after the other would show them.
func TestWhatWorkersSeeIsInOrder(t *testing.T) {
	race.Skip(t)
	n := uint64(60)
	if testing.Short() {
		n = 20
	}
	if *seedsFlag > 0 {
		n = *seedsFlag
	}
	operations, views, skipped := 0, 0, 0
	for seed := range n {
		for _, replicas := range []int{2, 3} {
			cfg := synchronous(drawChain(seed, replicas))
			cfg.Faults = NetworkFaults
			calm := cfg
			calm.Faults = 0
			r, err := Run(calm)
			if err != nil {
				t.Fatal(err)
			}
			cfg.watch, cfg.killEvery = &watched{}, r.Virtual*3/10
			if r, err = Run(cfg); err != nil {
				t.Errorf("seed %d, %d replicas: %v", seed, replicas, err)
				continue
			}
			if r.Lines > 1 {
				skipped++ // two that died together took a shard with them: what was read of it is void
				continue
			}
			h := seen(cfg, cfg.watch)
			if err := h.Check(time.Minute); err != nil {
				t.Errorf("seed %d, %d replicas: %v", seed, replicas, err)
			}
			operations, views = operations+h.Len(), views+r.Views
		}
	}
	t.Logf("%d operations in order; %d views; %d runs on a second line", operations, views, skipped)
	if skipped > int(n) || operations < 20*int(n) || views < 3*int(n) {
		t.Errorf("%d of %d runs on a second line, %d operations, %d views: there is hardly anything to check", skipped, 2*n, operations, views)
	}
}

// A worker that reads an old version again, from a server that does not know that it was replaced,
// is noticed.
func TestAnOldVersionThatIsReadAgainIsOutOfOrder(t *testing.T) {
	cfg := synchronous(drawChain(1, 2))
	cfg.Faults = NetworkFaults
	cfg.watch = &watched{}
	if _, err := Run(cfg); err != nil {
		t.Fatal(err)
	}
	if err := seen(cfg, cfg.watch).Check(time.Minute); err != nil {
		t.Fatal(err)
	}
	old, last := cfg.watch.pulls[0], time.Duration(0)
	for _, p := range cfg.watch.pulls {
		last = max(last, p.end)
	}
	old.call, old.end = last+1, time.Duration(math.MaxInt64-1)
	cfg.watch.pulls = append(cfg.watch.pulls, old)
	if err := seen(cfg, cfg.watch).Check(time.Minute); !errors.Is(err, serial.ErrOutOfOrder) {
		t.Errorf("got %v, want %v", err, serial.ErrOutOfOrder)
	}
}
