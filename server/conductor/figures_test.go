package conductor_test

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// events returns the step events that x has made since it was last asked.
func events(x *conductor.Conductor) []kintsugi.StepEvent {
	var steps []kintsugi.StepEvent
	for _, e := range x.Ready().Events {
		if step, ok := e.(kintsugi.StepEvent); ok {
			steps = append(steps, step)
		}
	}
	return steps
}

// The event of a step adds up what the shards have measured, and weighs losses by examples. Bytes
// are those since the previous step, although shards count from the beginning of the view.
func TestAStepEventSaysWhatItsStepWas(t *testing.T) {
	now := time.Unix(100, 0)
	x := inRun(t, now, conductor.Config{
		Shards: 2, Slots: 2, Steps: 100,
		Consistency: agg.Config{Late: agg.Apply, Staleness: kintsugi.Infinite, Lead: kintsugi.Infinite, ClipNorm: 2},
	}, kintsugi.Taken{})
	step := func(s, late kintsugi.Step, pushed, pulled []uint64, saving []time.Duration) kintsugi.StepEvent {
		t.Helper()
		a, b := gradientOf(0, s-1), gradientOf(1, late)
		b.Push.Sequence = uint32(s)
		a.Loss, a.Examples, a.SquaredNorm = 1, 8, 4.5
		b.Loss, b.Examples, b.SquaredNorm = 3, 24, 4
		now = now.Add(time.Second)
		x.HandleTicket(now, a)
		now = now.Add(2 * time.Second)
		x.HandleTicket(now, b)
		now = now.Add(4 * time.Second)
		for i := range kintsugi.ShardID(2) {
			x.HandleReplica(now, kintsugi.Stable{
				Shard: i, Fence: 5, Step: s, Decided: 5, Pushed: pushed[i], Pulled: pulled[i], Saving: saving[i],
				Products: []kintsugi.Products{{SquaredNorm: 4}, {SquaredNorm: 8.5}},
			})
		}
		e := events(x)
		if len(e) != 1 {
			t.Fatalf("%d events of step %d", len(e), s)
		}
		if want := []kintsugi.PushID{a.Push, b.Push}; !slices.Equal(e[0].Counted, want) {
			t.Errorf("step %d counts %v, want %v", s, e[0].Counted, want)
		}
		e[0].Times, e[0].Timeline, e[0].Counted = nil, nil, nil // other tests are about these
		return e[0]
	}
	got := []kintsugi.StepEvent{
		step(1, 0, []uint64{10, 20}, []uint64{500, 600}, []time.Duration{3, 1}),
		step(2, 0, []uint64{25, 40}, []uint64{501, 602}, []time.Duration{0, 7}),
	}
	want := kintsugi.StepEvent{
		Line: 1, Step: 1, Time: time.Unix(107, 0), Loss: 2.5, Workers: 2, Quota: 2, Reason: "all members (2)", Examples: 32, Norm: 5, Clipped: 1,
		Wait: 3 * time.Second, Apply: 4 * time.Second, Pushed: 30, Pulled: 1100, Saving: 3,
	}
	next := want
	next.Step, next.Time, next.Reason, next.Staleness, next.Pushed, next.Pulled, next.Saving = 2, time.Unix(114, 0), "", 1, 35, 3, 7
	if !reflect.DeepEqual(got, []kintsugi.StepEvent{want, next}) {
		t.Errorf("events\n%+v\n%+v, want\n%+v\n%+v", got[0], got[1], want, next)
	}
}

// Of what workers kept in an outage, an event says how many gradients its step counts, and how many
// were dropped: refused, or thrown away by their worker. What a process took with it is neither.
func TestAnEventCountsWhatWasKept(t *testing.T) {
	now := time.Unix(0, 0)
	x := inRun(t, now, conductor.Config{
		Shards: 1, Slots: 3, Steps: 100,
		Consistency: agg.Config{Quota: 2, Late: agg.Apply, Staleness: 1, Lead: kintsugi.Infinite, Continue: true},
	}, kintsugi.Taken{Applied: 7, Released: 7})
	step := kintsugi.Step(7)
	kept := func(slot kintsugi.Slot, version kintsugi.Step, sequence, n uint32) kintsugi.Ticket {
		g := gradientOf(slot, version)
		g.Push.Sequence, g.Kept = sequence, n
		return g
	}
	for name, c := range []struct {
		tickets       []kintsugi.Ticket
		restarts      kintsugi.Incarnation // of the last worker, after the first ticket; 0: it does not
		kept, dropped uint32
		late          uint32
	}{
		{tickets: []kintsugi.Ticket{gradientOf(0, 7), gradientOf(1, 7)}},
		{tickets: []kintsugi.Ticket{kept(0, 8, 0, 5), kept(1, 8, 0, 3)}, kept: 8},
		{tickets: []kintsugi.Ticket{kept(2, 3, 1, 5), kept(0, 8, 1, 4), gradientOf(1, 9)}, kept: 4, dropped: 5, late: 1}, // version 3 is too old
		{tickets: []kintsugi.Ticket{func() kintsugi.Ticket { k := kept(0, 9, 1, 6); k.Views = nil; return k }(), gradientOf(0, 10), gradientOf(1, 10)}, dropped: 6, late: 1},
		{tickets: []kintsugi.Ticket{kept(2, 11, 0, 9), gradientOf(0, 11), gradientOf(1, 11)}, restarts: 2},
		{tickets: []kintsugi.Ticket{kept(0, 12, 1, 4), gradientOf(1, 12)}, restarts: 3, kept: 4}, // what others keep is not the last worker's
	} {
		for i, g := range c.tickets {
			x.HandleTicket(now, g)
			if i == 0 && c.restarts != 0 {
				if err := x.HandleHello(now, hello(2, c.restarts)); err != nil {
					t.Fatal(err)
				}
			}
		}
		step++
		stable(x, now, 1, step)
		e := events(x)
		if len(e) != 1 {
			t.Fatalf("%d: %d events", name, len(e))
		}
		if e[0].Kept != c.kept || e[0].Dropped != c.dropped || e[0].Late != c.late {
			t.Errorf("step %d counts %d kept gradients, %d dropped and %d late; want %d, %d and %d", step, e[0].Kept, e[0].Dropped, e[0].Late, c.kept, c.dropped, c.late)
		}
	}
}

// A conductor that takes over a committed step gets the tickets of its gradients again, some of them
// more than once, and tickets of others. The loss of the step is that of what it counts.
func TestTheLossOfAStepThatWasTakenOverIsThatOfItsGradients(t *testing.T) {
	now := time.Unix(0, 0)
	tickets := []kintsugi.Ticket{gradientOf(0, 5), gradientOf(1, 5), gradientOf(2, 5)}
	was := kintsugi.Commit{Line: 1, Fence: 3, Decided: 3, Step: 6}
	for i := range tickets {
		tickets[i].Loss = math.Pow(10, float64(i))
		if i < 2 {
			was.Counted = append(was.Counted, kintsugi.Weighted{Push: tickets[i].Push, Weight: 8})
		}
	}
	x := inRun(t, now, conductor.Config{Shards: 1, Slots: 3, Steps: 100, Consistency: agg.Config{Backup: 1, Lead: kintsugi.Infinite}},
		kintsugi.Taken{Applied: 6, Released: 5, Records: []kintsugi.Commit{was}})
	for _, i := range []int{2, 0, 0, 1, 0} {
		x.HandleTicket(now, tickets[i])
	}
	x.HandleReplica(now, kintsugi.Stable{Fence: 5, Step: 6, Decided: 3})
	if e := events(x); len(e) != 1 || e[0].Step != 6 || e[0].Examples != 16 || e[0].Loss != 5.5 {
		t.Errorf("%+v, want 16 examples with a mean loss of 5.5", e)
	}
}

// Whoever stops a run first says why.
func TestARunIsStoppedOnce(t *testing.T) {
	now := time.Unix(0, 0)
	x := inRun(t, now, conductor.Config{Shards: 1, Slots: 1, Steps: 100}, kintsugi.Taken{})
	x.HandleTicket(now, gradientOf(0, 0)) // the step is open
	x.Stop(now, "no loss for ten steps", true)
	x.Stop(now, "stopped by the user", false)
	stable(x, now, 1, 1)
	x.HandleReplica(now, kintsugi.Saved{Step: 1, Manifest: "m"})
	x.Published(now, kintsugi.CheckpointEvent{Step: 1})
	ready := x.Ready()
	want := kintsugi.Done{Step: 1, Reason: "no loss for ten steps", Saved: true}
	if !x.Finished() || len(ready.Events) == 0 || ready.Events[len(ready.Events)-1] != want {
		t.Errorf("the run ends with %+v, want %+v", ready.Events, want)
	}
}

// A checkpoint is published when each shard has said once that its part is durable. It took as long
// as its slowest part.
func TestACheckpointIsPublishedWhenAllItsPartsAreDurable(t *testing.T) {
	now := time.Unix(0, 0)
	x := inRun(t, now, conductor.Config{Shards: 3, Slots: 1, Steps: 100, SaveEvery: 1}, kintsugi.Taken{})
	x.HandleTicket(now, gradientOf(0, 0))
	stable(x, now, 3, 1)
	x.Ready()
	part := func(shard kintsugi.ShardID, step kintsugi.Step, manifest string, bytes uint64, took time.Duration) []conductor.Publication {
		x.HandleReplica(now, kintsugi.Saved{Shard: shard, Step: step, Manifest: manifest, Bytes: bytes, Took: took})
		return x.Ready().Publish
	}
	for _, p := range [][]conductor.Publication{part(1, 1, "b", 10, 5), part(1, 1, "b", 10, 5), part(2, 7, "of another conductor", 1, 1), part(0, 1, "a", 100, 7)} {
		if len(p) > 0 {
			t.Fatalf("%+v is published before every shard is saved", p)
		}
	}
	want := []conductor.Publication{{Step: 1, Manifests: []string{"a", "b", "c"}, Bytes: 111, Took: 7}}
	if got := part(2, 1, "c", 1, 6); !reflect.DeepEqual(got, want) {
		t.Errorf("published is %+v, want %+v", got, want)
	}
	if got := part(2, 1, "c", 1, 6); len(got) > 0 {
		t.Errorf("published again is %+v", got)
	}
	x.Published(now, kintsugi.CheckpointEvent{Step: 7, Manifest: "of another conductor"})
	if e := x.Ready().Events; len(e) > 0 {
		t.Errorf("of a checkpoint that it has not asked for it tells %+v", e)
	}
	x.Published(now, kintsugi.CheckpointEvent{Step: 1, Manifest: "run", Bytes: 111, Took: 7})
	if got, want := x.Ready().Events, []kintsugi.RunEvent{kintsugi.CheckpointEvent{Line: 1, Step: 1, Manifest: "run", Bytes: 111, Took: 7}}; !reflect.DeepEqual(got, want) {
		t.Errorf("it tells %+v, want %+v", got, want)
	}
}
