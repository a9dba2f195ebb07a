package sim

import (
	"slices"
	"testing"
)

// Chains change no bit of the model, and neither does the death of any server at any time, whatever comes in again: no step
// is taken back, and the run stays on its line.
func TestServersOfChainsDieAndTheModelIsTheSame(t *testing.T) {
	want := run(t, base(t), nil)
	for _, replicas := range []int{2, 3} {
		cfg := base(t)
		cfg.Servers, cfg.Replicas, cfg.Threads = 3, replicas, 2
		if got := run(t, cfg, nil); !slices.EqualFunc(got, want, sameBits) {
			t.Errorf("%d replicas that are left in peace end with another model", replicas)
		}
		for victim := range 4 - replicas { // with two replicas: the conductor's host, and another
			got := run(t, cfg, func(l *Live) {
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
