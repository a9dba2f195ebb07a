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

// In a view that goes on with a line, a step that every shard has applied goes on. A step that some
// shard lacks is decided anew, since the gradients that it counts may be gone with a server.
func TestAStepThatNotEveryShardHasAppliedIsDecidedAnew(t *testing.T) {
	push := kintsugi.PushID{Line: 1, Slot: 0, Incarnation: 1, Version: 5}
	was := kintsugi.Commit{Line: 1, Fence: 3, Decided: 3, Step: 6, Counted: []kintsugi.Weighted{{Push: push, Weight: 1}}}
	other := was
	other.Decided = 2
	for name, c := range map[string]struct {
		continues bool
		second    kintsugi.Taken // the second shard's answer
		again     bool           // the step is sent again unchanged
	}{
		"everywhere":                {true, kintsugi.Taken{Applied: 6, Released: 5, Records: []kintsugi.Commit{was}}, true},
		"not on one":                {true, kintsugi.Taken{Applied: 5, Released: 5}, false},
		"known on one, not applied": {true, kintsugi.Taken{Applied: 5, Released: 5, Records: []kintsugi.Commit{was}}, false},
		"otherwise on one":          {true, kintsugi.Taken{Applied: 6, Released: 5, Records: []kintsugi.Commit{other}}, false},
		"not on one, heads hold on": {false, kintsugi.Taken{Applied: 5, Released: 5}, true},
	} {
		now := time.Unix(0, 0)
		x, err := conductor.New(conductor.Config{Line: 1, View: 2, Fence: 9, Shards: 2, Slots: 1, Steps: 100, Consistency: agg.Config{}, Continues: c.continues}, now)
		if err != nil {
			t.Fatal(err)
		}
		x.ShardConnected(0)
		x.ShardConnected(1)
		x.Ready()
		c.second.Shard, c.second.Fence = 1, 9
		x.HandleReplica(now, kintsugi.Taken{Shard: 0, Fence: 9, Applied: 6, Released: 5, Records: []kintsugi.Commit{was}})
		x.HandleReplica(now, c.second)
		again := slices.ContainsFunc(x.Ready().ToShards, func(m conductor.ToShard) bool {
			sent, ok := m.Message.(kintsugi.Commit)
			return ok && sent.Decided == 3
		})
		if again != c.again || x.Released() != 5 {
			t.Errorf("%s: sent again: %v, want %v; released %d", name, again, c.again, x.Released())
		}
	}
}

// A worker repeats the ticket of a gradient that it pushed in the previous view. If the step that
// counts it goes on in this view, and is not released yet because a replica still has to take it,
// the worker hears nothing until then. If it were told that the gradient is refused, it would add
// what its codec has left out to the next gradient a second time.
func TestAGradientOfAStepThatGoesOnIsNotRefused(t *testing.T) {
	push := kintsugi.PushID{Line: 1, Slot: 0, Incarnation: 1, Version: 4}
	was := kintsugi.Commit{Line: 1, Fence: 3, Decided: 3, Step: 6, Counted: []kintsugi.Weighted{{Push: push, Weight: 1}}}
	now := time.Unix(0, 0)
	x, err := conductor.New(conductor.Config{
		Line: 1, View: 2, Fence: 9, Shards: 1, Slots: 1, Steps: 100, Continues: true,
		Consistency: agg.Config{Quota: 1, Late: agg.Apply, Staleness: kintsugi.Infinite, Lead: kintsugi.Infinite},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	x.ShardConnected(0)
	x.HandleReplica(now, kintsugi.Taken{Fence: 9, Applied: 6, Released: 5, Records: []kintsugi.Commit{was}})
	if err := x.HandleHello(now, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 1, Incarnation: 1}); err != nil {
		t.Fatal(err)
	}
	x.HandleReplica(now, kintsugi.MembersKnown{Fence: 9, Change: 1})
	x.Ready()
	x.HandleTicket(now, kintsugi.Ticket{Push: push, Views: []kintsugi.ViewNumber{1}, Examples: 8})
	if got := x.Ready().ToWorkers; len(got) > 0 {
		t.Errorf("before the step is released the worker is told %+v", got)
	}
	x.HandleReplica(now, kintsugi.Stable{Fence: 9, Step: 6, Decided: 3})
	told := x.Ready().ToWorkers
	if len(told) != 1 || !slices.Equal(told[0].Message.(kintsugi.Released).Counted, []kintsugi.PushID{push}) {
		t.Errorf("when it is, the worker is told %+v", told)
	}
}

// A worker may miss the releases of many steps before the conductor dies. Nobody has records of
// what these counted, but it is known that its newest gradient is among them. If it were told that
// one of them is refused, it would add what its codec has left out to the next gradient a second
// time.
func TestAGradientOfAStepWithoutARecordIsNotRefused(t *testing.T) {
	now := time.Unix(0, 0)
	push := func(slot kintsugi.Slot, version kintsugi.Step, sequence uint32) kintsugi.PushID {
		return kintsugi.PushID{Line: 1, Slot: slot, Incarnation: 1, Version: version, Sequence: sequence}
	}
	start := func(view kintsugi.ViewNumber, taken kintsugi.Taken) *conductor.Conductor {
		fence := kintsugi.Fence(view)
		x, err := conductor.New(conductor.Config{
			Line: 1, View: view, Fence: fence, Shards: 1, Slots: 2, Steps: 100, Continues: view > 1,
			Consistency: agg.Config{Quota: 1, Late: agg.Apply, Staleness: kintsugi.Infinite, Lead: kintsugi.Infinite},
		}, now)
		if err != nil {
			t.Fatal(err)
		}
		x.ShardConnected(0)
		taken.Fence = fence
		x.HandleReplica(now, taken)
		for slot := range kintsugi.Slot(2) {
			if err := x.HandleHello(now, kintsugi.Hello{Protocol: kintsugi.ProtocolVersion, Line: 1, Slot: slot, Incarnation: 1}); err != nil {
				t.Fatal(err)
			}
		}
		x.HandleReplica(now, kintsugi.MembersKnown{Fence: fence, Change: 2})
		x.Ready()
		return x
	}
	x := start(1, kintsugi.Taken{})
	var records []kintsugi.Commit
	for step, p := range []kintsugi.PushID{push(0, 0, 0), push(0, 0, 1), push(1, 0, 0), push(1, 3, 0), push(1, 4, 0)} { // one gradient each
		x.HandleTicket(now, kintsugi.Ticket{Push: p, Views: []kintsugi.ViewNumber{1}, Examples: 8})
		for _, m := range x.Ready().ToShards {
			if commit, ok := m.Message.(kintsugi.Commit); ok {
				records = append(records, commit)
			}
		}
		x.HandleReplica(now, kintsugi.Stable{Fence: 1, Step: kintsugi.Step(step + 1), Decided: 1})
		x.Ready()
	}
	x = start(2, kintsugi.Taken{Applied: 5, Released: 5, Records: []kintsugi.Commit{records[4], records[3]}})
	for _, c := range []struct {
		push    kintsugi.PushID
		counted bool
	}{{push(0, 0, 1), true}, {push(0, 0, 2), false}, {push(1, 3, 0), true}, {push(1, 4, 0), true}, {push(1, 4, 1), false}} {
		x.HandleTicket(now, kintsugi.Ticket{Push: c.push, Views: []kintsugi.ViewNumber{1}, Examples: 8})
		told := x.Ready().ToWorkers
		if len(told) != 1 {
			t.Fatalf("of %v a worker is told %+v", c.push, told)
		}
		if _, counted := told[0].Message.(kintsugi.Released); counted != c.counted {
			t.Errorf("of %v, received in the view before, the worker is told %+v; counted: %v", c.push, told[0].Message, c.counted)
		}
	}
}

// A conductor may have died after it had sent its commit to some shards, and the next one after it
// had sent its own to others. The newest decision is the one that may have been released.
func TestOfTwoDecisionsTheNewerOneIsTakenOver(t *testing.T) {
	now := time.Unix(0, 0)
	commit := func(step kintsugi.Step, by kintsugi.Fence, slots ...kintsugi.Slot) kintsugi.Commit {
		c := kintsugi.Commit{Line: 1, Fence: by, Decided: by, Step: step}
		for _, slot := range slots {
			c.Counted = append(c.Counted, kintsugi.Weighted{Push: gradientOf(slot, step-1).Push, Weight: 1})
		}
		return c
	}
	last, older, newer := commit(6, 2, 0, 1), commit(7, 3, 0), commit(7, 4, 1)
	for _, records := range [][][]kintsugi.Commit{
		{{last, older}, {last, newer}, {last}},
		{{last}, {newer, last}, {older, last}},
	} {
		x, err := conductor.New(conductor.Config{Line: 1, View: 1, Fence: 9, Shards: 3, Slots: 2, Steps: 100, Consistency: agg.Config{Backup: 1, Lead: kintsugi.Infinite}}, now)
		if err != nil {
			t.Fatal(err)
		}
		released := []kintsugi.Step{6, 6, 5} // the last shard has applied step 6 and does not know that it is released
		for i := range kintsugi.ShardID(3) {
			x.ShardConnected(i)
		}
		x.Ready()
		taken := now.Add(time.Hour)
		for i := range kintsugi.ShardID(3) {
			x.HandleReplica(taken, kintsugi.Taken{Shard: i, Fence: 9, Applied: 6, Released: released[i], Records: records[i]})
		}
		var want []conductor.ToShard
		newer.Fence = 9
		for i := range kintsugi.ShardID(3) {
			if released[i] < 6 {
				want = append(want, conductor.ToShard{Shard: i, Message: kintsugi.Released{Line: 1, Fence: 9, Step: 6, Counted: []kintsugi.PushID{last.Counted[0].Push, last.Counted[1].Push}}})
			}
			want = append(want, conductor.ToShard{Shard: i, Message: newer})
		}
		if got := x.Ready().ToShards; !reflect.DeepEqual(got, want) {
			t.Errorf("shards are told\n%+v, want\n%+v", got, want)
		}
		for i := range kintsugi.ShardID(3) {
			x.HandleReplica(taken.Add(time.Second), kintsugi.Stable{Shard: i, Fence: 9, Step: 7, Decided: 4})
		}
		if e := events(x); len(e) != 1 || e[0].Wait != 0 || e[0].Apply != time.Second {
			t.Errorf("%+v: the step was open when it was taken over, and took a second from there", e)
		}
		newer.Fence = 4
	}
}
