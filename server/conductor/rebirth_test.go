package conductor_test

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// If a life of a worker ends while the open step counts its gradient, its successor would compute
// the same gradient: batch and noise depend on slot, version and sequence. So the successor is
// admitted when that step is released. Otherwise a run that applies late gradients would count this
// one in two steps.
func TestALaterLifeIsAdmittedAfterTheStepThatCountsTheEarlierOne(t *testing.T) {
	cfg := conductor.Config{
		Line: 1, View: 1, Model: 7, Slots: 1, Steps: 10,
		Consistency: agg.Config{Quota: 1, Late: agg.Apply, Staleness: 4, Lead: kintsugi.Infinite},
		Schedule:    conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.1},
	}
	w := newWorld(t, cfg, []int{1})
	s := w.newConductor(1)
	w.open(s, 0)
	link := s.links[0]
	flow := func() {
		for len(link.down)+len(link.up) > 0 {
			if len(link.down) > 0 {
				w.toShard(link)
			} else {
				w.fromShard(link)
			}
		}
	}
	admitted := func(x *wire) (at kintsugi.Step, ok bool) {
		for _, m := range x.down {
			if a, is := m.(kintsugi.Admitted); is {
				return a.Step, true
			}
		}
		return 0, false
	}
	first := w.connect(s, 0, 1)
	w.fromWorker(first)
	flow()
	p := kintsugi.PushID{Line: 1, Slot: 0, Incarnation: 1}
	if refusal := w.replica[0].push(p); refusal != "" {
		t.Fatal(refusal)
	}
	first.up = append(first.up, kintsugi.Ticket{Push: p, Views: []kintsugi.ViewNumber{1}, Examples: 1})
	w.fromWorker(first)
	flow() // the shard has the commit, and its kernel is running
	second := w.connect(s, 0, 2)
	w.fromWorker(second)
	flow()
	if at, ok := admitted(second); ok {
		t.Fatalf("admitted at version %d, on which the step in flight counts the same gradient", at)
	}
	w.replica[0].apply()
	flow()
	if at, ok := admitted(second); !ok || at != 1 {
		t.Fatalf("admitted at version %d: %v, want version 1", at, ok)
	}
}
