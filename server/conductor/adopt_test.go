package conductor_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

func TestALineBeginsWhereTheKeptShardsStand(t *testing.T) {
	kept := func(applied, released kintsugi.Step) kintsugi.Taken {
		return kintsugi.Taken{Applied: applied, Released: released, Standing: kintsugi.Kept}
	}
	lost := func(saved ...kintsugi.Step) kintsugi.Taken {
		return kintsugi.Taken{Standing: kintsugi.Lost, Saved: saved}
	}
	decided := func(applied kintsugi.Step, by kintsugi.Fence) kintsugi.Taken {
		t := kept(applied, applied-1)
		t.Records = []kintsugi.Commit{{Step: applied - 1, Decided: 1}, {Step: applied, Decided: by}}
		return t
	}
	settled := func(at kintsugi.Step) kintsugi.Taken { return kintsugi.Taken{Applied: at, Released: at} }
	for _, c := range []struct {
		name  string
		taken []kintsugi.Taken
		want  kintsugi.Step
		told  []kintsugi.PartialEvent
	}{
		{"nobody was lost", []kintsugi.Taken{kept(7, 7), kept(7, 7)}, 7, nil},
		{"one was lost", []kintsugi.Taken{kept(7, 7), lost(5, 3)}, 7, []kintsugi.PartialEvent{{Line: 2, Step: 7, Shard: 1, Chunks: 2, Oldest: 3, Age: 6}}},
		{"the conductor's own was lost, and all others have applied the open step", []kintsugi.Taken{lost(4), kept(8, 7), kept(8, 7)}, 8,
			[]kintsugi.PartialEvent{{Line: 2, Step: 8, Chunks: 1, Oldest: 4, Age: 4}}},
		{"some know that the newest step is released", []kintsugi.Taken{kept(8, 8), lost(8), kept(8, 7)}, 8, []kintsugi.PartialEvent{{Line: 2, Step: 8, Shard: 1, Chunks: 1, Oldest: 8}}},
		{"they have applied different decisions about the open step", []kintsugi.Taken{decided(8, 3), decided(8, 4), lost(2)}, 7,
			[]kintsugi.PartialEvent{{Line: 2, Step: 7, Shard: 2, Chunks: 1, Oldest: 2, Age: 5}}},
		{"they have applied the same decision about the open step", []kintsugi.Taken{decided(8, 4), decided(8, 4), decided(8, 4)}, 8, nil},
		{"what one has applied beyond the others is of no account", []kintsugi.Taken{decided(8, 3), kept(7, 7), decided(8, 4)}, 7, nil},
		{"only some have applied the open step", []kintsugi.Taken{kept(8, 7), kept(7, 7), lost()}, 7, []kintsugi.PartialEvent{{Line: 2, Step: 7, Shard: 2, Oldest: 7}}},
		{"only some have applied the open step, the first has not", []kintsugi.Taken{kept(7, 7), kept(8, 7), lost()}, 7, []kintsugi.PartialEvent{{Line: 2, Step: 7, Shard: 2, Oldest: 7}}},
		{"a conductor before has begun the line", []kintsugi.Taken{kept(8, 7), settled(7), lost(1)}, 7, []kintsugi.PartialEvent{{Line: 2, Step: 7, Shard: 2, Chunks: 1, Oldest: 1, Age: 6}}},
		{"nobody was kept after all", []kintsugi.Taken{lost(3, 6), lost(5)}, 6, []kintsugi.PartialEvent{
			{Line: 2, Step: 6, Chunks: 2, Oldest: 3, Age: 3}, {Line: 2, Step: 6, Shard: 1, Chunks: 1, Oldest: 5, Age: 1}}},
		{"nothing was ever saved", []kintsugi.Taken{lost(0), lost(0)}, 0, []kintsugi.PartialEvent{{Line: 2, Chunks: 1}, {Line: 2, Shard: 1, Chunks: 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			x, err := conductor.New(conductor.Config{Line: 2, View: 2, Fence: 5, Shards: len(c.taken), Slots: 1, Steps: 100}, now)
			if err != nil {
				t.Fatal(err)
			}
			adopts := make([]int, len(c.taken))
			var told []kintsugi.PartialEvent
			read := func() {
				t.Helper()
				ready := x.Ready()
				for _, m := range ready.ToShards {
					switch m := m.Message.(type) {
					case kintsugi.Adopt:
						if m != (kintsugi.Adopt{Line: 2, Fence: 5, Step: c.want}) {
							t.Errorf("%+v, want step %d", m, c.want)
						}
					case kintsugi.Take:
						continue
					default:
						t.Errorf("%T before every shard has begun the line", m)
					}
					adopts[m.Shard]++
				}
				for _, e := range ready.Events {
					told = append(told, e.(kintsugi.PartialEvent))
				}
			}
			answer := func(i int, m kintsugi.Taken) {
				m.Shard, m.Fence = kintsugi.ShardID(i), 5
				x.HandleReplica(now, m)
				read()
			}
			for i, m := range c.taken {
				x.ShardConnected(kintsugi.ShardID(i))
				answer(i, m)
			}
			last := len(c.taken) - 1
			x.ShardConnected(kintsugi.ShardID(last)) // its stream breaks, and the message is lost
			read()
			answer(last, c.taken[last])
			for i, m := range c.taken {
				want := 1
				switch {
				case m.Standing == kintsugi.Settled:
					want = 0
				case i == last:
					want = 2
				}
				if adopts[i] != want {
					t.Errorf("shard %d is told %d times where the line begins, want %d", i, adopts[i], want)
				}
			}
			for i, m := range c.taken {
				if m.Standing != kintsugi.Settled {
					answer(i, settled(c.want))
				}
			}
			if x.Released() != c.want || !slices.Equal(told, c.told) {
				t.Errorf("the run goes on at step %d, want %d; it tells\n%+v, want\n%+v", x.Released(), c.want, told, c.told)
			}
		})
	}
}

// Several streams break at once, and with them the messages that say where the line begins. A shard
// that is back before the others is told then, since nobody asks it again when they are back.
func TestAShardThatComesBackBeforeOthersIsToldWhereTheLineBegins(t *testing.T) {
	now := time.Unix(0, 0)
	x, err := conductor.New(conductor.Config{Line: 2, View: 2, Fence: 5, Shards: 3, Slots: 1, Steps: 100}, now)
	if err != nil {
		t.Fatal(err)
	}
	answer := func(i kintsugi.ShardID, standing kintsugi.Standing) {
		x.HandleReplica(now, kintsugi.Taken{Shard: i, Fence: 5, Standing: standing, Applied: 7, Released: 7})
	}
	for i := range kintsugi.ShardID(3) {
		x.ShardConnected(i)
		answer(i, kintsugi.Kept)
	}
	answer(2, kintsugi.Settled)
	x.ShardConnected(0)
	x.ShardConnected(1)
	for _, i := range []kintsugi.ShardID{0, 1} {
		x.Ready()
		answer(i, kintsugi.Kept)
		want := []conductor.ToShard{{Shard: i, Message: kintsugi.Adopt{Line: 2, Fence: 5, Step: 7}}}
		if got := x.Ready().ToShards; !slices.EqualFunc(got, want, func(a, b conductor.ToShard) bool { return a == b }) {
			t.Errorf("shard %d, back with the others away, is told %+v, want %+v", i, got, want)
		}
	}
	answer(0, kintsugi.Settled)
	answer(1, kintsugi.Settled)
	if x.Released() != 7 {
		t.Error("every shard stands on the line, and the run does not go on")
	}
}

// A save of some chunks is reported, and is not part of the save of a version.
func TestASaveForTheRunningCheckpointIsToldAtOnce(t *testing.T) {
	x, err := conductor.New(conductor.Config{Line: 2, Shards: 2, Slots: 1}, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range []string{"", "no space left"} {
		x.HandleReplica(time.Unix(0, 0), kintsugi.Saved{Shard: 1, Step: 4, Running: true, Chunks: 3, Bytes: 12, Manifest: "m", Err: failure})
		ready := x.Ready()
		if len(ready.Publish) > 0 || len(ready.Events) != 1 {
			t.Fatalf("%+v, want an event alone", ready)
		}
		e := ready.Events[0].(kintsugi.CheckpointEvent)
		if !math.IsNaN(e.Distance) {
			t.Errorf("nobody has measured it, and it is %v away", e.Distance)
		}
		e.Distance = 0
		if want := (kintsugi.CheckpointEvent{Line: 2, Step: 4, Running: true, Shard: 1, Chunks: 3, Bytes: 12, Manifest: "m", Err: failure}); e != want {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
}

// If a view ended too early to report which shards came back, the next conductor of the line does,
// and only one of them.
func TestWhatCameBackIsToldOnce(t *testing.T) {
	now := time.Unix(0, 0)
	cfg := conductor.Config{Line: 2, View: 2, Fence: 5, Shards: 2, Slots: 1, Steps: 100}
	want := []kintsugi.PartialEvent{{Line: 2, Step: 7, Shard: 1, Chunks: 2, Oldest: 3, Age: 6}}
	lost := kintsugi.Taken{Shard: 1, Standing: kintsugi.Lost, Saved: []kintsugi.Step{5, 3}}
	settled := func(i kintsugi.ShardID) kintsugi.Taken {
		return kintsugi.Taken{Shard: i, Standing: kintsugi.Settled, Applied: 7, Released: 7}
	}
	for name, first := range map[string][]kintsugi.Taken{
		"none has settled":     {{Standing: kintsugi.Kept, Applied: 7, Released: 7}, lost},
		"one has settled":      {{Standing: kintsugi.Kept, Applied: 7, Released: 7}, lost, settled(0)},
		"the lost has settled": {{Standing: kintsugi.Kept, Applied: 7, Released: 7}, lost, settled(1)},
		"all have settled":     {{Standing: kintsugi.Kept, Applied: 7, Released: 7}, lost, settled(0), settled(1)},
		"it has chosen another copy": {{Standing: kintsugi.Kept, Applied: 7, Released: 7},
			{Shard: 1, Standing: kintsugi.Lost, Saved: []kintsugi.Step{2, 2}}, settled(0),
			{Shard: 1, Standing: kintsugi.Settled, Applied: 7, Released: 7, Saved: []kintsugi.Step{5, 3}}},
	} {
		var told []kintsugi.PartialEvent
		var untold map[kintsugi.ShardID][]kintsugi.Step
		for view, answers := range [][]kintsugi.Taken{first, {settled(0), settled(1)}, {settled(0), settled(1)}} {
			cfg.View, cfg.Fence, cfg.Untold = kintsugi.ViewNumber(view+2), kintsugi.Fence(view+5), untold
			x, err := conductor.New(cfg, now)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				x.ShardConnected(kintsugi.ShardID(i))
			}
			for _, m := range answers {
				m.Fence = cfg.Fence
				x.HandleReplica(now, m)
				for _, e := range x.Ready().Events {
					if p, ok := e.(kintsugi.PartialEvent); ok {
						told = append(told, p)
					}
				}
			}
			untold = x.Untold()
		}
		if !slices.Equal(told, want) {
			t.Errorf("the view is over when %s: told is %+v, want %+v", name, told, want)
		}
	}
}
