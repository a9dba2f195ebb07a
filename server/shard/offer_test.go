package shard_test

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// A version may be sent before it is released only if the present conductor has decided its step.
// Another decision may take the place of what an earlier one has decided, also after the present one
// has sent that again.
func TestOnlyWhatThePresentConductorHasDecidedIsOffered(t *testing.T) {
	take := func(r *shard.Replica, fence kintsugi.Fence) bool {
		r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: fence})
		return r.Ready().Withdraw
	}
	applied := func(r *shard.Replica, decided kintsugi.Fence) bool {
		r.Applied(decided, nil, 0, 0, 0)
		return r.Ready().Offer
	}
	begun := func() *shard.Replica {
		r := taken(t)
		hold(t, r, push(0, 0), push(1, 0))
		r.Handle(commit(1, 1, 1, push(0, 0)))
		return r
	}

	r := begun()
	if !applied(r, 1) {
		t.Error("what the present conductor has decided is not offered")
	}
	if take(r, 1) {
		t.Error("a conductor that connects again ends its own offer")
	}
	if !take(r, 2) {
		t.Error("an offer outlives the conductor that has decided it")
	}
	r.Handle(commit(2, 1, 1, push(0, 0)))
	if ready := r.Ready(); ready.Offer || len(ready.Replies) != 1 {
		t.Errorf("a decision of an earlier conductor is sent again: %+v", ready)
	}
	r.Handle(commit(2, 2, 1, push(1, 0))) // some other shard could not apply it
	if !applied(r, 2) {
		t.Error("what the new conductor has decided in its place is not offered")
	}

	r = begun()
	if !take(r, 2) || applied(r, 1) {
		t.Error("a step is offered that was applied when its conductor was replaced")
	}

	r = begun()
	take(r, 2)
	r.Handle(commit(2, 1, 1, push(0, 0)))
	if applied(r, 1) {
		t.Error("a step is offered that an earlier conductor has decided, since the present one has sent it")
	}
}
