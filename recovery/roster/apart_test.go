package roster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// unreached carries out "server/1 does not reach server/0 server/2" or "server/1 reaches
// everybody".
func (w *world) unreached(t testing.TB, line string) {
	t.Helper()
	var id kintsugi.ServerID
	who, whom, _ := strings.Cut(line, " does not reach ")
	if _, err := fmt.Sscanf(who, "server/%d", &id); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	var others []kintsugi.ServerID
	for word := range strings.FieldsSeq(whom) {
		var other kintsugi.ServerID
		if _, err := fmt.Sscanf(word, "server/%d", &other); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		others = append(others, other)
	}
	w.says(id, others...)
}

// says makes a server report which others it does not reach, in their present lives.
func (w *world) says(id kintsugi.ServerID, others ...kintsugi.ServerID) {
	j, ok := w.present[id]
	if !ok {
		return
	}
	j.Apart = nil
	for _, other := range others {
		j.Apart = append(j.Apart, kintsugi.Life{Server: other, Incarnation: w.present[other].Member.Incarnation})
	}
	w.present[id] = j
	w.state.Handle(w.now, j)
}

// Whatever servers report of each other, a line never ends because of it if other replicas have
// everything. When nobody has reported anything new for a while, two servers that do not reach each
// other are both in chains only if neither can be spared.
func TestOfTwoThatDoNotReachEachOtherOneIsLeftOutIfItCanBeSpared(t *testing.T) {
	parted, stuck, met := 0, 0, 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 7))
		cfg := Config{Servers: 2 + rng.IntN(4)}
		cfg.Replicas = 2 + rng.IntN(cfg.Servers-1)
		w := newWorld(t, cfg)
		lives := make(map[kintsugi.ServerID]kintsugi.Incarnation)
		join := func(id kintsugi.ServerID) {
			lives[id]++
			w.join(id, lives[id], 0)
		}
		for id := range kintsugi.ServerID(cfg.Servers + rng.IntN(2)) {
			join(id)
		}
		w.decide()
		for range 40 {
			id := kintsugi.ServerID(rng.IntN(cfg.Servers))
			switch rng.IntN(6) {
			case 0:
				join(id)
			case 1:
				w.die(id)
			case 2, 3:
				var others []kintsugi.ServerID
				for other := range kintsugi.ServerID(cfg.Servers + 1) {
					if rng.IntN(3) == 0 {
						others = append(others, other) // also itself, absent servers, and servers without a place
					}
				}
				w.says(id, others...)
			case 4:
				w.says(id)
			case 5:
				w.restart(t)
			}
			line := w.view.Line
			left := canGoOn(w, func(id kintsugi.ServerID) bool { _, ok := w.present[id]; return ok })
			w.now = w.now.Add(time.Duration(rng.IntN(3)) * time.Second)
			w.decide()
			if left && w.view.Line != line {
				t.Fatalf("seed %d: line %d ends although each shard had a whole replica", seed, line)
			}
			for i := 0; i < 20; i++ { // everything settles
				w.now = w.now.Add(5 * time.Second)
				if rng.IntN(2) == 0 {
					w.whole(kintsugi.ServerID(rng.IntN(cfg.Servers)))
				}
				if d := w.decide(); d.View == nil && i > 4 {
					break
				}
			}
			if !canGoOn(w, func(id kintsugi.ServerID) bool { _, ok := w.present[id]; return ok }) {
				continue
			}
			in := slices.Concat(w.view.Chains...)
			for a := range kintsugi.ServerID(cfg.Servers) {
				for b := range a {
					both := slices.Contains(in, a) && slices.Contains(in, b)
					switch apart := doNotReach(w, a, b); {
					case !apart && both:
						met++
					case apart && !both:
						parted++
					case apart:
						stuck++
						for _, out := range []kintsugi.ServerID{a, b} {
							if canGoOn(w, func(id kintsugi.ServerID) bool { return id != out && slices.Contains(in, id) }) {
								t.Fatalf("seed %d: server/%d and server/%d do not reach each other, chains %v, and server/%d can be spared", seed, a, b, w.view.Chains, out)
							}
						}
					}
				}
			}
		}
	}
	if parted < 1000 || stuck < 50 || met < 1000 {
		t.Errorf("%d pairs were parted, %d could not be, and %d met: the storm proves nothing", parted, stuck, met)
	}
}

// canGoOn reports whether each shard of the view has a replica with everything among the servers
// for which in is true.
func canGoOn(w *world, in func(kintsugi.ServerID) bool) bool {
	for _, chain := range w.view.Chains {
		if !slices.ContainsFunc(chain, func(id kintsugi.ServerID) bool {
			j, m := w.present[id], w.view.Servers[id]
			return in(id) && j.Member.Incarnation == m.Incarnation && (m.Since == 0 || j.Whole >= m.Since || id == chain[0])
		}) {
			return false
		}
	}
	return true
}

// doNotReach reports whether one of two servers that are present says that it does not reach the
// other in its present life.
func doNotReach(w *world, a, b kintsugi.ServerID) bool {
	x, here := w.present[a]
	y, there := w.present[b]
	return here && there && (slices.Contains(x.Apart, y.Member.Life()) || slices.Contains(y.Apart, x.Member.Life()))
}
