package conductor_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// A worker that is too far ahead is not told what became of its push. One that goes on
// nevertheless, with tickets that are refused, is made to start over before the answers that are
// held back fill the memory.
func TestAWorkerThatDoesNotWaitIsMadeToStartOver(t *testing.T) {
	now := time.Unix(0, 0)
	x := inRun(t, now, conductor.Config{
		Shards: 1, Slots: 2, Steps: 100, Consistency: agg.Config{Quota: 2, Late: agg.Apply, Staleness: kintsugi.Infinite, Lead: 0},
	}, kintsugi.Taken{})
	over := 0
	for i := range uint32(1000) { // tickets without examples are invalid
		x.HandleTicket(now, kintsugi.Ticket{Push: kintsugi.PushID{Line: 1, Incarnation: 1, Sequence: i}, Views: []kintsugi.ViewNumber{1}})
		for _, o := range x.Ready().StartOver {
			if over++; o.Slot != 0 || o.Incarnation != 1 {
				t.Fatalf("who starts over is %+v", o)
			}
		}
	}
	if most := (agg.Config{}).Held(); over != 1000-most {
		t.Errorf("of 1000 tickets %d are answered by the end of the stream: what waits is not bounded", over)
	}
}

// What was held back says, when it is sent, which version is the newest: the worker goes on from
// there.
func TestWhatWasHeldBackNamesTheNewestVersion(t *testing.T) {
	now := time.Unix(0, 0)
	ssp, err := agg.Preset("ssp:0")
	if err != nil {
		t.Fatal(err)
	}
	x := inRun(t, now, conductor.Config{Shards: 1, Slots: 5, Steps: 100, Consistency: ssp}, kintsugi.Taken{})
	made := gradientOf(2, 9) // of a version that is not there
	x.HandleTicket(now, made)
	for step, slot := range []kintsugi.Slot{1, 0, 4} {
		x.HandleTicket(now, gradientOf(slot, 0))
		stable(x, now, 1, kintsugi.Step(step+1))
		if step == 0 { // and worker/1 connects again
			if err := x.HandleHello(now, hello(1, 1)); err != nil {
				t.Fatal(err)
			}
			known(x, now, 1, 6)
		}
	}
	for _, m := range x.Ready().ToWorkers {
		if r, ok := m.Message.(kintsugi.Released); !ok || slices.ContainsFunc(r.Counted, func(p kintsugi.PushID) bool { return p.Slot == m.Slot }) {
			t.Errorf("worker/%d is ahead of worker/3, and is told %+v", m.Slot, m.Message)
		}
	}
	x.HandleTicket(now, gradientOf(3, 0))
	released := func(slot kintsugi.Slot) kintsugi.Released {
		return kintsugi.Released{Line: 1, Fence: 5, Step: 3, Counted: []kintsugi.PushID{gradientOf(slot, 0).Push}}
	}
	want := []conductor.ToWorker{
		{Slot: 0, Incarnation: 1, Message: released(0)},
		{Slot: 1, Incarnation: 1, Message: kintsugi.Admitted{Line: 1, Step: 3}},
		{Slot: 2, Incarnation: 1, Message: kintsugi.Refused{Push: made.Push, Step: 3, Reason: "computed on version 9, which is not released; the newest is 0"}},
		{Slot: 4, Incarnation: 1, Message: released(4)},
	}
	if got := x.Ready().ToWorkers; !reflect.DeepEqual(got, want) {
		t.Errorf("workers are told\n%+v, want\n%+v", got, want)
	}
}

// A step may count gradients of several workers that are ahead. Each hears later of its own alone,
// and at once of those of the others.
func TestOfAStepAWorkerThatIsAheadHearsAllButItsOwn(t *testing.T) {
	now := time.Unix(0, 0)
	x := inRun(t, now, conductor.Config{
		Shards: 1, Slots: 3, Steps: 100, Consistency: agg.Config{Quota: 2, Late: agg.Apply, Staleness: kintsugi.Infinite, Lead: 0},
	}, kintsugi.Taken{})
	p := []kintsugi.PushID{gradientOf(0, 0).Push, gradientOf(1, 0).Push}
	released := func(slot kintsugi.Slot, counted ...kintsugi.PushID) conductor.ToWorker {
		return conductor.ToWorker{Slot: slot, Incarnation: 1, Message: kintsugi.Released{Line: 1, Fence: 5, Step: 1, Counted: counted}}
	}
	x.HandleTicket(now, gradientOf(0, 0))
	x.HandleTicket(now, gradientOf(1, 0))
	stable(x, now, 1, 1)
	if got, want := x.Ready().ToWorkers, []conductor.ToWorker{released(0, p[1]), released(1, p[0]), released(2, p...)}; !reflect.DeepEqual(got, want) {
		t.Errorf("at once workers are told\n%+v, want\n%+v", got, want)
	}
	x.HandleTicket(now, gradientOf(2, 0))
	if got, want := x.Ready().ToWorkers, []conductor.ToWorker{released(0, p[0]), released(1, p[1])}; !reflect.DeepEqual(got, want) {
		t.Errorf("when the last has come they are told\n%+v, want\n%+v", got, want)
	}
}

// A worker that comes later starts where the slowest of the others is. If it started at 0, it would
// hold all of them up until it had made up for gradients that it never had to compute.
func TestAWorkerThatComesLaterHoldsNobodyUp(t *testing.T) {
	now := time.Unix(0, 0)
	ssp, err := agg.Preset("ssp:1")
	if err != nil {
		t.Fatal(err)
	}
	x := inRun(t, now, conductor.Config{Shards: 1, Slots: 2, Steps: 100, Consistency: ssp}, kintsugi.Taken{})
	heard := func(slot kintsugi.Slot) bool {
		return slices.ContainsFunc(x.Ready().ToWorkers, func(m conductor.ToWorker) bool {
			r, ok := m.Message.(kintsugi.Released)
			return ok && m.Slot == slot && len(r.Counted) > 0 && r.Counted[0].Slot == slot
		})
	}
	step := kintsugi.Step(0)
	goesOn := func(slot kintsugi.Slot) bool {
		x.HandleTicket(now, gradientOf(slot, step))
		step++
		stable(x, now, 1, step)
		return heard(slot)
	}
	for i := range 5 {
		if !goesOn(0) || !goesOn(1) {
			t.Fatalf("round %d: a worker that is level with the other does not go on", i)
		}
	}
	if err := x.HandleHello(now, hello(1, 2)); err != nil { // its process is a new one
		t.Fatal(err)
	}
	known(x, now, 1, 3)
	if !goesOn(0) {
		t.Error("the other worker is one gradient ahead, as it may be, and does not go on")
	}
	if goesOn(0) {
		t.Error("the other worker is two gradients ahead, and goes on")
	}
}
