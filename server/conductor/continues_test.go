package conductor_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// In a view that goes on with a line, a step that every shard has applied goes on; one that some shard lacks is decided anew, for the
// gradients that it counts may be gone with a server.
func TestAStepThatNotEveryShardHasAppliedIsDecidedAnew(t *testing.T) {
	push := kintsugi.PushID{Line: 1, Slot: 0, Incarnation: 1, Version: 5}
	was := kintsugi.Commit{Line: 1, Fence: 3, Decided: 3, Step: 6, Counted: []kintsugi.Weighted{{Push: push, Weight: 1}}}
	other := was
	other.Decided = 2
	for name, c := range map[string]struct {
		continues bool
		second    kintsugi.Taken // of the second shard
		again     bool           // the step is sent again as it was
	}{
		"everywhere":                {true, kintsugi.Taken{Applied: 6, Released: 5, Records: []kintsugi.Commit{was}}, true},
		"not on one":                {true, kintsugi.Taken{Applied: 5, Released: 5}, false},
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

// A worker repeats the ticket of a gradient that it has pushed in the view before. Where the step that counts it goes on in this one, and is not released yet because
// a replica has still to take it, the worker hears nothing before it is: told that the gradient is refused, it would add what the codec has left out of it to
// the next one a second time.
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
