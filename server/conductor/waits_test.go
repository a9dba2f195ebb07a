package conductor_test

import (
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
		if got := x.Waits(); got != want {
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
