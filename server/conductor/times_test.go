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

// A timeline says how long each part of a step took, from the release of the previous step on: each
// gradient that came in time, and each shard. Long runs report it for some steps only.
func TestATimelineSaysHowLongThePartsOfAStepTook(t *testing.T) {
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	start := now
	at := func(d time.Duration) time.Time { now = start.Add(d); return now }
	x := inRun(t, now, conductor.Config{Shards: 2, Slots: 3, Steps: 100, Consistency: agg.Config{Backup: 1, Lead: kintsugi.Infinite}}, kintsugi.Taken{})
	told := func(d time.Duration, slot kintsugi.Slot, version kintsugi.Step) {
		g := gradientOf(slot, version)
		g.Compute, g.Transfer, g.Spans = 10*ms, 3*ms, kintsugi.Spans{Pull: time.Duration(slot) * ms}
		x.HandleTicket(at(d), g)
	}
	step := func(d time.Duration, s kintsugi.Step) *kintsugi.Timeline {
		for i := range kintsugi.ShardID(2) {
			x.HandleReplica(at(d+time.Duration(i)*ms), kintsugi.Stable{Shard: i, Fence: 5, Step: s, Decided: 5, Apply: 2 * ms, Publish: 5 * ms, Ahead: 7 * ms})
		}
		e := events(x)
		if len(e) != 1 {
			t.Fatalf("%d events", len(e))
		}
		return e[0].Timeline
	}
	worker := func(slot kintsugi.Slot, told time.Duration) kintsugi.WorkerTime {
		return kintsugi.WorkerTime{Slot: slot, Told: told, Compute: 10 * ms, Transfer: 3 * ms, Spans: kintsugi.Spans{Pull: time.Duration(slot) * ms}}
	}
	shards := func(told time.Duration) []kintsugi.ShardTime {
		return []kintsugi.ShardTime{{Shard: 0, Told: told, Apply: 2 * ms, Publish: 5 * ms, Ahead: 7 * ms}, {Shard: 1, Told: told + ms, Apply: 2 * ms, Publish: 5 * ms, Ahead: 7 * ms}}
	}
	told(20*ms, 1, 0)
	told(30*ms, 0, 0)
	told(35*ms, 2, 0) // while the step is made
	if got, want := step(40*ms, 1), (&kintsugi.Timeline{Workers: []kintsugi.WorkerTime{worker(1, 20*ms), worker(0, 30*ms), worker(2, 35*ms)}, Shards: shards(40 * ms)}); !reflect.DeepEqual(got, want) {
		t.Errorf("step 1: %+v, want %+v", got, want)
	}
	told(50*ms, 2, 0) // too late
	told(61*ms, 1, 1)
	told(62*ms, 0, 1)
	if got, want := step(70*ms, 2), (&kintsugi.Timeline{Workers: []kintsugi.WorkerTime{worker(1, 20*ms), worker(0, 21*ms)}, Shards: shards(29 * ms)}); !reflect.DeepEqual(got, want) {
		t.Errorf("step 2: %+v, want %+v", got, want)
	}

	start, now = now, now.Add(time.Hour)
	x = inRun(t, now, conductor.Config{Shards: 2, Slots: 1, Steps: 768}, kintsugi.Taken{})
	var with []kintsugi.Step
	for s := range kintsugi.Step(12) {
		told(time.Hour, 0, s)
		if step(time.Hour, s+1) != nil {
			with = append(with, s+1)
		}
	}
	if want := []kintsugi.Step{4, 8, 12}; !slices.Equal(with, want) {
		t.Errorf("of 768 steps %v have timelines, want %v and so on", with, want)
	}
}
