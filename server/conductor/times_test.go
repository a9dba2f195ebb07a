package conductor_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// obedient does at once what a conductor with one shard asks, except applying a step, and returns
// the steps that are reported.
func obedient(c *conductor.Conductor, now time.Time) (steps []kintsugi.StepEvent) {
	for {
		ready := c.Ready()
		if len(ready.ToShards)+len(ready.ToWorkers)+len(ready.Events) == 0 {
			return steps
		}
		for _, e := range ready.Events {
			steps = append(steps, e.(kintsugi.StepEvent))
		}
		for _, m := range ready.ToShards {
			switch m := m.Message.(type) {
			case kintsugi.Take:
				c.HandleReplica(now, kintsugi.Taken{Fence: m.Fence})
			case kintsugi.Members:
				c.HandleReplica(now, kintsugi.MembersKnown{Fence: m.Fence, Change: m.Change})
			}
		}
	}
}

// The times of gradients are reported with the step in which they ended, whatever became of them.
func TestAStepEventTellsWhatGradientsTook(t *testing.T) {
	now := time.Unix(1000, 0)
	c, err := conductor.New(conductor.Config{Line: 3, View: 1, Fence: 1, Shards: 1, Slots: 4, Steps: 9, Consistency: agg.Config{Quota: 1, Lead: kintsugi.Infinite}}, now)
	if err != nil {
		t.Fatal(err)
	}
	c.ShardConnected(0)
	for slot := range kintsugi.Slot(4) {
		if err := c.HandleHello(now, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 3, Slot: slot, Incarnation: 1}); err != nil {
			t.Fatal(err)
		}
	}
	obedient(c, now)
	told := func(slot kintsugi.Slot, version kintsugi.Step, compute time.Duration, examples uint32, views ...kintsugi.ViewNumber) {
		c.HandleTicket(now, kintsugi.Ticket{
			Push:  kintsugi.PushID{Line: 3, Slot: slot, Incarnation: 1, Version: version},
			Views: views, Examples: examples, SquaredNorm: 1, Compute: compute, Transfer: compute / 2,
		})
		obedient(c, now)
	}
	step := func(n kintsugi.Step, want ...kintsugi.GradientTime) {
		t.Helper()
		c.HandleReplica(now, kintsugi.Stable{Fence: 1, Step: n, Products: make([]kintsugi.Products, 1)})
		if steps := obedient(c, now); len(steps) != 1 || !slices.Equal(steps[0].Times, want) {
			t.Errorf("step %d: got %+v, want times %+v", n, steps, want)
		}
	}
	told(0, 0, 10, 8, 1) // counted in step 1
	told(1, 0, 20, 8, 1) // arrives while that is applied
	step(1, kintsugi.GradientTime{Slot: 0, Compute: 10, Transfer: 5}, kintsugi.GradientTime{Slot: 1, Compute: 20, Transfer: 10, Fate: kintsugi.Late})
	told(2, 0, 30, 8, 1) // refused
	told(3, 0, 40, 0)    // given up
	told(3, 0, 50, 8)    // thrown away
	told(0, 1, 60, 8, 1) // counted in step 2
	told(0, 1, 60, 8, 1) // a repeated ticket
	step(2, kintsugi.GradientTime{Slot: 2, Compute: 30, Transfer: 15, Fate: kintsugi.Late},
		kintsugi.GradientTime{Slot: 3, Compute: 40, Transfer: 20, Fate: kintsugi.GivenUp},
		kintsugi.GradientTime{Slot: 3, Compute: 50, Transfer: 25, Fate: kintsugi.Late}, kintsugi.GradientTime{Slot: 0, Compute: 60, Transfer: 30})

	// A worker that is told ten thousand times that it is too late does not fill the memory.
	for i := range 10_000 {
		told(1, 1, time.Duration(i), 0)
	}
	told(0, 2, 70, 8, 1)
	c.HandleReplica(now, kintsugi.Stable{Fence: 1, Step: 3, Products: make([]kintsugi.Products, 1)})
	if steps := obedient(c, now); len(steps) != 1 || len(steps[0].Times) > 200 || steps[0].Late != 10_000 {
		t.Errorf("got %d steps, the first with %d times and %d late gradients", len(steps), len(steps[0].Times), steps[0].Late)
	}
}
