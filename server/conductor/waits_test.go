package conductor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

func TestARunSaysWhatItWaitsFor(t *testing.T) {
	now := time.Unix(0, 0)
	x, err := conductor.New(conductor.Config{Line: 1, View: 1, Fence: 5, Shards: 2, Slots: 2, Steps: 1}, now)
	if err != nil {
		t.Fatal(err)
	}
	waits := func(want string) {
		t.Helper()
		if got := x.Waits(now); got != want {
			t.Errorf("it waits for %q, want %q", got, want)
		}
	}
	push := func(slot kintsugi.Slot) kintsugi.PushID { return kintsugi.PushID{Line: 1, Slot: slot, Incarnation: 1} }
	taken := func(shard kintsugi.ShardID) { x.HandleReplica(now, kintsugi.Taken{Shard: shard, Fence: 5}) }
	join := func(slot kintsugi.Slot) {
		if err := x.HandleHello(now, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 1, Slot: slot, Incarnation: 1}); err != nil {
			t.Fatal(err)
		}
		for shard := range kintsugi.ShardID(2) {
			x.HandleReplica(now, kintsugi.MembersKnown{Shard: shard, Fence: 5, Change: uint64(slot) + 1})
		}
	}
	waits("shards [0 1] to say where they stand")
	taken(1)
	waits("shards [0] to say where they stand")
	taken(0)
	waits("workers [0 1], which are not in, or gradients of the others: 0 are here")
	join(0)
	waits("workers [1], which are not in, or gradients of the others: 0 are here, none of workers [0], which are connected")
	join(1)
	waits("gradients: 0 are here, none of workers [0 1], which are connected")
	x.HandleTicket(now, kintsugi.Ticket{Push: push(0), Views: []kintsugi.ViewNumber{1, 1}, Examples: 1})
	waits("gradients: 1 are here, none of workers [1], which are connected")
	x.WorkerGone(now, 1, 1)
	waits("gradients: 1 are here; the streams of workers [1] broke")
	x.HandleTicket(now, kintsugi.Ticket{Push: push(1), Views: []kintsugi.ViewNumber{1, 1}, Examples: 1})
	waits("shards [0 1] to take step 1")
	x.HandleReplica(now, kintsugi.Taken{Shard: 1, Fence: 5, Lacks: []kintsugi.PushID{push(0)}})
	waits("shards [0 1] to take step 1: shard 1 lacks the gradient worker/0 version 0, of which the worker has said that every head has it. " +
		"It is made to push again; if that does not help, end this worker, and then start the server again that heads the shard, so that the step is decided anew")
	for shard := range kintsugi.ShardID(2) {
		x.HandleReplica(now, kintsugi.Stable{Shard: shard, Fence: 5, Step: 1})
	}
	waits("the checkpoint of step 1")
	for shard := range kintsugi.ShardID(2) {
		x.HandleReplica(now, kintsugi.Saved{Shard: shard, Step: 1})
	}
	x.Published(now, kintsugi.CheckpointEvent{Step: 1})
	waits("nothing: the run is over")
}

// The first step waits for workers that are missing, and the words say how long it will.
func TestAFirstStepSaysForHowLongItWaits(t *testing.T) {
	begun := time.Unix(0, 0)
	x, err := conductor.New(conductor.Config{Line: 1, View: 1, Fence: 5, Shards: 1, Slots: 3, Steps: 9, StartGrace: time.Minute}, begun)
	if err != nil {
		t.Fatal(err)
	}
	at := func(after, lasts, left time.Duration, want string) {
		t.Helper()
		now := begun.Add(after)
		x.Tick(now)
		if l, r := x.Gathers(now); l != lasts || r != left {
			t.Errorf("after %v the first step has waited for %v, and will for %v, want %v and %v", after, l, r, lasts, left)
		}
		if got := x.Waits(now); got != want {
			t.Errorf("after %v it waits for %q, want %q", after, got, want)
		}
	}
	join := func(after time.Duration, slot kintsugi.Slot, change uint64) {
		now := begun.Add(after)
		if err := x.HandleHello(now, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 1, Slot: slot, Incarnation: 1}); err != nil {
			t.Fatal(err)
		}
		x.HandleReplica(now, kintsugi.MembersKnown{Fence: 5, Change: change})
	}
	at(time.Hour, 0, 0, "shards [0] to say where they stand")
	x.HandleReplica(begun, kintsugi.Taken{Fence: 5})
	at(time.Hour, 0, 0, "workers [0 1 2], which are not in, or gradients of the others: 0 are here") // as long as nobody is there
	join(time.Hour, 1, 1)
	at(time.Hour, 0, time.Minute, "workers [0 2], which are not in; in 1m0s steps begin without those that are missing then")
	join(time.Hour+20*time.Second, 0, 2)
	at(time.Hour+59700*time.Millisecond, 59700*time.Millisecond, 300*time.Millisecond, "workers [2], which are not in; in 1s steps begin without those that are missing then")
	at(time.Hour+time.Minute, 0, 0, "workers [2], which are not in, or gradients of the others: 0 are here, none of workers [0 1], which are connected")
}

// In a large run, the words name the first few and count the others.
func TestTheWordsOfALargeRunAreFew(t *testing.T) {
	now := time.Unix(0, 0)
	x := inRun(t, now, conductor.Config{Shards: 1, Slots: 18, Steps: 2, SaveEvery: 1}, kintsugi.Taken{})
	waits := func(want string) {
		t.Helper()
		if got := x.Waits(now); got != want {
			t.Errorf("it waits for %q, want %q", got, want)
		}
	}
	waits("gradients: 0 are here, none of workers [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] and 2 more, which are connected")
	for slot := range kintsugi.Slot(18) {
		x.HandleTicket(now, gradientOf(slot, 0))
	}
	var lacks []kintsugi.PushID
	for slot := range kintsugi.Slot(6) {
		lacks = append(lacks, gradientOf(slot, 0).Push)
	}
	x.HandleReplica(now, kintsugi.Taken{Fence: 5, Lacks: lacks})
	head := "shards [0] to take step 1: "
	for slot := range 4 {
		head += fmt.Sprintf("shard 0 lacks the gradient worker/%d version 0, of which the worker has said that every head has it; ", slot)
	}
	waits(head + "and 2 more. It is made to push again; if that does not help, end this worker, and then start the server again that heads the shard, so that the step is decided anew")
	stable(x, now, 1, 1)
	x.WorkerGone(now, 17, 1)
	waits("gradients: 0 are here, none of workers [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] and 1 more, which are connected; the streams of workers [17] broke") // it does not wait for the checkpoint
	x.Hold(now)
	waits("the checkpoint of step 1")
}

// Shards that do not take a step are asked why, and not at each tick.
func TestShardsAreAskedWhyOnceInAWhile(t *testing.T) {
	begun := time.Unix(0, 0)
	x := inRun(t, begun, conductor.Config{Shards: 2, Slots: 1, Steps: 100}, kintsugi.Taken{})
	x.HandleTicket(begun, gradientOf(0, 0))
	x.HandleReplica(begun, kintsugi.Stable{Shard: 0, Fence: 5, Step: 1, Decided: 5})
	x.Ready()
	var asked []time.Duration
	for after := time.Duration(0); after < 35*time.Second; after += time.Second {
		x.Tick(begun.Add(after))
		for _, m := range x.Ready().ToShards {
			if _, ok := m.Message.(kintsugi.Take); ok && m.Shard == 1 {
				asked = append(asked, after)
			} else {
				t.Errorf("after %v shard %d is told %+v", after, m.Shard, m.Message)
			}
		}
	}
	if want := []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}; !slices.Equal(asked, want) {
		t.Errorf("shard 1 is asked after %v, want %v", asked, want)
	}
}

// The first step gathers workers only as long as there is to be one.
func TestARunThatMakesNoStepsGathersNobody(t *testing.T) {
	begun := time.Unix(0, 0)
	for name, c := range map[string]struct {
		left time.Duration
		do   func(x *conductor.Conductor)
	}{
		"a run":                 {time.Minute, func(*conductor.Conductor) {}},
		"one that stands still": {0, func(x *conductor.Conductor) { x.Hold(begun) }},
		"one that is to end":    {0, func(x *conductor.Conductor) { x.Stop(begun, "enough", true) }},
		"one that is over":      {0, func(x *conductor.Conductor) { x.Stop(begun, "enough", false) }},
	} {
		x, err := conductor.New(conductor.Config{Line: 1, View: 1, Fence: 5, Shards: 1, Slots: 2, Steps: 9, StartGrace: time.Minute}, begun)
		if err != nil {
			t.Fatal(err)
		}
		x.HandleReplica(begun, kintsugi.Taken{Fence: 5})
		if err := x.HandleHello(begun, hello(0, 1)); err != nil {
			t.Fatal(err)
		}
		known(x, begun, 1, 1)
		c.do(x)
		if _, left := x.Gathers(begun); left != c.left {
			t.Errorf("%s waits for %v, want %v", name, left, c.left)
		}
	}
}
