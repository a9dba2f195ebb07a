package agg_test

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// slow is Round in its obvious form: it remembers everything that has ever happened, and searches
// it.
type slow struct {
	cfg      agg.Config
	released kintsugi.Step
	arrived  []kintsugi.Ticket // every ticket that was ever open
	counted  map[kintsugi.PushID]bool
	refused  map[kintsugi.PushID]bool
	open     []kintsugi.PushID // the committed step
}

func (s *slow) pending() []kintsugi.Ticket {
	var p []kintsugi.Ticket
	for _, t := range s.arrived {
		if !s.counted[t.Push] && !s.refused[t.Push] && !slices.Contains(s.open, t.Push) {
			p = append(p, t)
		}
	}
	return p
}

// has returns how many pending tickets a worker has.
func (s *slow) has(slot kintsugi.Slot) (n int) {
	for _, t := range s.pending() {
		if t.Push.Slot == slot {
			n++
		}
	}
	return n
}

func (s *slow) offer(t kintsugi.Ticket) agg.Verdict {
	switch {
	case s.counted[t.Push]:
		return agg.Counted
	case s.refused[t.Push]:
		return agg.Refuse
	case slices.ContainsFunc(s.arrived, func(a kintsugi.Ticket) bool { return a.Push == t.Push }):
		return agg.Duplicate
	case t.Push.Version > s.released || t.Push.Version < s.cfg.Oldest(s.released):
		s.refused[t.Push] = t.Push.Version <= s.released // a ticket of a later version may be valid later
		return agg.Refuse
	}
	s.arrived = append(s.arrived, t)
	return agg.Open
}

func (s *slow) decide(members int) []kintsugi.PushID {
	quota := min(s.cfg.Quota, members*min(max(1, s.cfg.PerWorker), max(1, s.cfg.Credit)))
	if s.cfg.Quota == 0 {
		quota = max(1, members-s.cfg.Backup)
	}
	var chosen []kintsugi.PushID
	for _, t := range s.pending() {
		same := 0
		for _, c := range chosen {
			if c.Slot == t.Push.Slot {
				same++
			}
		}
		if same < max(1, s.cfg.PerWorker) && len(chosen) < quota {
			chosen = append(chosen, t.Push)
		}
	}
	if len(s.open) > 0 || len(chosen) < quota {
		return nil
	}
	slices.SortFunc(chosen, kintsugi.PushID.Compare)
	s.open = chosen
	return chosen
}

func (s *slow) release() {
	s.released++
	for _, p := range s.open {
		s.counted[p] = true
	}
	s.open = nil
	for _, t := range s.pending() {
		if t.Push.Version < s.cfg.Oldest(s.released) {
			s.refused[t.Push] = true
		}
	}
}

// leave forgets what the worker in slot had open.
func (s *slow) leave(slot kintsugi.Slot) {
	for _, t := range s.pending() {
		if t.Push.Slot == slot {
			s.refused[t.Push] = true
		}
	}
}

// Workers send tickets in order, each as often as they like, and have no more of them open than
// they may. Their processes are restarted, and begin with the newest version.
func TestARoundDecidesAsTheSlowOneDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(t, "workers")
		cfg := agg.Config{
			Quota: rapid.IntRange(0, workers).Draw(t, "quota"), PerWorker: rapid.SampledFrom([]int{0, 2, math.MaxInt}).Draw(t, "per worker"),
			Late: agg.Late(rapid.IntRange(0, 1).Draw(t, "late")), Staleness: rapid.SampledFrom([]uint32{0, 1, 3, kintsugi.Infinite}).Draw(t, "staleness"),
			Credit: rapid.IntRange(0, 3).Draw(t, "credit"), Lead: kintsugi.Infinite,
		}
		if cfg.Quota == 0 {
			cfg.Backup = rapid.IntRange(0, workers-1).Draw(t, "backup")
		} else {
			cfg.Quota += rapid.IntRange(0, 4).Draw(t, "more than there are workers")
		}
		fast, ref := agg.NewRound(cfg, 0), &slow{cfg: cfg, counted: make(map[kintsugi.PushID]bool), refused: make(map[kintsugi.PushID]bool)}
		sent := make([][]kintsugi.Ticket, workers) // by the present process of each
		lives, begun := make([]kintsugi.Incarnation, workers), make([]kintsugi.Step, workers)
		for range 80 {
			switch slot := rapid.IntRange(0, workers-1).Draw(t, "slot"); rapid.IntRange(0, 4).Draw(t, "event") {
			case 0: // a new gradient, on a version no older than that of the previous one
				if ref.has(kintsugi.Slot(slot)) == cfg.Held() {
					continue // a worker waits to hear the fates of those that it has
				}
				next := ticket(kintsugi.Slot(slot), 0, 0)
				next.Push.Incarnation += lives[slot]
				oldest := begun[slot]
				if n := len(sent[slot]); n > 0 {
					oldest = sent[slot][n-1].Push.Version
					next.Push.Sequence = sent[slot][n-1].Push.Sequence + 1
				}
				next.Push.Version = kintsugi.Step(rapid.Uint64Range(uint64(oldest), uint64(ref.released)).Draw(t, "version"))
				sent[slot] = append(sent[slot], next)
				offer(t, fast, ref, next)
			case 1: // a repeated ticket
				if n := len(sent[slot]); n > 0 {
					offer(t, fast, ref, sent[slot][rapid.IntRange(0, n-1).Draw(t, "which")])
				}
			case 2:
				members := rapid.IntRange(1, workers).Draw(t, "members")
				d, _ := fast.Decide(members)
				if got, want := pushes(d), ref.decide(members); !slices.Equal(got, want) {
					t.Fatalf("decided %v, want %v", got, want)
				}
			case 3:
				if len(ref.open) > 0 {
					ref.release()
					for _, r := range fast.Release(ref.released) {
						if !ref.refused[r.Push] {
							t.Fatalf("%v is refused on release: %s", r.Push, r.Reason)
						}
					}
				}
			case 4:
				if rapid.IntRange(0, 3).Draw(t, "restarts") == 0 {
					lives[slot], begun[slot], sent[slot] = lives[slot]+1, ref.released, nil
					ref.leave(kintsugi.Slot(slot))
					fast.Leave(kintsugi.Slot(slot), ticket(0, 0, 0).Push.Incarnation+lives[slot])
					fast.Begin(kintsugi.Slot(slot))
				}
			}
			for slot := range workers {
				if got, want := fast.Has(kintsugi.Slot(slot)), ref.has(kintsugi.Slot(slot)); got != want {
					t.Fatalf("worker/%d has %d open tickets, want %d", slot, got, want)
				}
			}
			if got, want := fast.Waiting(), len(ref.pending()); got != want {
				t.Fatalf("%d tickets are open, want %d", got, want)
			}
		}
	})
}

// offer compares the verdicts. A ticket that was refused, and after which a newer one of its worker
// was counted, may be answered either way: its worker asks about neither any more.
func offer(t *rapid.T, fast *agg.Round, ref *slow, x kintsugi.Ticket) {
	got, reason := fast.Offer(x)
	want := ref.offer(x)
	if got == agg.Counted && want == agg.Refuse {
		for p := range ref.counted {
			if p.Slot == x.Push.Slot && p.Compare(x.Push) > 0 {
				return
			}
		}
	}
	if got != want {
		t.Fatalf("%v has verdict %d (%s), want %d", x.Push, got, reason, want)
	}
}

func TestTheOrderOfArrivalDoesNotChangeAStepOfAllMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "members")
		tickets := make([]kintsugi.Ticket, n)
		for i := range tickets {
			tickets[i] = ticket(kintsugi.Slot(i), 0, 0)
			tickets[i].Examples = uint32(rapid.IntRange(1, 1000).Draw(t, "examples"))
		}
		decide := func(order []kintsugi.Ticket) agg.Decision {
			r := agg.NewRound(agg.Config{}, 0)
			for _, x := range order {
				r.Offer(x)
			}
			d, ok := r.Decide(n)
			if !ok {
				t.Fatalf("%d tickets of %d members make no step", len(order), n)
			}
			return d
		}
		if got, want := decide(rapid.Permutation(tickets).Draw(t, "order")), decide(tickets); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, in order of slots %+v", got, want)
		}
	})
}
