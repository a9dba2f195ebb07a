package conductor_test

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// The result of a run is saved once. Each conductor after the end ends the run again, and saves
// nothing if it knows that the result is saved. If the last save failed, the next conductor tries
// again.
func TestARunThatIsOverIsSavedOnce(t *testing.T) {
	w := newWorld(t, conductor.Config{Line: 3, View: 4, Model: 0xabc, Slots: 1, Steps: 1}, []int{1})
	conduct := func(fence kintsugi.Fence) *seat {
		s := w.newConductor(fence)
		w.open(s, 0)
		w.deliver(s)
		return s
	}
	saves := func(s *seat, failure string) {
		t.Helper()
		if len(w.replica[0].saving) > 0 { // otherwise the shard saved its part before, and says so
			w.replica[0].save("")
			w.deliver(s)
		}
		w.publish(s, failure)
		w.deliver(s)
	}
	first := conduct(1)
	w.gradient(w.join(first, 0, 1), 0)
	w.deliver(first)
	w.replica[0].apply()
	w.deliver(first)
	saves(first, "the store is full")
	unsaved := kintsugi.Done{Step: 1, Reason: kintsugi.AllSteps}
	if first.done == nil || *first.done != unsaved {
		t.Fatalf("it ends with %+v, want %+v", first.done, unsaved)
	}

	w.cfg.Over = first.done
	second := conduct(2)
	saves(second, "")
	saved := kintsugi.Done{Step: 1, Reason: kintsugi.AllSteps, Saved: true}
	if second.done == nil || *second.done != saved {
		t.Fatalf("it ends with %+v, want %+v", second.done, saved)
	}

	w.cfg.Over = second.done
	third := conduct(3)
	if n := len(w.replica[0].saving) + len(third.publishing); n > 0 || third.done == nil || *third.done != saved {
		t.Errorf("%d saves are under way; it ends with %+v, want %+v", n, third.done, saved)
	}
}

// A run that was started again with more steps saves its new end: the record of the earlier end
// names another step.
func TestTheWordOfAnEarlierEndSparesNoSave(t *testing.T) {
	w := newWorld(t, conductor.Config{
		Line: 3, View: 4, Model: 0xabc, Slots: 1, Steps: 1, Over: &kintsugi.Done{Step: 0, Reason: "interrupted", Saved: true},
	}, []int{1})
	s := w.newConductor(1)
	w.open(s, 0)
	w.deliver(s)
	w.gradient(w.join(s, 0, 1), 0)
	w.deliver(s)
	w.replica[0].apply()
	w.deliver(s)
	if len(w.replica[0].saving) != 1 || s.done != nil {
		t.Errorf("%d saves are under way, and it ends with %+v; want one, and no end yet", len(w.replica[0].saving), s.done)
	}
}
