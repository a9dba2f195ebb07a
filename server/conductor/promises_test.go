package conductor_test

import (
	"fmt"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// content is what a step does to a version. Equal strings mean equal bits.
func content(c kintsugi.Commit) string {
	return fmt.Sprintf("%d: %+v, scale %x, %+v", c.Step, c.Counted, c.Scale, c.Optimizer)
}

// checkCommit checks what a conductor sends to a shard: the shard holds every push of the step,
// unless the step is over. A conductor that has lost the shard to another may be wrong, since the
// shard ignores it.
func (w *world) checkCommit(s *seat, i int, c kintsugi.Commit) {
	w.t.Helper()
	if !slices.IsSortedFunc(c.Counted, func(a, b kintsugi.Weighted) int { return a.Push.Compare(b.Push) }) {
		w.t.Fatalf("step %d counts %v: not ascending", c.Step, c.Counted)
	}
	if len(c.Counted) == 0 {
		w.t.Fatalf("step %d counts nothing", c.Step)
	}
	of := make(map[kintsugi.Slot]int)
	for _, p := range c.Counted {
		if of[p.Push.Slot]++; of[p.Push.Slot] > max(1, w.cfg.Consistency.PerWorker) {
			w.t.Fatalf("step %d counts %d gradients of worker/%d", c.Step, of[p.Push.Slot], p.Push.Slot)
		}
		if p.Push.Version < w.cfg.Consistency.Oldest(c.Step-1) || p.Push.Version >= c.Step {
			w.t.Fatalf("step %d counts %v", c.Step, p.Push)
		}
	}
	for _, r := range w.replica {
		if r.promised != s.Fence() {
			return
		}
	}
	r := w.replica[i]
	for _, p := range c.Counted {
		if !r.empty && !r.held[p.Push] && !w.untrue[p.Push] && int(c.Step) > len(r.steps) {
			w.t.Fatalf("conductor %d commits %v in step %d, which shard %d does not hold", s.Fence(), p.Push, c.Step, i)
		}
	}
}

// check compares the replicas with one another and checks their promises.
func (w *world) check() {
	w.t.Helper()
	longest := w.replica[0]
	lo, hi := longest.reached(), longest.reached()
	for _, r := range w.replica {
		if len(r.steps) > len(longest.steps) {
			longest = r
		}
		lo, hi = min(lo, r.reached()), max(hi, r.reached())
	}
	if hi > lo+1 {
		w.t.Fatalf("one shard has applied step %d, another only step %d", hi, lo)
	}
	if lo < len(longest.steps) {
		w.t.Fatalf("shard %d has released step %d, another shard has only applied %d", longest.id, len(longest.steps), lo)
	}
	common := len(longest.steps)
	for _, r := range w.replica {
		for i := w.agreed; i < len(r.steps); i++ {
			if got, want := content(r.steps[i]), content(longest.steps[i]); got != want {
				w.t.Fatalf("step %d is\n%s on shard %d and\n%s on shard %d", i+1, got, r.id, want, longest.id)
			}
		}
		common = min(common, len(r.steps))
	}
	w.agreed = common
}

// reached returns the newest step that the replica has applied.
func (r *replica) reached() int {
	if r.applied != nil {
		return len(r.steps) + 1
	}
	return len(r.steps)
}

// checkCounted checks that no push was ever counted twice.
func (w *world) checkCounted() {
	w.t.Helper()
	seen := make(map[kintsugi.PushID]kintsugi.Step)
	for _, c := range w.replica[0].steps {
		for _, p := range c.Counted {
			if before, ok := seen[p.Push]; ok {
				w.t.Fatalf("%v of incarnation %d is counted in step %d and in step %d", p.Push, p.Push.Incarnation, before, c.Step)
			}
			seen[p.Push] = c.Step
		}
	}
}
