package agg_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// drawPreset draws a preset that fits a run of that many workers.
func drawPreset(t *rapid.T, workers int) agg.Config {
	var fit []agg.Config
	for _, text := range []string{
		"bsp", "backup:0", "backup:1", "backup:2", "async", "async:discount", "async:staleness=2", "async:credit=3", "async:drop",
		"ssp:0", "ssp:2", "ssp:2,discount,sum", "rennala:1", "rennala:5", "rennala:5,limit=2", "backup:1,staleness=1,discount",
		"dbw", "adasync:2",
	} {
		if c, err := agg.Preset(text); err == nil && c.Check(workers) == nil {
			fit = append(fit, c)
		}
	}
	return rapid.SampledFrom(fit).Draw(t, "preset")
}

// Workers each compute on the newest version as many gradients as they have credit for. They make
// step after step in any order, and no step counts more or older gradients than its preset allows.
func TestEveryPresetMakesStepsWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(t, "workers")
		cfg := drawPreset(t, workers)
		r := agg.NewRound(cfg, 0)
		released := kintsugi.Step(0)
		next := make([]kintsugi.PushID, workers)
		for slot := range next {
			next[slot] = ticket(kintsugi.Slot(slot), 0, 0).Push
		}
		unsettled := make(map[kintsugi.PushID]bool)
		for range 30 {
			if cfg.Controller != "" {
				r.Choose(rapid.IntRange(1, workers+1).Draw(t, "quota"), "drawn")
			}
			d, ok := r.Decide(workers)
			for ; !ok; d, ok = r.Decide(workers) {
				slot := drawWithCredit(t, next, unsettled, cfg.Pace().Credit)
				x := ticket(kintsugi.Slot(slot), 0, 0)
				x.Push = next[slot]
				next[slot].Sequence++
				if v, _ := r.Offer(x); v == agg.Open {
					unsettled[x.Push] = true
				} else if v != agg.Refuse {
					t.Fatalf("%v has verdict %d", x.Push, v)
				}
				if next[slot].Version < released && rapid.Bool().Draw(t, "reads") {
					next[slot].Version, next[slot].Sequence = released, 0
				}
			}
			released++
			checkBounds(t, cfg, d, released)
			for _, p := range pushes(d) {
				delete(unsettled, p)
			}
			for _, late := range r.Release(released) {
				delete(unsettled, late.Push)
			}
			for slot := range next { // a worker that hears of a release, and whose gradients are too old now, reads the newest version
				if next[slot].Version < cfg.Oldest(released) {
					next[slot].Version, next[slot].Sequence = released, 0
				}
			}
		}
	})
}

// drawWithCredit draws a worker that has credit. If there were none, the preset would make no
// further step.
func drawWithCredit(t *rapid.T, next []kintsugi.PushID, unsettled map[kintsugi.PushID]bool, credit int) int {
	var able []int
	for slot := range next {
		n := 0
		for p := range unsettled {
			if p.Slot == kintsugi.Slot(slot) {
				n++
			}
		}
		if n < credit {
			able = append(able, slot)
		}
	}
	if len(able) == 0 {
		t.Fatalf("every worker waits and there is no step")
	}
	return rapid.SampledFrom(able).Draw(t, "slot")
}

func checkBounds(t *rapid.T, cfg agg.Config, d agg.Decision, step kintsugi.Step) {
	if len(d.Choices) != d.Quota || d.Reason == "" {
		t.Fatalf("step %d counts %d gradients of a quota of %d because of %q", step, len(d.Choices), d.Quota, d.Reason)
	}
	of := make(map[kintsugi.Slot]int)
	for i, c := range d.Choices {
		p := c.Ticket.Push
		if of[p.Slot]++; of[p.Slot] > max(1, cfg.PerWorker) {
			t.Fatalf("step %d counts %d gradients of worker/%d", step, of[p.Slot], p.Slot)
		}
		if p.Version < cfg.Oldest(step-1) || p.Version >= step {
			t.Fatalf("step %d counts a gradient on version %d", step, p.Version)
		}
		if i > 0 && d.Choices[i-1].Ticket.Push.Compare(p) >= 0 {
			t.Fatalf("step %d counts %v out of order", step, pushes(d))
		}
		if !(c.Weight > 0) {
			t.Fatalf("%v weighs %v", p, c.Weight)
		}
	}
}

// A worker with several open tickets leaves, and they go with it. Its next life starts again, and
// sends tickets for what it computes again.
func TestAWorkerOfRennalaThatComesBackIsCountedOnce(t *testing.T) {
	cfg, err := agg.Preset("rennala:4")
	if err != nil {
		t.Fatal(err)
	}
	r := agg.NewRound(cfg, 0)
	again := func(slot kintsugi.Slot, inc kintsugi.Incarnation, seq uint32) kintsugi.Ticket {
		x := ticket(slot, 0, seq)
		x.Push.Incarnation = inc
		return x
	}
	for seq := range uint32(3) {
		r.Offer(again(0, 1, seq))
	}
	r.Leave(0, 2)
	r.Begin(0)
	for _, x := range []kintsugi.Ticket{again(0, 2, 0), again(1, 1, 0), again(1, 1, 1)} {
		if v, reason := r.Offer(x); v != agg.Open {
			t.Fatalf("%v has verdict %d: %s", x.Push, v, reason)
		}
	}
	if d, ok := r.Decide(2); ok {
		t.Fatalf("a step counts %v", pushes(d))
	}
	if v, _ := r.Offer(again(0, 2, 0)); v != agg.Duplicate {
		t.Fatalf("computed again after a broken stream, it has verdict %d", v)
	}
	r.Offer(again(0, 2, 1))
	d, ok := r.Decide(2)
	if !ok || len(d.Choices) != 4 || d.Choices[0].Ticket.Push.Incarnation != 2 || d.Choices[1].Ticket.Push.Incarnation != 2 {
		t.Fatalf("the step counts %+v", d.Choices)
	}
}

// A chosen quota holds for one step, and is no larger than what the members can have open.
func TestAChosenQuotaHoldsForOneStep(t *testing.T) {
	r := agg.NewRound(agg.Config{Controller: "dbw", Lead: kintsugi.Infinite}, 0)
	r.Choose(2, "two will do")
	for slot := range kintsugi.Slot(2) {
		if _, ok := r.Decide(3); ok {
			t.Fatalf("a step of %d gradients", slot)
		}
		r.Offer(ticket(slot, 0, 0))
	}
	if d, ok := r.Decide(3); !ok || d.Quota != 2 || d.Reason != "two will do" {
		t.Fatalf("the step is %+v, %v", d, ok)
	}
	r.Release(1)
	r.Offer(ticket(0, 1, 0))
	r.Offer(ticket(1, 1, 0))
	if d, ok := r.Decide(3); ok {
		t.Errorf("without a choice two of three make the step %+v", d)
	}
	r.Choose(1, "one is enough after all")
	if r.Waiting() != 2 {
		t.Errorf("%d tickets wait, want 2", r.Waiting())
	}
	if d, ok := r.Decide(3); !ok || d.Quota != 1 {
		t.Errorf("the step is %+v, %v", d, ok)
	}
	r.Release(2)
	r.Choose(9, "more than there are")
	r.Offer(ticket(0, 2, 0))
	r.Offer(ticket(1, 2, 0))
	if d, ok := r.Decide(2); !ok || d.Quota != 2 {
		t.Errorf("of two members the step is %+v, %v", d, ok)
	}
}

// A worker that makes up tickets, of pushes that no shard holds, cannot fill the memory of a
// conductor whose step waits. Its tickets are taken again when some are gone.
func TestTicketsOfOneWorkerAreBounded(t *testing.T) {
	r := agg.NewRound(agg.Config{Late: agg.Apply, Staleness: kintsugi.Infinite, Lead: kintsugi.Infinite, Quota: 2, PerWorker: 4}, 0)
	for seq := range uint32(100) {
		r.Offer(ticket(0, 0, seq))
	}
	if n := r.Waiting(); n != 4 {
		t.Errorf("%d tickets of one worker wait, want 4", n)
	}
	if v, reason := r.Offer(ticket(0, 0, 100)); v != agg.Refuse || !strings.Contains(reason, "must wait") {
		t.Errorf("one more has verdict %d: %q", v, reason)
	}
	r.Offer(ticket(1, 0, 0))
	if d, ok := r.Decide(2); !ok || len(d.Choices) != 2 {
		t.Fatalf("the step is %+v, %v", d, ok)
	}
	r.Release(1)
	if v, reason := r.Offer(ticket(0, 1, 0)); v != agg.Open {
		t.Errorf("when some are gone one has verdict %d: %s", v, reason)
	}
	r.Leave(0, 2)
	for seq := range uint32(4) {
		x := ticket(0, 1, seq)
		x.Push.Incarnation = 2
		if v, reason := r.Offer(x); v != agg.Open {
			t.Errorf("ticket %d of the next life has verdict %d: %s", seq, v, reason)
		}
	}
}

// A worker with credit for several gradients may hear nothing about any of them, and some may be
// late while conductors count the others. Its process may be restarted, and compute gradients of the
// same versions again. Whichever conductor it asks about one of its last gradients, the answer is
// right, and a counted gradient is never taken for an uncounted one.
func TestWhatBecameOfTheLastGradientsIsKnownOverConductors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		credit := rapid.IntRange(1, 12).Draw(t, "credit")
		cfg := agg.Config{Late: agg.Apply, Staleness: kintsugi.Infinite, Lead: kintsugi.Infinite, PerWorker: credit, Credit: credit}
		r := agg.NewRound(cfg, 100)
		var sent, earlier []kintsugi.PushID // by the worker's present process, and by those before it
		counted := make(map[kintsugi.PushID]bool)
		p := ticket(0, 0, 0).Push
		for range 40 {
			if p.Sequence++; rapid.Bool().Draw(t, "reads") {
				p.Version, p.Sequence = p.Version+1, 0
			}
			if rapid.IntRange(0, 9).Draw(t, "restarts") == 0 { // and computes the same again
				earlier = slices.Concat(earlier, sent)
				p.Version, p.Sequence, p.Incarnation = max(p.Version, 1)-1, 0, p.Incarnation+1
				sent = nil
			}
			sent = append(sent, p)
			if rapid.IntRange(0, 2).Draw(t, "counted") > 0 {
				counted[p] = true
				r.Remember([]kintsugi.PushID{p})
			}
			if rapid.IntRange(0, 5).Draw(t, "dies") == 0 {
				next := agg.NewRound(cfg, 100)
				known := slices.Clone(r.Newest(0))
				for _, q := range earlier { // steps may count what an earlier life of the worker has pushed
					if counted[q] && len(known) > 0 && q.Incarnation < known[0].Incarnation {
						known = append(known, q)
					}
				}
				next.Remember(rapid.Permutation(slices.Repeat(known, rapid.IntRange(1, 2).Draw(t, "times"))).Draw(t, "remembered"))
				r = next
			}
			newer := 0 // number of counted pushes after the one in question
			for _, q := range slices.Backward(sent) {
				x := ticket(0, 0, 0)
				x.Push = q
				v, _ := r.Offer(x)
				switch r.Leave(0, p.Incarnation+1); { // if it was taken for a new one, it is forgotten again
				case counted[q] && v != agg.Counted:
					t.Fatalf("%v is counted, and has verdict %d; counted are %v", q, v, r.Newest(0))
				case !counted[q] && newer == 0 && v != agg.Open:
					t.Fatalf("%v is newer than all that are counted, and has verdict %d", q, v)
				case !counted[q] && 0 < newer && newer < min(credit, 8) && v != agg.Refuse:
					t.Fatalf("%v is not counted, and has verdict %d; counted are %v", q, v, r.Newest(0))
				}
				if counted[q] {
					newer++
				}
			}
		}
	})
}
