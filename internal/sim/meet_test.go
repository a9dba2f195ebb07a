package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// meetRun returns the undisturbed run of a seed in which deaths are to meet, with every worker
// counted in every step.
func meetRun(seed uint64, replicas int) Config {
	cfg := Draw(seed, 40)
	cfg.Servers, cfg.Workers = max(cfg.Servers, replicas, 2), max(cfg.Workers, 2)
	cfg.Chunks = max(cfg.Chunks, cfg.Servers) // so that no shard is empty
	cfg.SaveEvery = max(cfg.SaveEvery, 1)
	cfg.Replicas, cfg.Partial, cfg.Outside, cfg.RunEvery = replicas, false, replicas == 1, 0
	cfg = synchronous(cfg)
	return cfg
}

// Deaths meet, each kind three times in a run, with one replica of each shard and memory outside
// the process, with two replicas and with three. While a replica of each shard is left, no line
// ends, and nothing is taken back. Otherwise all go back to the newest checkpoint. Either way the
// run ends with the bits of an undisturbed one.
func TestDeathsThatMeetDoNotChangeTheModel(t *testing.T) {
	race.Skip(t)
	// The smallest number of replicas with which a line survives a meeting. With fewer, a line
	// begins at a checkpoint.
	outlives := map[meeting]int{
		headAndTail: 3, headAndWorker: 2, serverAndCoordinator: 2, joinerAgain: 2, joinerAndSource: 3, serverAsItNames: 2, allServers: 4, headAndNext: 3,
	}
	var calm [4][]Result
	n := seeds(8, 2)
	for m := headAndTail; m < meetings; m++ {
		met, began := 0, 0
		for replicas := 1; replicas <= 3; replicas++ {
			if replicas == 1 && (m == joinerAgain || m == joinerAndSource) {
				continue // with one replica, nobody joins a chain
			}
			for seed := range n {
				cfg := meetRun(seed, replicas)
				if uint64(len(calm[replicas])) == seed {
					r, err := Run(cfg)
					if err != nil {
						t.Fatal(err)
					}
					calm[replicas] = append(calm[replicas], r)
				}
				want := calm[replicas][seed]
				cfg.meet, cfg.meetEvery = m, want.Virtual/6
				got, err := Run(cfg)
				if err != nil {
					t.Fatalf("%v, %d replicas, seed %d: %v", m, replicas, seed, err)
				}
				met += got.met
				began += got.Lines - 1
				switch {
				case replicas == 1: // a line goes on with what lies outside the processes
					if got.Base > 0 {
						t.Errorf("%v, seed %d: nothing was lost, and line %d begins at step %d", m, seed, got.Lines, got.Base)
					}
				case replicas >= outlives[m] && got.Lines > 1:
					t.Errorf("%v, %d replicas, seed %d: %d lines; every shard had a replica left", m, replicas, seed, got.Lines)
				}
				if !slices.Equal(want.Params, got.Params) {
					t.Errorf("%v, %d replicas, seed %d: the model is another", m, replicas, seed)
				}
			}
		}
		if uint64(met) < 2*n {
			t.Errorf("%v: %d times in %d runs: that proves nothing", m, met, 3*n)
		}
		if outlives[m] > 2 && began == 0 {
			t.Errorf("%v: no line has ended, though some shards have lost all replicas", m)
		}
		t.Logf("%v: %d times, %d lines began", m, met, began)
	}
}

// A head and a worker of the same step die together, and the worker is not waited for. The step is
// decided anew without it, and nothing that was released is taken back.
func TestAStepWhoseHeadAndWorkerDieIsDecidedAnew(t *testing.T) {
	race.Skip(t)
	met, fewer := 0, 0
	for seed := range seeds(8, 4) {
		for replicas := 1; replicas <= 3; replicas++ {
			cfg := meetRun(seed, replicas)
			cfg.LeaveGrace, cfg.RejoinGrace = time.Millisecond, time.Millisecond
			calm, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			cfg.meet, cfg.meetEvery = headAndWorker, calm.Virtual/6
			got, err := Run(cfg)
			if err != nil {
				t.Fatalf("%d replicas, seed %d: %v", replicas, seed, err)
			}
			if met += got.met; replicas > 1 && got.Lines > 1 || got.Base > 0 {
				t.Errorf("%d replicas, seed %d: line %d begins at step %d", replicas, seed, got.Lines, got.Base)
			}
			for _, s := range got.Steps {
				if len(s.Counted) < cfg.Workers {
					fewer++
				}
			}
		}
	}
	if met < 9 || fewer < met/4 {
		t.Errorf("%d times, %d steps without somebody: that proves nothing", met, fewer)
	}
}

// If nobody has a shard any more, gold restores it alone, and the others keep theirs: no line
// begins at a checkpoint.
func TestDeathsThatMeetLeaveGoldWhatTheyLeft(t *testing.T) {
	race.Skip(t)
	for _, m := range []meeting{headAndTail, headAndWorker, serverAndCoordinator, joinerAgain, joinerAndSource, serverAsItNames} {
		met, alone := 0, 0
		for seed := range seeds(8, 3) {
			cfg := meetRun(seed, 2)
			cfg.Servers, cfg.Partial, cfg.RunEvery = max(cfg.Servers, 3), true, 2
			cfg.Chunks = max(cfg.Chunks, cfg.Servers)
			calm, err := Run(cfg)
			if err != nil {
				t.Fatal(err)
			}
			cfg.meet, cfg.meetEvery = m, calm.Virtual/6
			got, err := Run(cfg)
			if err != nil {
				t.Fatalf("%v, seed %d: %v", m, seed, err)
			}
			met, alone = met+got.met, alone+got.Partials
			if lost := m == headAndTail || m == joinerAndSource; !lost && got.Partials > 0 {
				t.Errorf("%v, seed %d: every shard had a replica left, and %d came back as they were saved", m, seed, got.Partials)
			}
		}
		if met < 6 || m == headAndTail && alone < met {
			t.Errorf("%v: %d times, %d shards came back alone: that proves nothing", m, met, alone)
		}
		t.Logf("%v: %d times, %d shards came back alone", m, met, alone)
	}
}
