package live

import (
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// Chains change no bit of the model, and neither does the death of any server at any time, nor its
// return. No step is taken back, and the run stays on its line.
func TestServersOfChainsDieAndTheModelIsTheSame(t *testing.T) {
	serversOfChainsDie(t, base(t))
}

// The same holds if codecs leave parts of gradients out: each worker keeps exactly what was left
// out of its counted gradients.
func TestServersOfChainsDieAndTheModelWithFeedbackIsTheSame(t *testing.T) {
	race.Skip(t)
	serversOfChainsDie(t, withCodecs(t, base(t), "topk:0.05", "sign+s2", "int8:stochastic"))
}

func serversOfChainsDie(t *testing.T, base Config) {
	want := run(t, base, nil)
	for _, replicas := range []int{2, 3} {
		cfg := base
		cfg.Servers, cfg.Replicas, cfg.Threads = 3, replicas, 2
		if peace := !brief(); peace { // otherwise the steps before the first death are enough
			if got := run(t, cfg, nil); !slices.EqualFunc(got, want, sameBits) {
				t.Errorf("%d replicas that are left in peace end with another model", replicas)
			}
		}
		for victim := range 4 - replicas { // with two replicas: the conductor's server, and another
			got := run(t, cfg, func(l *Cluster) {
				until(t, l, 12)
				l.KillServer(victim)
				l.GoOn("a server died")
				until(t, l, 24)
				if err := l.StartServer(victim); err != nil {
					t.Fatal(err)
				}
				l.GoOn("it came back")
				l.CaughtUp(victim)
				l.KillServer((victim + 1) % 3)
				l.GoOn("its neighbour died")
				if line := l.View().Line; line != 1 {
					t.Errorf("it goes on on line %d", line)
				}
			})
			if !slices.EqualFunc(got, want, sameBits) {
				t.Errorf("%d replicas: killing server %d changed the model", replicas, victim)
			}
		}
	}
}

// The number of replicas changes while the run lasts, up to chains and back to memory outside the
// processes, and servers die with each number. Nothing is taken back, and the model is the same to
// the last bit.
func TestTheNumberOfReplicasChangesAndTheModelIsTheSame(t *testing.T) {
	numberOfReplicasChanges(t, base(t))
}

func TestTheNumberOfReplicasChangesAndTheModelWithFeedbackIsTheSame(t *testing.T) {
	race.Skip(t)
	numberOfReplicasChanges(t, withCodecs(t, base(t), "topk:0.05", "sign+s2", "int8:stochastic"))
}

func numberOfReplicasChanges(t *testing.T, calm Config) {
	calm.Steps = 90
	want := run(t, calm, nil)
	cfg := calm
	cfg.Servers, cfg.SaveEvery, cfg.RunEvery, cfg.Outside = 3, 0, 4, t.TempDir()
	again := func(l *Cluster, victim int) {
		l.KillServer(victim)
		if err := l.StartServer(victim); err != nil {
			t.Fatal(err)
		}
	}
	got := run(t, cfg, func(l *Cluster) {
		until(t, l, 10)
		l.Rechain(2)
		until(t, l, 20)
		l.KillServer(0)
		l.GoOn("a server died")
		if err := l.StartServer(0); err != nil {
			t.Fatal(err)
		}
		l.GoOn("it came back")
		l.CaughtUp(0)
		until(t, l, 40)
		l.Rechain(1)
		until(t, l, 50)
		again(l, 2)
		l.NewContinuedView("it found what it held")
		until(t, l, 60)
		again(l, 0)
		again(l, 1)
		l.NewContinuedView("two found what they held")
		if line := l.View().Line; line != 3 {
			t.Errorf("it goes on on line %d", line)
		}
	})
	if !slices.EqualFunc(got, want, sameBits) {
		t.Error("another model")
	}
}
