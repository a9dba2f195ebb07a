package shard_test

import (
	"reflect"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// begun returns a replica that goes on with r on line 2, taken by the conductor there, and its
// answer.
func begun(t *testing.T, r *shard.Replica) (*shard.Replica, kintsugi.Taken) {
	t.Helper()
	next := r.Continue(2, 2)
	return next, answer(t, next)
}

func answer(t *testing.T, r *shard.Replica) kintsugi.Taken {
	t.Helper()
	r.Handle(kintsugi.Take{Line: 2, View: 2, Fence: 5})
	replies := r.Ready().Replies
	if len(replies) != 1 {
		t.Fatalf("%d answers to take", len(replies))
	}
	return replies[0].(kintsugi.Taken)
}

func TestAShardThatOutlivesItsLineBeginsTheNextWhereItIsTold(t *testing.T) {
	for _, c := range []struct {
		name string
		at   kintsugi.Step // the step at which it is adopted
	}{{"the released version", 1}, {"the one that was applied and not released", 2}} {
		t.Run(c.name, func(t *testing.T) {
			r := taken(t)
			step(t, r, 1)
			hold(t, r, push(0, 1))
			r.Handle(commit(1, 1, 2, push(0, 1)))
			r.Applied(1, nil, 0, 0, 0)
			r, told := begun(t, r)
			if len(told.Records) != 2 || told.Records[1].Step != 2 || told.Records[1].Decided != 1 {
				t.Fatalf("it does not say how its versions came about: %+v", told.Records)
			}
			told.Records = nil
			if want := (kintsugi.Taken{Shard: 3, Fence: 5, Applied: 2, Released: 1, Standing: kintsugi.Kept}); !reflect.DeepEqual(told, want) {
				t.Fatalf("it answers %+v, want %+v", told, want)
			}
			r.Handle(kintsugi.Commit{Line: 2, Fence: 5, Decided: 5, Step: 2})
			r.Handle(kintsugi.Released{Line: 2, Fence: 5, Step: 2, Save: true})
			if ready := r.Ready(); ready.Apply != nil || ready.Publish != nil || ready.Save != nil {
				t.Errorf("it does steps of a line that it has not begun: %+v", ready)
			}
			for range 2 { // the answer may be lost
				r.Handle(kintsugi.Adopt{Line: 2, Fence: 5, Step: c.at})
				ready := r.Ready()
				want := kintsugi.Taken{Shard: 3, Fence: 5, Applied: c.at, Released: c.at}
				if len(ready.Replies) != 1 || !reflect.DeepEqual(ready.Replies[0], kintsugi.ReplicaMessage(want)) {
					t.Errorf("it answers %+v, want %+v", ready.Replies, want)
				}
			}
			if r.Released() != c.at {
				t.Errorf("version %d may be read, want %d", r.Released(), c.at)
			}
		})
	}
}

func TestAShardIsToldWhereItsLineBeginsOnceAndByItsConductor(t *testing.T) {
	r, _ := begun(t, taken(t))
	if r.Handle(kintsugi.Adopt{Line: 2, Fence: 4}) || r.Handle(kintsugi.Adopt{Line: 1, Fence: 5}) {
		t.Error("it obeys an earlier conductor, or one of another line")
	}
	r.Handle(kintsugi.Adopt{Line: 2, Fence: 5, Step: 7})
	if ready := r.Ready(); ready.Adopt != nil || len(ready.Replies) > 0 {
		t.Errorf("it stands at version 0 and begins at 7: %+v", ready)
	}
	r.Handle(kintsugi.Adopt{Line: 2, Fence: 5})
	r.Handle(kintsugi.Adopt{Line: 2, Fence: 5})
	if ready := r.Ready(); ready.Adopt == nil || *ready.Adopt != 0 {
		t.Errorf("%+v", ready)
	}
	r.Handle(kintsugi.Adopt{Line: 2, Fence: 5})
	if ready := r.Ready(); ready.Adopt != nil {
		t.Error("it begins the line twice")
	}
}

func TestALostShardSaysOfWhatVersionsItIsAndBeginsAnywhere(t *testing.T) {
	saved := []kintsugi.Step{4, 6}
	r := shard.New(3, 2, 2, 2, 0)
	r.Lose(saved)
	want := kintsugi.Taken{Shard: 3, Fence: 5, Standing: kintsugi.Lost, Saved: saved}
	if told := answer(t, r); !reflect.DeepEqual(told, want) {
		t.Fatalf("it answers %+v, want %+v", told, want)
	}
	// It waits, and the line is given up for the next one, where the shard is lost as well.
	again := r.Continue(3, 3)
	again.Handle(kintsugi.Take{Line: 3, View: 3, Fence: 6})
	if told := again.Ready().Replies[0].(kintsugi.Taken); told.Standing != kintsugi.Lost || !reflect.DeepEqual(told.Saved, saved) {
		t.Errorf("on the next line it answers %+v", told)
	}
	again.Handle(kintsugi.Adopt{Line: 3, Fence: 6, Step: 9})
	if ready := again.Ready(); ready.Adopt == nil || *ready.Adopt != 9 || again.Released() != 9 {
		t.Errorf("%+v, released %d", ready, again.Released())
	}
}

// Pushes of the line before name versions with other parameters.
func TestPushesStayBehindOnTheirLine(t *testing.T) {
	r := taken(t)
	hold(t, r, push(0, 0))
	r, _ = begun(t, r)
	r.Handle(kintsugi.Adopt{Line: 2, Fence: 5})
	r.Handle(kintsugi.Members{Line: 2, Fence: 5, Countable: members(0)})
	if v, reason := r.Begin(push(0, 0)); v != shard.Refuse {
		t.Errorf("a push of line 1: verdict %d, %s", v, reason)
	}
	own := push(0, 0)
	own.Line = 2
	if v, reason := r.Begin(own); v != shard.Accept {
		t.Errorf("the same of line 2: verdict %d, %s", v, reason)
	}
}

// planned releases a step with the wish to save chunks, and returns what is to be done then.
func planned(t *testing.T, r *shard.Replica, n kintsugi.Step, save bool, chunks ...kintsugi.ChunkID) shard.Ready {
	t.Helper()
	hold(t, r, push(0, n-1))
	r.Handle(commit(1, 1, n, push(0, n-1)))
	r.Applied(1, nil, 0, 0, 0)
	r.Ready()
	r.Handle(kintsugi.Released{Line: 1, Fence: 1, Step: n, Save: save, Run: chunks})
	return r.Ready()
}

func TestChunksAreSavedAsTheConductorHasPlanned(t *testing.T) {
	r := taken(t)
	r.Holds([]kintsugi.Step{0, 0, 0})
	if ready := planned(t, r, 1, false); ready.Run != nil {
		t.Errorf("nothing is planned: %+v", ready.Run)
	}
	ready := planned(t, r, 2, false, 0, 2)
	if want := (&shard.Run{Step: 2, Chunks: []kintsugi.ChunkID{0, 2}}); !reflect.DeepEqual(ready.Run, want) {
		t.Fatalf("%+v, want %+v", ready.Run, want)
	}
	r.Handle(kintsugi.Released{Line: 1, Fence: 1, Step: 2, Run: []kintsugi.ChunkID{0, 2}})
	if ready := r.Ready(); ready.Run != nil {
		t.Errorf("a repetition is saved again: %+v", ready.Run)
	}
	ready = planned(t, r, 3, false, 1) // of a conductor that has taken over while the earlier save is under way
	if len(ready.Replies) != 1 || ready.Replies[0].(kintsugi.Saved).Err == "" || ready.Run != nil {
		t.Errorf("two saves meet: %+v", ready)
	}
	done := kintsugi.Saved{Shard: 3, Step: 2, Running: true, Chunks: 2}
	r.Ran(done)
	if told := r.Ready().Replies; len(told) != 1 || told[0] != kintsugi.ReplicaMessage(done) {
		t.Errorf("it tells %+v", told)
	}
	if ready := planned(t, r, 4, false, 1); ready.Run == nil {
		t.Error("the save has ended, and the next is not made")
	}
	r.Ran(kintsugi.Saved{Shard: 3, Step: 4, Running: true, Chunks: 1, Err: "no space left"})
	r.Ready()
	if _, told := begun(t, r); !reflect.DeepEqual(told.Saved, []kintsugi.Step{2, 0, 2}) {
		t.Errorf("versions %v are saved; want 2 of the first and the last chunk, and what it began with", told.Saved)
	}
}

func TestChunksAreNotSavedBesideAFullSave(t *testing.T) {
	r := taken(t)
	r.Holds([]kintsugi.Step{0, 0, 0})
	if ready := planned(t, r, 1, true); ready.Save == nil || ready.Run != nil {
		t.Errorf("at step 1: %+v", ready)
	}
	if ready := planned(t, r, 2, false, 1); ready.Run != nil || len(ready.Replies) != 1 || ready.Replies[0].(kintsugi.Saved).Err == "" {
		t.Errorf("at step 2, while version 1 is being saved: %+v", ready)
	}
	r.Saved(kintsugi.Saved{Shard: 3, Step: 1})
	if ready := planned(t, r, 3, false, 1); ready.Run == nil || ready.Run.Step != 3 {
		t.Errorf("at step 3: %+v", ready)
	}
	if _, told := begun(t, r); !reflect.DeepEqual(told.Saved, []kintsugi.Step{1, 1, 1}) {
		t.Errorf("versions %v are saved, want all of 1", told.Saved)
	}
}
