package sim

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// drawNext returns the run of a seed in which the next replica answers for those behind it, under
// all faults.
func drawNext(seed uint64, replicas int) Config {
	cfg := drawChain(seed, replicas)
	cfg.NextAnswers = true
	return cfg
}

// Where the next replica answers for those behind it, a line goes on, whatever goes wrong, as long
// as each shard has its head or its next replica, which have everything. A shard that has lost both
// falls back by a few steps at most, to what the replica behind them knows to be released, and the
// others stay as they are. A coordinator that took a replica which may lack steps for whole would
// be noticed.
func TestNoSeedBreaksAPromiseWhereTheNextAnswers(t *testing.T) {
	race.Skip(t)
	n := seeds(40, 30)
	views, lines, partials, found := 0, 0, 0, false
	for seed := range n {
		for _, replicas := range []int{3, 4} {
			cfg := drawNext(seed, replicas)
			r, err := Run(cfg)
			if err != nil {
				t.Errorf("seed %d, %d replicas: %v", seed, replicas, err)
			}
			views, lines, partials = views+r.Views, lines+r.Lines, partials+r.Partials
			if !found {
				cfg.plant = nextWhole
				_, err := Run(cfg)
				found = err != nil
			}
		}
	}
	t.Logf("%d views on %d lines, %d shards fell back", views, lines, partials)
	if views < lines*3/2 || uint64(partials) < n/10 || !found {
		t.Errorf("%d views on %d lines, %d shards fell back, one that takes whoever is behind for whole is found: %v", views, lines, partials, found)
	}
}

// The same while servers stay away for longer than they are waited for: others take their places in
// chains, and give them back.
func TestNoSeedBreaksAPromiseWhereTheNextAnswersAndShardsMove(t *testing.T) {
	race.Skip(t)
	n := seeds(40, 20)
	views := 0
	for seed := range n {
		cfg := drawMoving(seed, 3)
		cfg.NextAnswers, cfg.Partial, cfg.RunEvery = true, false, 0
		cfg.Servers = max(4, cfg.Servers)
		r, err := Run(cfg)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		views += r.Views - r.Lines
	}
	if uint64(views) < n {
		t.Errorf("lines went on %d times: the storms prove nothing", views)
	}
}

// Every step counts every worker, and one server at a time dies, whatever it heads and follows. Not
// a bit of the model changes. Nor does it if deaths meet and each shard keeps its head or its next
// replica.
func TestServersThatDieWhereTheNextAnswersDoNotChangeTheModel(t *testing.T) {
	race.Skip(t)
	died, met, n := 0, 0, seeds(20, 5)
	for seed := range n {
		cfg := synchronous(drawNext(seed, 3))
		calm, err := Run(cfg)
		if err != nil || calm.Lines != 1 {
			t.Fatalf("seed %d: %d lines, %v", seed, calm.Lines, err)
		}
		cfg.killEvery = calm.Virtual / 4
		got, err := Run(cfg)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		died += got.Views - 1
		if got.Lines == 1 && (!slices.EqualFunc(calm.Steps, got.Steps, sameGradients) || !slices.Equal(calm.Params, got.Params)) {
			t.Errorf("seed %d: the deaths of servers change the model", seed)
		}
		for _, m := range []meeting{headAndTail, headAndWorker, serverAndCoordinator, joinerAgain, serverAsItNames} {
			cfg := meetRun(seed, 3)
			cfg.NextAnswers = true
			calm, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			cfg.meet, cfg.meetEvery = m, calm.Virtual/6
			got, err := Run(cfg)
			if err != nil {
				t.Fatalf("%v, seed %d: %v", m, seed, err)
			}
			if met += got.met; got.Lines == 1 && !slices.Equal(calm.Params, got.Params) {
				t.Errorf("%v, seed %d: the model is another", m, seed)
			}
		}
	}
	if uint64(died) < 2*n || uint64(met) < 5*n {
		t.Errorf("%d views, %d meetings: hardly anybody dies", died, met)
	}
}

// Head and next replica die together. The last released steps of their shard may be lost. A line
// begins, on which that shard falls back to what the replica behind them has.
func TestHeadAndNextThatDieTogetherBeginALine(t *testing.T) {
	race.Skip(t)
	met, fell, n := 0, 0, seeds(20, 5)
	for seed := range n {
		cfg := meetRun(seed, 3)
		cfg.Servers = max(4, cfg.Servers)
		cfg.Chunks = max(cfg.Chunks, cfg.Servers)
		cfg.NextAnswers = true
		calm, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg.meet, cfg.meetEvery = headAndNext, calm.Virtual/6
		got, err := Run(cfg)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		met, fell = met+got.met, fell+got.Partials
		if got.met > 0 && got.Lines == 1 {
			t.Errorf("seed %d: head and next died, and the line went on", seed)
		}
	}
	t.Logf("%d times, %d shards fell back", met, fell)
	if uint64(met) < n || fell < met/2 {
		t.Errorf("%d times, %d shards fell back: that proves nothing", met, fell)
	}
}
