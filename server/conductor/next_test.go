package conductor_test

import (
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// A shard is stable when its head says so, or when the head says that it waits for the replica after
// it and that one has applied the same decision of the same step, in whatever order the conductor
// hears of them.
func TestAShardIsStableWhenItsHeadAndTheReplicaAfterHaveTheStep(t *testing.T) {
	type word struct {
		next bool // of the replica after the head
		kintsugi.Stable
	}
	whole := word{false, kintsugi.Stable{Fence: 5, Step: 1, Decided: 5}}
	waits := word{false, kintsugi.Stable{Fence: 5, Step: 1, Decided: 5, Waits: true}}
	next := word{true, kintsugi.Stable{Fence: 5, Step: 1, Decided: 5}}
	change := func(w word, f func(*word)) word { f(&w); return w }
	for _, c := range []struct {
		name  string
		words []word
		want  bool
	}{
		{"the head, for all", []word{whole}, true},
		{"the head alone", []word{waits, waits}, false},
		{"the replica after alone", []word{next, next}, false},
		{"both", []word{waits, next}, true},
		{"both, the replica after first", []word{next, waits}, true},
		{"the head, and then for all", []word{waits, whole}, true},
		{"another decision of the replica after", []word{waits, change(next, func(w *word) { w.Decided = 4 })}, false},
		{"another decision of the head", []word{next, change(waits, func(w *word) { w.Decided = 4 })}, false},
		{"another decision, and then the same", []word{waits, change(next, func(w *word) { w.Decided = 4 }), next}, true},
		{"the step before", []word{waits, change(next, func(w *word) { w.Step = 0 })}, false},
		{"another fence", []word{waits, change(next, func(w *word) { w.Fence = 6 })}, false},
		{"another shard", []word{waits, change(next, func(w *word) { w.Shard = 1 })}, false},
		{"a shard that there is not", []word{waits, change(next, func(w *word) { w.Shard = 2 })}, false},
	} {
		now := time.Unix(0, 0)
		x := inRun(t, now, conductor.Config{Shards: 2, Slots: 1, Steps: 9}, kintsugi.Taken{})
		say := func(w word) {
			if w.next {
				x.HandleNext(now, w.Stable)
			} else {
				x.HandleReplica(now, w.Stable)
			}
		}
		say(next) // of no step
		x.HandleTicket(now, gradientOf(0, 0))
		for _, w := range c.words {
			say(w)
		}
		x.HandleReplica(now, kintsugi.Stable{Shard: 1, Fence: 5, Step: 1, Decided: 5})
		if got := x.Released() == 1; got != c.want {
			t.Errorf("%s: stable is %v", c.name, got)
		}
	}
}

// Durations since the answer before are in the first answer of a head to a step, and a later one has
// those since then.
func TestTheFirstAnswerOfAHeadCounts(t *testing.T) {
	now := time.Unix(0, 0)
	x := inRun(t, now, conductor.Config{Shards: 1, Slots: 1, Steps: 9}, kintsugi.Taken{})
	x.HandleTicket(now, gradientOf(0, 0))
	s := kintsugi.Stable{Fence: 5, Step: 1, Decided: 5, Waits: true, Saving: 3 * time.Second, Pushed: 7}
	x.HandleReplica(now, s)
	s.Waits, s.Saving = false, 0
	x.HandleReplica(now, s)
	if e := events(x); len(e) != 1 || e[0].Saving != 3*time.Second || e[0].Pushed != 7 {
		t.Errorf("the step is %+v", e)
	}
}

// What the replica after has said of a step says nothing of the next one.
func TestWhatTheReplicaAfterSaidIsForgottenWithTheStep(t *testing.T) {
	now := time.Unix(0, 0)
	x := inRun(t, now, conductor.Config{Shards: 1, Slots: 1, Steps: 9}, kintsugi.Taken{})
	x.HandleTicket(now, gradientOf(0, 0))
	x.HandleNext(now, kintsugi.Stable{Fence: 5, Step: 1, Decided: 5})
	stable(x, now, 1, 1)
	x.HandleTicket(now, gradientOf(0, 1))
	x.HandleReplica(now, kintsugi.Stable{Fence: 5, Step: 2, Decided: 5, Waits: true})
	if x.Released() != 1 {
		t.Errorf("step %d is released, and the replica after has said nothing of it", x.Released())
	}
}
