package server

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// Events are kept for watchers that connect late. The bound is on their bytes and not on their
// number, since the events of a run with many workers are large. The numbers of events do not
// change.
func TestEventsThatAreKeptAreBoundedWhateverTheirSize(t *testing.T) {
	for _, workers := range []int{2, 10_000} {
		l := &eventLog{changed: make(chan struct{})}
		step := kintsugi.StepEvent{Counted: make([]kintsugi.PushID, workers), Times: make([]kintsugi.GradientTime, workers)}
		told := 100_000
		if workers > 2 {
			told = 1000
		}
		for i := range told {
			step.Step = kintsugi.Step(i)
			l.add([]kintsugi.RunEvent{step})
		}
		list, next, _ := l.from(0)
		if parts := len(list) * partsOf(step); parts > keptParts*5/4 || len(list) > keptEvents*5/4 || l.parts != parts {
			t.Errorf("%d workers: %d events with %d parts are kept, and %d are counted", workers, len(list), parts, l.parts)
		}
		if len(list) < min(told, keptEvents, keptParts/partsOf(step)) || next != told {
			t.Fatalf("%d workers: of %d events %d are kept, and number %d comes next", workers, told, len(list), next)
		}
		if newest := list[len(list)-1].(kintsugi.StepEvent).Step; newest != kintsugi.Step(told-1) {
			t.Errorf("%d workers: the newest is of step %d of %d", workers, newest, told)
		}
		if list, _, _ := l.from(told - 1); len(list) != 1 {
			t.Errorf("%d workers: %d events from the last one on", workers, len(list))
		}
	}
}
