package ckpt

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

func TestInOrderKeepsOrderAndBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n, workers := rng.IntN(50), rng.IntN(6)
		ahead := 0
		if workers > 0 {
			ahead = rng.IntN(6)
		}
		end := rng.IntN(n + 1) // where the loop is left
		var running, begun, yielded atomic.Int32
		want := 0
		for i, got := range inOrder(n, workers, ahead, func(i int) int {
			defer running.Add(-1)
			if r := running.Add(1); int(r) > max(1, workers) {
				t.Errorf("%d calls at once, of %d", r, workers)
			}
			// One result is with the loop, which has not said yet that it is done with it.
			if made := begun.Add(1) - yielded.Load(); int(made) > ahead+1 {
				t.Errorf("%d results are made that nobody has, of %d", made-1, ahead)
			}
			return 7 * i
		}) {
			if i != want || got != 7*i {
				t.Fatalf("result %d is %d, want the one of %d", i, got, want)
			}
			yielded.Add(1)
			if want++; want == end {
				break
			}
		}
		if want != end && (end > 0 || want != n) || running.Load() != 0 {
			t.Fatalf("%d results of %d, left after %d; %d calls still run", want, n, end, running.Load())
		}
	}
}
