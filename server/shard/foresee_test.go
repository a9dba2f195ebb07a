package shard_test

import (
	"reflect"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

func rate(step kintsugi.Step, members int) kintsugi.Optimizer {
	return kintsugi.Optimizer{LearningRate: float32(step) / float32(members)}
}

// both is the commit of a step that counts both members.
func both(n kintsugi.Step) kintsugi.Commit {
	c := commit(1, 1, n, push(0, n-1), push(1, n-1))
	c.Counted[1].Weight, c.Optimizer = 3, rate(n, 2)
	return c
}

// steady returns a replica that foresees a commit, after two steps that have weighed both members
// equally.
func steady(t *testing.T) *shard.Replica {
	t.Helper()
	r := taken(t)
	r.Foresee(rate)
	for n := kintsugi.Step(1); n <= 2; n++ {
		hold(t, r, push(0, n-1), push(1, n-1))
		if ready := r.Ready(); ready.Foreseen != nil {
			t.Fatalf("after %d steps %+v is foreseen", n-1, ready.Foreseen)
		}
		finish(r, both(n))
	}
	return r
}

// finish takes r through a commit whose pushes it holds.
func finish(r *shard.Replica, c kintsugi.Commit) {
	r.Handle(c)
	r.Applied(c.Decided, nil, 0, 0, 0)
	r.Handle(kintsugi.Released{Line: 1, Fence: 1, Step: c.Step})
	r.Ready()
}

// The commit is foreseen when the last member begins to push, and nothing of the step is visible
// before it comes.
func TestACommitIsForeseenWhenTheLastMemberBegins(t *testing.T) {
	r := steady(t)
	r.Begin(push(1, 2))
	if ready := r.Ready(); ready.Foreseen != nil {
		t.Fatalf("with one of two members %+v is foreseen", ready.Foreseen)
	}
	r.Begin(push(0, 2))
	want := both(3)
	want.Fence, want.Decided, want.Countable = 0, 0, nil
	if ready := r.Ready(); !reflect.DeepEqual(ready, shard.Ready{Foreseen: &want}) {
		t.Fatalf("the replica owes %+v, want that it foresees %+v alone", ready, want)
	}
	r.Complete(push(1, 2))
	r.Complete(push(0, 2))
	if ready := r.Ready(); !reflect.DeepEqual(ready, shard.Ready{}) {
		t.Fatalf("with the bytes of both it owes %+v before the commit", ready)
	}
	c := both(3)
	r.Handle(c)
	if ready := r.Ready(); ready.Overturned || ready.Apply == nil || !reflect.DeepEqual(*ready.Apply, c) {
		t.Errorf("the commit that was foreseen makes it owe %+v", ready)
	}
}

// What a release says about the next commit is part of what is foreseen.
func TestWhatTheNextCommitWantsIsForeseen(t *testing.T) {
	r := steady(t)
	hold(t, r, push(0, 2), push(1, 2))
	r.Handle(both(3))
	r.Applied(1, nil, 0, 0, 0)
	r.Handle(kintsugi.Released{Line: 1, Fence: 1, Step: 3, Want: kintsugi.WantSaved})
	r.Ready()
	hold(t, r, push(0, 3), push(1, 3))
	if c := r.Ready().Foreseen; c == nil || c.Want != kintsugi.WantSaved {
		t.Errorf("foreseen is %+v", c)
	}
}

// If the commit differs in anything from what was foreseen, that is discarded, and the step is
// applied as the commit says.
func TestAnotherCommitOverturnsWhatWasForeseen(t *testing.T) {
	for name, change := range map[string]func(*kintsugi.Commit){
		"a weight":       func(c *kintsugi.Commit) { c.Counted[0].Weight = 2 },
		"the scale":      func(c *kintsugi.Commit) { c.Scale = 0.5 },
		"the rate":       func(c *kintsugi.Commit) { c.Optimizer.LearningRate *= 2 },
		"a wish":         func(c *kintsugi.Commit) { c.Want = kintsugi.WantSaved },
		"who is counted": func(c *kintsugi.Commit) { c.Counted = c.Counted[:1] },
	} {
		r := steady(t)
		hold(t, r, push(0, 2), push(1, 2))
		c := both(3)
		change(&c)
		r.Handle(c)
		if ready := r.Ready(); !ready.Overturned || ready.Apply == nil || !reflect.DeepEqual(*ready.Apply, c) {
			t.Errorf("%s: the replica owes %+v", name, ready)
		}
	}
}

// If bytes will not be counted, or come again, what was foreseen is discarded before any commit.
func TestBytesThatGoOverturnWhatWasForeseen(t *testing.T) {
	for _, c := range []struct {
		name  string
		event func(*shard.Replica)
		again bool // another commit is foreseen at once
	}{
		{"a refused push", func(r *shard.Replica) { r.Drop(push(0, 2)) }, false},
		{"a new life of a member", func(r *shard.Replica) {
			m := members(2)
			m[0].Incarnation = 2
			r.Handle(kintsugi.Members{Line: 1, Fence: 1, Change: 2, Countable: m})
		}, false},
		{"a member that is gone", func(r *shard.Replica) {
			r.Handle(kintsugi.Members{Line: 1, Fence: 1, Change: 2, Countable: members(2)[1:]})
		}, false},
		{"a push that begins again", func(r *shard.Replica) { r.Begin(push(0, 2)) }, true},
	} {
		r := steady(t)
		r.Begin(push(0, 2))
		r.Begin(push(1, 2))
		if r.Ready().Foreseen == nil {
			t.Fatal("nothing is foreseen")
		}
		c.event(r)
		if ready := r.Ready(); !ready.Overturned || (ready.Foreseen != nil) != c.again || ready.Apply != nil {
			t.Errorf("%s: the replica owes %+v", c.name, ready)
		}
	}
}

// Nothing is foreseen if it would be a guess.
func TestWhatIsNotSteadyIsNotForeseen(t *testing.T) {
	for name, prepare := range map[string]func() *shard.Replica{
		"weights that change": func() *shard.Replica {
			r := steady(t)
			hold(t, r, push(0, 2), push(1, 2))
			c := both(3)
			c.Counted[0].Weight = 5
			finish(r, c)
			hold(t, r, push(0, 3), push(1, 3))
			return r
		},
		"two pushes of one member": func() *shard.Replica {
			r := steady(t)
			second := push(0, 2)
			second.Sequence = 1
			hold(t, r, push(0, 2), second, push(1, 2))
			return r
		},
		"a member that was not counted": func() *shard.Replica {
			r := steady(t)
			r.Handle(kintsugi.Members{Line: 1, Fence: 1, Change: 2, Countable: append(members(2), kintsugi.Countable{Slot: 2, Incarnation: 1})})
			hold(t, r, push(0, 2), push(1, 2), push(2, 2))
			return r
		},
		"a replica that nobody asked to": func() *shard.Replica {
			r := steady(t)
			r.Foresee(nil)
			hold(t, r, push(0, 2), push(1, 2))
			return r
		},
	} {
		if c := prepare().Ready().Foreseen; c != nil {
			t.Errorf("%s: %+v is foreseen", name, c)
		}
	}
}
