package roster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Servers come and go in any order. Each shard is on as many of the present servers as possible,
// and first of all on those that it belongs to. The load is even: no server has more shards than
// another that could take one that is away from home.
func TestPlacesAreEven(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := 1 + rng.IntN(7)
		replicas := 1 + rng.IntN(n)
		s, err := New(Config{Servers: n, Replicas: replicas, MoveAfter: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s.view = &kintsugi.View{Servers: make([]kintsugi.Member, n), Replicas: replicas, Chains: chains(n, replicas)}
		in := make([]bool, n)
		for range 12 {
			for i := range in {
				in[i] = rng.IntN(3) > 0
			}
			in[rng.IntN(n)] = true
			s.view.Chains = s.places(func(id kintsugi.ServerID) bool { return in[id] })
			checkPlaces(t, in, replicas, s.view.Chains)
			if again := s.places(func(id kintsugi.ServerID) bool { return in[id] }); fmt.Sprint(again) != fmt.Sprint(s.view.Chains) {
				t.Errorf("nobody comes or goes, and %v becomes %v", s.view.Chains, again)
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

func checkPlaces(t *testing.T, in []bool, replicas int, after [][]kintsugi.ServerID) {
	there := 0
	load := make([]int, len(in))
	for _, yes := range in {
		if yes {
			there++
		}
	}
	for _, id := range slices.Concat(after...) {
		load[id]++
	}
	for i, home := range chains(len(in), replicas) {
		chain := after[i]
		if distinct := slices.Compact(slices.Sorted(slices.Values(chain))); len(distinct) != min(replicas, there) {
			t.Errorf("%v in: shard %d is on %v", in, i, chain)
		}
		for _, id := range home {
			if in[id] && !slices.Contains(chain, id) {
				t.Errorf("%v in: shard %d is on %v, and belongs to server/%d", in, i, chain, id)
			}
		}
		for _, id := range chain {
			if !in[id] {
				t.Errorf("%v in: shard %d is on %v", in, i, chain)
			}
			for to := range in {
				if free := in[to] && !slices.Contains(chain, kintsugi.ServerID(to)); free && !slices.Contains(home, id) && load[id] > load[to]+1 {
					t.Errorf("%v in: server/%d has %d and server/%d has %d, chains %v", in, id, load[id], to, load[to], after)
				}
			}
		}
	}
}

// Servers with one replica of each shard are lost one after the other. Shards on living servers
// stay where they are.
func TestWhatIsNotLostDoesNotMove(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		n := 2 + rng.IntN(7)
		s, err := New(Config{Servers: n, MoveAfter: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s.view = &kintsugi.View{Servers: make([]kintsugi.Member, n), Replicas: 1, Chains: chains(n, 1)}
		gone := make(map[kintsugi.ServerID]bool)
		for _, id := range rng.Perm(n)[1:] {
			if gone[kintsugi.ServerID(id)] = true; rng.IntN(3) == 0 {
				continue // together with the next one
			}
			before := s.view.Chains
			s.view.Chains = s.places(func(id kintsugi.ServerID) bool { return !gone[id] })
			for i, chain := range before {
				if !gone[chain[0]] && s.view.Chains[i][0] != chain[0] {
					t.Errorf("seed %d: without %v %v becomes %v", seed, gone, before, s.view.Chains)
				}
			}
		}
	}
}

// The obvious version, for one replica: no server is waited for that has been away for longer than
// the limit, as far as the coordinator knows, unless all are away. The head of a shard on a line
// that goes on has had the shard before.
func TestNobodyIsWaitedForLongerThanSaid(t *testing.T) {
	moved, back := 0, 0
	for seed := range uint64(300) {
		var knows *State
		since, there := make(map[kintsugi.ServerID]time.Time), make(map[kintsugi.ServerID]int64)
		storm(t, seed, func(w *world, before *kintsugi.View, d Decision) {
			if knows != w.state {
				clear(since)
				knows = w.state
			}
			all := len(there) == 0 // servers that were away at some time since the last decision; the first that is back waits for the others
			for id, since := range there {
				all = all || len(there) == 1 && w.present[id].Since != since
			}
			there = make(map[kintsugi.ServerID]int64)
			for id, j := range w.present {
				if int(id) < w.cfg.Servers {
					there[id] = j.Since
				}
			}
			for id := range since {
				if all {
					since[id] = w.now
				}
			}
			for id := range kintsugi.ServerID(w.cfg.Servers) {
				if _, ok := w.present[id]; ok || w.silent[id] {
					delete(since, id)
				} else if _, ok := since[id]; !ok {
					since[id] = w.now
				}
			}
			if before == nil {
				return
			}
			v := d.View
			if v == nil {
				v = before
			}
			stands := false
			for _, chain := range v.Chains {
				at, away := since[chain[0]]
				if away && d.View != nil {
					t.Errorf("after %+v comes %+v", before, v)
				}
				stands = stands || away && w.now.Sub(at) < w.cfg.MoveAfter || w.silent[chain[0]]
			}
			for i, chain := range v.Chains {
				_, away := since[chain[0]]
				if away && !stands && len(there) > 0 {
					t.Errorf("shard %d waits for server/%d in vain: %+v, %s", i, chain[0], v, d.Reason)
				}
				if d.View == nil || !v.Continues {
					continue
				}
				if !w.has(before, i, chain[0]) {
					t.Errorf("after %+v server/%d has nothing of shard %d: %+v", before, chain[0], i, v)
				}
				if int(chain[0]) == i && int(before.Chains[i][0]) != i {
					back++
				}
			}
			for i, chain := range v.Chains {
				if d.View != nil && int(chain[0]) != i {
					moved++
				}
			}
		}, moving(1), func(cfg *Config) { cfg.Replicas, cfg.Hold, cfg.LapsesForgiven = 1, 0, true })
	}
	if moved < 1000 || back < 100 {
		t.Errorf("shards were away from home %d times and came back %d times: the storm proves nothing", moved, back)
	}
}

// Whatever has happened: when all servers are there and have all that they are sent, each shard is
// where it belongs after a few views, and stays there.
func TestEveryShardComesHome(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 2 + rng.IntN(4)
		w := newWorld(t, Config{Servers: n, Replicas: 1 + rng.IntN(2), Partial: seed%2 == 0, LapsesForgiven: true, MoveAfter: time.Second})
		var life kintsugi.Incarnation
		for range 60 {
			id := kintsugi.ServerID(rng.IntN(n))
			switch rng.IntN(4) {
			case 0:
				w.leave(id)
			case 1:
				life++
				w.join(id, life, 0)
			case 2:
				w.whole(id)
			default:
				w.now = w.now.Add(time.Second)
			}
			w.decide()
		}
		for id := range kintsugi.ServerID(n) {
			if _, there := w.present[id]; !there {
				life++
				w.join(id, life, 0)
			}
		}
		for range 4 * n {
			w.decide()
			for id := range kintsugi.ServerID(n) {
				w.whole(id)
			}
		}
		if d := w.decide(); d.View != nil {
			t.Errorf("seed %d: it does not come to rest: %s", seed, d.Reason)
		}
		for i, home := range chains(n, w.cfg.Replicas) {
			if got := slices.Sorted(slices.Values(w.view.Chains[i])); !slices.Equal(got, slices.Sorted(slices.Values(home))) {
				t.Errorf("seed %d: in the end shard %d is on %v, and belongs to %v", seed, i, w.view.Chains[i], home)
			}
		}
	}
}
