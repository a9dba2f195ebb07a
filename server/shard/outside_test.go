package shard_test

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// A replica goes on in a later view of its line at the step where it stands. It answers for the
// step that it has applied, holds no push any more, and takes another decision of that step in its
// place. The bytes of a view are counted from its beginning: a conductor takes the difference
// between two answers, and must not be told of the previous view's bytes with the first.
func TestAReplicaGoesOnInALaterView(t *testing.T) {
	r := taken(t)
	step(t, r, 1)
	hold(t, r, push(0, 1))
	r.Handle(commit(1, 1, 2, push(0, 1)))
	r.Applied(1, []kintsugi.Products{{SquaredNorm: 3}}, 0, 700, 900)
	goesOn(t, r.GoOn(2, false, false))
}

// A replica in a new process stands there as well.
func TestAReplicaIsRecalledWhereAnEarlierLifeHasLeftIt(t *testing.T) {
	r := shard.New(3, 2, 1, 2, 1)
	answer := kintsugi.Stable{Shard: 3, Fence: 1, Step: 2, Products: []kintsugi.Products{{SquaredNorm: 3}}, Pushed: 700, Pulled: 900}
	r.Recall([]kintsugi.Commit{commit(1, 1, 1, push(0, 0)), commit(1, 1, 2, push(0, 1))}, answer)
	goesOn(t, r)
	base := shard.New(3, 2, 1, 2, 0) // it has only what the line began with
	base.Recall(nil, kintsugi.Stable{})
	if base.Handle(kintsugi.Take{Line: 1, View: 2, Fence: 5}); base.Ready().Replies[0].(kintsugi.Taken).Applied != 0 {
		t.Error("a new line has taken steps")
	}
}

// goesOn checks a replica in view 2 that has released step 1 and applied step 2, which counts slot
// 0.
func goesOn(t *testing.T, r *shard.Replica) {
	t.Helper()
	if r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 4}) {
		t.Error("a conductor of the view before is obeyed")
	}
	r.Handle(kintsugi.Take{Line: 1, View: 2, Fence: 5})
	state := r.Ready().Replies[0].(kintsugi.Taken)
	if state.Applied != 2 || state.Released != 1 || len(state.Records) != 2 || state.Records[1].Step != 2 {
		t.Fatalf("it stands at %+v", state)
	}
	r.Handle(commit(5, 1, 2, push(0, 1)))
	if s, ok := r.Ready().Replies[0].(kintsugi.Stable); !ok || s.Fence != 5 || s.Step != 2 || s.Products[0].SquaredNorm != 3 {
		t.Fatalf("the step is answered with %+v", s)
	} else if s.Pushed != 0 || s.Pulled != 0 {
		t.Errorf("the step is answered with %d and %d bytes of the view before", s.Pushed, s.Pulled)
	}
	r.Handle(kintsugi.Members{Line: 1, Fence: 5, Change: 1, Countable: members(1)})
	r.Handle(commit(5, 5, 2, push(1, 1)))
	if ready := r.Ready(); ready.Apply != nil {
		t.Fatal("a step is applied without its gradients")
	}
	hold(t, r, push(1, 1))
	if c := r.Ready().Apply; c == nil || c.Decided != 5 {
		t.Fatalf("another decision of the step: %+v", c)
	}
	r.Applied(5, nil, 0, 0, 0)
	r.Handle(kintsugi.Released{Line: 1, Fence: 5, Step: 2})
	if ready := r.Ready(); ready.Publish == nil || *ready.Publish != 2 || r.Released() != 2 {
		t.Errorf("it is not released: %+v", ready)
	}
}
