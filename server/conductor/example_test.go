package conductor_test

import (
	"fmt"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// A conductor by itself: events go in, and Ready returns what is to be sent and done.
func Example() {
	now := time.Unix(0, 0)
	c, err := conductor.New(conductor.Config{
		Line: 1, View: 1, Fence: 1, Shards: 1, Slots: 1, Steps: 1,
		Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.1},
	}, now)
	if err != nil {
		fmt.Println(err)
		return
	}
	owes := func() {
		ready := c.Ready()
		for _, m := range ready.ToShards {
			fmt.Printf("to shard %d: %T\n", m.Shard, m.Message)
		}
		for _, m := range ready.ToWorkers {
			fmt.Printf("to worker/%d: %T\n", m.Slot, m.Message)
		}
		for _, e := range ready.Events {
			fmt.Printf("event: %T\n", e)
		}
	}

	c.ShardConnected(0)
	owes()
	c.HandleReplica(now, kintsugi.Taken{Shard: 0, Fence: 1})
	if err := c.HandleHello(now, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 1, Slot: 0, Incarnation: 1}); err != nil {
		fmt.Println(err)
	}
	owes()
	c.HandleReplica(now, kintsugi.MembersKnown{Shard: 0, Fence: 1, Change: 1})
	owes()
	push := kintsugi.PushID{Line: 1, Slot: 0, Incarnation: 1, Version: 0}
	c.HandleTicket(now, kintsugi.Ticket{Push: push, Views: []kintsugi.ViewNumber{1}, Loss: 2.5, Examples: 32, SquaredNorm: 1})
	owes()
	c.HandleReplica(now, kintsugi.Stable{Shard: 0, Fence: 1, Step: 1})
	owes()
	// Output:
	// to shard 0: kintsugi.Take
	// to shard 0: kintsugi.Members
	// to worker/0: kintsugi.Admitted
	// to shard 0: kintsugi.Commit
	// to shard 0: kintsugi.Released
	// to worker/0: kintsugi.Released
	// event: kintsugi.StepEvent
}
