package conductor_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// sent returns the messages of type M that x wants to send to shards and workers.
func sent[M any](x *conductor.Conductor) []M {
	var list []M
	ready := x.Ready()
	for _, m := range ready.ToShards {
		if m, ok := m.Message.(M); ok {
			list = append(list, m)
		}
	}
	for _, m := range ready.ToWorkers {
		if m, ok := m.Message.(M); ok {
			list = append(list, m)
		}
	}
	return list
}

// A worker that is in a later view knows more than this conductor, whose heads may still read
// memory that the worker writes.
func TestAWorkerIsRefusedOnlyByAConductorOfAnEarlierView(t *testing.T) {
	now := time.Unix(0, 0)
	x := inRun(t, now, conductor.Config{View: 7, Shards: 1, Slots: 3, Steps: 100}, kintsugi.Taken{})
	for view, want := range map[kintsugi.ViewNumber]error{6: nil, 7: nil, 8: kintsugi.ErrStaleView} {
		h := hello(2, 1)
		h.View = view
		if err := x.HandleHello(now, h); !errors.Is(err, want) {
			t.Errorf("a worker in view %d: %v, want %v", view, err, want)
		}
	}
}

// A worker is a member when every shard knows of it: a shard that does not would refuse its pushes.
func TestAWorkerIsAMemberWhenEveryShardKnowsIt(t *testing.T) {
	now := time.Unix(0, 0)
	x := inRun(t, now, conductor.Config{Shards: 3, Slots: 1, Steps: 100}, kintsugi.Taken{})
	if err := x.HandleHello(now, hello(0, 2)); err != nil {
		t.Fatal(err)
	}
	for _, shard := range []kintsugi.ShardID{2, 0, 1} {
		x.HandleReplica(now, kintsugi.MembersKnown{Shard: shard, Fence: 5, Change: 1}) // of its earlier process
		if told := sent[kintsugi.Admitted](x); len(told) > 0 {
			t.Fatalf("shard %d knows its earlier process, and it is admitted", shard)
		}
	}
	for i, shard := range []kintsugi.ShardID{1, 2, 0} {
		x.HandleReplica(now, kintsugi.MembersKnown{Shard: shard, Fence: 5, Change: 2})
		if told := sent[kintsugi.Admitted](x); (len(told) == 1) != (i == 2) {
			t.Errorf("%d of 3 shards know the worker, which is told %+v", i+1, told)
		}
	}
}

// A step waits neither for a worker whose process is a new one, until that is a member, nor for one
// that has said good-bye.
func TestAStepDoesNotWaitForWhoIsNotIn(t *testing.T) {
	now := time.Unix(0, 0)
	for name, c := range map[string]struct {
		goes func(x *conductor.Conductor) error
		want bool
	}{
		"nobody goes":                      {func(*conductor.Conductor) error { return nil }, false},
		"the other has restarted":          {func(x *conductor.Conductor) error { return x.HandleHello(now, hello(1, 2)) }, true},
		"the other has said good-bye":      {func(x *conductor.Conductor) error { x.WorkerLeft(now, 1, 1); return nil }, true},
		"an earlier process says good-bye": {func(x *conductor.Conductor) error { x.WorkerLeft(now, 1, 0); return nil }, false},
		"one who was never in says it":     {func(x *conductor.Conductor) error { x.WorkerLeft(now, 7, 1); return nil }, false},
		"the stream of the other breaks":   {func(x *conductor.Conductor) error { x.WorkerGone(now, 1, 1); return nil }, false},
		"an earlier process is still there": {func(x *conductor.Conductor) error {
			if err := x.HandleHello(now, hello(1, 0)); !errors.Is(err, kintsugi.ErrFenced) {
				return fmt.Errorf("an earlier process is answered with %w", err)
			}
			return nil
		}, false},
	} {
		x := inRun(t, now, conductor.Config{Shards: 1, Slots: 2, Steps: 100, LeaveGrace: time.Second}, kintsugi.Taken{})
		x.HandleTicket(now, gradientOf(0, 0))
		if err := c.goes(x); err != nil {
			t.Fatal(err)
		}
		if decided := sent[kintsugi.Commit](x); (len(decided) == 1) != c.want {
			t.Errorf("%s: decided is %+v, want a step: %v", name, decided, c.want)
		}
	}
}

// The grace of a worker whose stream broke begins when it broke, whatever is heard of it and of
// others later, and ends when it is back.
func TestTheGraceOfALostStreamBeginsOnce(t *testing.T) {
	start := time.Unix(0, 0)
	for name, c := range map[string]struct {
		after func(x *conductor.Conductor, now time.Time) error // half of the grace
		stays bool
	}{
		"nothing is heard":           {func(*conductor.Conductor, time.Time) error { return nil }, false},
		"the same is heard again":    {func(x *conductor.Conductor, now time.Time) error { x.WorkerGone(now, 1, 1); return nil }, false},
		"an earlier process is gone": {func(x *conductor.Conductor, now time.Time) error { x.WorkerGone(now, 1, 0); return nil }, false},
		"one who was never in is":    {func(x *conductor.Conductor, now time.Time) error { x.WorkerGone(now, 7, 1); return nil }, false},
		"it comes back":              {func(x *conductor.Conductor, now time.Time) error { return x.HandleHello(now, hello(1, 1)) }, true},
		"it comes back and goes away": {func(x *conductor.Conductor, now time.Time) error {
			err := x.HandleHello(now, hello(1, 1))
			x.WorkerGone(now, 1, 1)
			return err
		}, true},
	} {
		const grace = 2 * time.Second
		x := inRun(t, start, conductor.Config{Shards: 1, Slots: 2, Steps: 100, LeaveGrace: grace}, kintsugi.Taken{})
		x.HandleTicket(start, gradientOf(0, 0))
		x.WorkerGone(start, 1, 1)
		if err := c.after(x, start.Add(grace/2)); err != nil {
			t.Fatal(err)
		}
		x.Tick(start.Add(grace - 1))
		if early := sent[kintsugi.Commit](x); len(early) > 0 {
			t.Errorf("%s: before the grace is over, %+v is decided", name, early)
		}
		x.Tick(start.Add(grace))
		if decided := sent[kintsugi.Commit](x); (len(decided) == 0) != c.stays {
			t.Errorf("%s: after the grace, %+v is decided; the worker stays: %v", name, decided, c.stays)
		}
	}
}

// The grace in which the first step waits for the others begins when the first worker is a member.
func TestTheGraceOfTheStartBeginsOnce(t *testing.T) {
	now := time.Unix(0, 0)
	x, err := conductor.New(conductor.Config{Line: 1, View: 1, Fence: 5, Shards: 1, Slots: 3, Steps: 100, StartGrace: 5 * time.Second}, now)
	if err != nil {
		t.Fatal(err)
	}
	x.ShardConnected(0)
	x.HandleReplica(now, kintsugi.Taken{Fence: 5})
	for slot := range kintsugi.Slot(2) {
		if err := x.HandleHello(now, hello(slot, 1)); err != nil {
			t.Fatal(err)
		}
		known(x, now, 1, uint64(slot)+1)
		x.HandleTicket(now, gradientOf(slot, 0))
		now = now.Add(4 * time.Second)
	}
	for i, want := range []int{0, 1} {
		x.Tick(time.Unix(int64(4+i), 0))
		if decided := sent[kintsugi.Commit](x); len(decided) != want {
			t.Errorf("%d s after the first worker came, decided is %+v", 4+i, decided)
		}
	}
}

// What shards are told of a worker: from which version on its gradients may be counted, and which
// of them were counted last. Pushes of a line that this one keeps are of no account: nobody asks
// about them.
func TestShardsAreToldWhatMayBeCounted(t *testing.T) {
	now := time.Unix(0, 0)
	record := kintsugi.Commit{Line: 1, Fence: 3, Decided: 3, Step: 7, Countable: []kintsugi.Countable{
		{Slot: 0, Incarnation: 1, Version: 5, Next: 4, Earlier: []kintsugi.Counted{{Version: 4, Sequence: 1}, {Version: 5, Sequence: 2}}},
	}}
	for _, w := range []kintsugi.PushID{{Line: 1, Slot: 0, Incarnation: 1, Version: 6}, {Line: 0, Slot: 1, Incarnation: 1, Version: 6}} {
		record.Counted = append(record.Counted, kintsugi.Weighted{Push: w, Weight: 1})
	}
	x := inRun(t, now, conductor.Config{
		Shards: 1, Slots: 3, Steps: 100,
		Consistency: agg.Config{Quota: 3, Late: agg.Apply, Staleness: kintsugi.Infinite, Lead: kintsugi.Infinite, PerWorker: 3, Credit: 3},
	}, kintsugi.Taken{Applied: 7, Released: 7, Records: []kintsugi.Commit{record}})
	h := hello(2, 2)
	h.Kept, h.Oldest = 6, 3
	if err := x.HandleHello(now, h); err != nil {
		t.Fatal(err)
	}
	want := []kintsugi.Members{{Line: 1, Fence: 5, Change: 4, Countable: []kintsugi.Countable{
		{Slot: 0, Incarnation: 1, Oldest: 7, Version: 6, Next: 1, Earlier: []kintsugi.Counted{{Version: 5, Sequence: 2}, {Version: 5, Sequence: 3}}},
		{Slot: 1, Incarnation: 1, Oldest: 7},
		{Slot: 2, Incarnation: 2, Oldest: 3},
	}}}
	if got := sent[kintsugi.Members](x); !reflect.DeepEqual(got, want) {
		t.Errorf("shards are told\n%+v, want\n%+v", got, want)
	}
	h.Kept = 0
	if err := x.HandleHello(now, h); err != nil { // and the oldest version means nothing
		t.Fatal(err)
	}
	if got := sent[kintsugi.Members](x); len(got) != 1 || got[0].Countable[2].Oldest != 7 {
		t.Errorf("of a worker that has kept nothing shards are told %+v", got)
	}
}

// A gradient that becomes late is refused to the worker that made it. If its process has gone, it is
// forgotten.
func TestAGradientThatBecomesLateIsToldToItsWorker(t *testing.T) {
	now := time.Unix(0, 0)
	x := inRun(t, now, conductor.Config{Shards: 1, Slots: 3, Steps: 100, Consistency: agg.Config{Backup: 2, Lead: kintsugi.Infinite}}, kintsugi.Taken{})
	for slot := range kintsugi.Slot(3) {
		x.HandleTicket(now, gradientOf(slot, 0))
	}
	if err := x.HandleHello(now, hello(2, 2)); err != nil { // whose gradient goes with its process
		t.Fatal(err)
	}
	x.Ready()
	stable(x, now, 1, 1)
	ready := x.Ready()
	var refused []conductor.ToWorker
	for _, m := range ready.ToWorkers {
		if _, ok := m.Message.(kintsugi.Refused); ok {
			refused = append(refused, m)
		}
	}
	want := []conductor.ToWorker{{Slot: 1, Incarnation: 1, Message: kintsugi.Refused{
		Push: gradientOf(1, 0).Push, Step: 1, Reason: "late: computed on version 0, the oldest that still counts is 1",
	}}}
	if !slices.Equal(refused, want) {
		t.Errorf("workers are told %+v, want %+v", refused, want)
	}
}
