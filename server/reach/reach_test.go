package reach

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// try is one attempt to reach a server, which succeeded or not.
type try struct {
	at time.Time
	ok bool
}

// apart is the obvious version, which goes over all tries. A server is apart from the first failure
// at the end of a time After of failures without a success, until the first success at the end of a
// time Again of successes without a failure.
func apart(tries []try) bool {
	is := false
	for i, x := range tries {
		since := x.at
		for j := i; j >= 0 && tries[j].ok == x.ok; j-- {
			since = tries[j].at
		}
		switch lasts := x.at.Sub(since); {
		case !x.ok && lasts >= After:
			is = true
		case x.ok && lasts >= Again:
			is = false
		}
	}
	return is
}

func TestWhoIsApartIsWhoTriesHaveFailedToReachForAWhile(t *testing.T) {
	changes, forgotten := 0, 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(0, 0)
		var s State
		all := make(map[kintsugi.Life][]try)
		lives := []kintsugi.Life{{Server: 0, Incarnation: 1}, {Server: 0, Incarnation: 2}, {Server: 3, Incarnation: 1}}
		works := make(map[kintsugi.Life]bool)
		for range 300 {
			before := s.Apart()
			now = now.Add(time.Duration(rng.IntN(800)) * time.Millisecond)
			l := lives[rng.IntN(len(lives))]
			if rng.IntN(12) == 0 {
				works[l] = !works[l]
			}
			var changed bool
			if rng.IntN(60) == 0 {
				changed = s.Forget(func(x kintsugi.Life) bool { return x == l })
				delete(all, l)
				forgotten++
			} else {
				changed = s.Tried(now, l, works[l])
				all[l] = append(all[l], try{now, works[l]})
			}
			var want []kintsugi.Life
			for _, l := range lives {
				if apart(all[l]) {
					want = append(want, l)
				}
			}
			if got := s.Apart(); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %v are apart, want %v", seed, got, want)
			}
			if changed != !slices.Equal(before, want) {
				t.Fatalf("seed %d: %v, then %v, changed: %v", seed, before, want, changed)
			}
			if changed {
				changes++
			}
		}
		for _, l := range lives { // nothing is kept of those that are reached
			for range 5 {
				s.Tried(now, l, true)
				now = now.Add(time.Second)
			}
		}
		if len(s.peers) != 0 {
			t.Fatalf("seed %d: %d are remembered", seed, len(s.peers))
		}
	}
	if changes < 1000 || forgotten < 100 {
		t.Errorf("%d changes, %d times forgotten: nothing is shown", changes, forgotten)
	}
}
