package shard_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

func push(slot kintsugi.Slot, version kintsugi.Step) kintsugi.PushID {
	return kintsugi.PushID{Line: 1, Slot: slot, Incarnation: 1, Version: version}
}

// members counts the first lives of slots 0 and 1, on version oldest or newer.
func members(oldest kintsugi.Step) []kintsugi.Countable {
	return []kintsugi.Countable{{Slot: 0, Incarnation: 1, Oldest: oldest}, {Slot: 1, Incarnation: 1, Oldest: oldest}}
}

func commit(fence, decided kintsugi.Fence, step kintsugi.Step, counted ...kintsugi.PushID) kintsugi.Commit {
	c := kintsugi.Commit{Line: 1, Fence: fence, Decided: decided, Step: step, Scale: 1, Countable: members(step)}
	for _, p := range counted {
		c.Counted = append(c.Counted, kintsugi.Weighted{Push: p, Weight: 1})
	}
	return c
}

// taken returns a replica at version 0 that has promised fence 1 and knows its members.
func taken(t *testing.T) *shard.Replica {
	t.Helper()
	r := shard.New(3, 2, 1, 1, 0)
	r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 1})
	r.Handle(kintsugi.Members{Line: 1, Fence: 1, Change: 1, Countable: members(0)})
	r.Ready()
	return r
}

func hold(t *testing.T, r *shard.Replica, pushes ...kintsugi.PushID) {
	t.Helper()
	for _, p := range pushes {
		if v, reason := r.Begin(p); v != shard.Accept {
			t.Fatalf("begin %v: verdict %d, %s", p, v, reason)
		}
		if ok, reason := r.Complete(p); !ok {
			t.Fatalf("complete %v: %s", p, reason)
		}
	}
}

// step takes a replica through a step that counts slot 0.
func step(t *testing.T, r *shard.Replica, n kintsugi.Step) {
	t.Helper()
	hold(t, r, push(0, n-1))
	r.Handle(commit(1, 1, n, push(0, n-1)))
	r.Applied(1, nil, 0, 0, 0)
	r.Handle(kintsugi.Released{Line: 1, Fence: 1, Step: n})
	if ready := r.Ready(); r.Released() != n || ready.Publish == nil || *ready.Publish != n {
		t.Fatalf("step %d is not released: %+v", n, ready)
	}
}

func TestAPushIsRefusedWithItsReason(t *testing.T) {
	other := func(change func(*kintsugi.PushID)) kintsugi.PushID {
		p := push(0, 2)
		change(&p)
		return p
	}
	r := taken(t)
	step(t, r, 1)
	step(t, r, 2)
	for _, c := range []struct {
		name string
		push kintsugi.PushID
		says string // "": accepted
	}{
		{"countable", push(0, 2), ""},
		{"again, half landed", push(0, 2), ""},
		{"another line", other(func(p *kintsugi.PushID) { p.Line = 2 }), "line 2"},
		{"a stranger", push(7, 2), "worker/7 is not a member"},
		{"another life", other(func(p *kintsugi.PushID) { p.Incarnation = 2 }), "the member is incarnation 1"},
		{"late", push(1, 1), "late: computed on version 1, the oldest that still counts is 2"},
		{"of the future", push(1, 3), "only reached 2"},
	} {
		v, reason := r.Begin(c.push)
		if (v == shard.Accept) != (c.says == "") || !strings.Contains(reason, c.says) {
			t.Errorf("%s: verdict %d, %q; want %q", c.name, v, reason, c.says)
		}
	}
}

// A push may be too late for a step that is decided and not yet released. If its worker were told
// to go on with the newest released version, that would be the version it computed on.
func TestALatePushWaitsForTheVersionThatMadeItLate(t *testing.T) {
	r := taken(t)
	hold(t, r, push(0, 0))
	r.Handle(commit(1, 1, 1, push(0, 0)))
	if v, reason := r.Begin(push(1, 0)); v != shard.Refuse || !strings.Contains(reason, "late") {
		t.Fatalf("a push for a step that is decided has verdict %d, %q", v, reason)
	}
	if got := r.Awaited(push(1, 0)); r.Released() != 0 || got != 1 {
		t.Errorf("released is %d; its worker waits for version %d, want 1", r.Released(), got)
	}
	if got := r.Awaited(push(7, 0)); got != 0 {
		t.Errorf("a stranger waits for version %d, want 0", got)
	}
}

func TestARepeatedPushIsHeldOnce(t *testing.T) {
	r := taken(t)
	hold(t, r, push(0, 0))
	if v, _ := r.Begin(push(0, 0)); v != shard.Have {
		t.Errorf("a push that is held has verdict %d, want %d", v, shard.Have)
	}
	r.Drop(push(0, 0)) // a second stream breaks; what is complete stays
	if v, _ := r.Begin(push(0, 0)); v != shard.Have {
		t.Errorf("after a broken repetition it has verdict %d, want %d", v, shard.Have)
	}
	r.Begin(push(1, 0))
	r.Drop(push(1, 0))
	if ready := r.Ready(); !slices.Equal(ready.Free, []kintsugi.PushID{push(1, 0)}) {
		t.Errorf("frees %v, want the push that broke", ready.Free)
	}
}

func TestABrokenWorkerCannotFillTheMemory(t *testing.T) {
	r := taken(t)
	for i := range uint32(shard.MaxHeld) {
		p := push(0, 0)
		p.Sequence = i
		hold(t, r, p)
	}
	p := push(0, 0)
	p.Sequence = shard.MaxHeld
	if v, reason := r.Begin(p); v != shard.Refuse || !strings.Contains(reason, "it must wait") {
		t.Errorf("one push too many has verdict %d, %q", v, reason)
	}
	hold(t, r, push(1, 0)) // the other slots are not affected
}

// With more credit, a worker may have more pushes on the way.
func TestAReplicaHoldsAsMuchAsItIsTold(t *testing.T) {
	for _, most := range []int{1, 3, shard.MaxHeld + 2} {
		r := taken(t)
		r.Hold(most)
		for i := range uint32(most) {
			p := push(0, 0)
			p.Sequence = i
			hold(t, r, p)
		}
		p := push(0, 0)
		p.Sequence = uint32(most)
		if v, reason := r.Begin(p); v != shard.Refuse {
			t.Errorf("of %d pushes, one more has verdict %d, %q", most, v, reason)
		}
	}
}

// Members that come late on a broken stream do not replace those of a later change, even if the
// conductor has asked again under its fence meanwhile. A conductor that comes later counts its
// changes from the beginning.
func TestMembersOfAnEarlierChangeAreNotBelieved(t *testing.T) {
	r := taken(t)
	take := func(fence kintsugi.Fence) kintsugi.ControlMessage {
		return kintsugi.Take{Line: 1, View: 1, Fence: fence}
	}
	change := func(fence kintsugi.Fence, n uint64) kintsugi.ControlMessage {
		return kintsugi.Members{Line: 1, Fence: fence, Change: n, Countable: members(0)}
	}
	for i, c := range []struct {
		message  kintsugi.ControlMessage
		believed bool
	}{
		{change(1, 3), true}, {change(1, 3), true}, {change(1, 2), false},
		{take(1), true}, {change(1, 2), false}, {change(1, 4), true},
		{take(2), true}, {change(1, 5), false}, {change(2, 1), true},
	} {
		if got := r.Handle(c.message); got != c.believed {
			t.Errorf("message %d, %+v: believed %v", i, c.message, got)
		}
	}
}

func TestAPushThatIsVoidedWhileItLandsIsRefusedInTheEnd(t *testing.T) {
	r := taken(t)
	r.Begin(push(1, 0))
	next := []kintsugi.Countable{{Slot: 0, Incarnation: 1}, {Slot: 1, Incarnation: 2}}
	r.Handle(kintsugi.Members{Line: 1, Fence: 1, Change: 2, Countable: next})
	if ready := r.Ready(); !slices.Equal(ready.Free, []kintsugi.PushID{push(1, 0)}) {
		t.Errorf("frees %v, want what the dead worker has sent", ready.Free)
	}
	if ok, reason := r.Complete(push(1, 0)); ok || !strings.Contains(reason, "incarnation 2") {
		t.Errorf("its last frame gets %v, %q", ok, reason)
	}
}

func TestACommitWaitsForThePushesThatItCounts(t *testing.T) {
	r := taken(t)
	hold(t, r, push(0, 0))
	r.Begin(push(1, 0))
	r.Handle(commit(1, 1, 1, push(0, 0), push(1, 0)))
	if r.Ready().Apply != nil {
		t.Fatal("it is applied before a push that it counts has landed")
	}
	if ok, reason := r.Complete(push(1, 0)); !ok {
		t.Fatalf("the push is refused: %s", reason)
	}
	if c := r.Ready().Apply; c == nil || c.Step != 1 {
		t.Fatalf("it is not applied when everything is here: %+v", c)
	}
}

func TestAShardWithoutChunksWaitsForNoPush(t *testing.T) {
	r := shard.New(0, 0, 1, 1, 0)
	r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 1})
	r.Handle(commit(1, 1, 1, push(0, 0)))
	if r.Ready().Apply == nil {
		t.Error("the commit is not applied")
	}
}

func TestASupersededConductorChangesNothing(t *testing.T) {
	r := taken(t)
	hold(t, r, push(0, 0))
	r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 2})
	r.Ready()
	for _, m := range []kintsugi.ControlMessage{
		kintsugi.Take{Line: 1, View: 1, Fence: 1},
		kintsugi.Members{Line: 1, Fence: 1, Change: 9},
		commit(1, 1, 1, push(0, 0)),
		kintsugi.Released{Line: 1, Fence: 1, Step: 0, Save: true},
		kintsugi.Members{Line: 1, Fence: 3, Change: 1}, // nor does one that has not taken the shard yet
		kintsugi.Take{Line: 2, View: 1, Fence: 9},
		kintsugi.Take{Line: 1, View: 2, Fence: 9},
	} {
		if r.Handle(m) {
			t.Errorf("%T%+v counts", m, m)
		}
		if ready := r.Ready(); !reflect.DeepEqual(ready, shard.Ready{}) {
			t.Errorf("%T%+v leads to %+v", m, m, ready)
		}
	}
	if !r.Handle(commit(2, 2, 1, push(0, 0))) || r.Ready().Apply == nil {
		t.Error("the present conductor is not obeyed")
	}
}

func TestARepeatedCommitIsAppliedOnceAndAnsweredUnderTheLastFence(t *testing.T) {
	r := taken(t)
	hold(t, r, push(0, 0))
	r.Handle(commit(1, 1, 1, push(0, 0)))
	r.Handle(commit(1, 1, 1, push(0, 0)))
	r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 2})
	r.Ready()
	products := []kintsugi.Products{{SquaredNorm: 1}, {SquaredNorm: 2}}
	r.Applied(1, products, 5, 6, 7)
	want := kintsugi.Stable{Shard: 3, Fence: 1, Step: 1, Decided: 1, Products: products, Apply: 5, Pushed: 6, Pulled: 7}
	switch got := r.Ready().Replies; {
	case len(got) != 2 || !reflect.DeepEqual(got[0], want):
		t.Errorf("answers %+v, want %+v and to whoever has taken it meanwhile", got, want)
	default:
		if taken, ok := got[1].(kintsugi.Taken); !ok || taken.Fence != 2 || taken.Applied != 1 {
			t.Errorf("who has taken it while it was applying is told %+v", got[1])
		}
	}
	r.Handle(commit(2, 1, 1, push(0, 0)))
	want.Fence = 2
	if ready := r.Ready(); ready.Apply != nil || !reflect.DeepEqual(ready.Replies, []kintsugi.ReplicaMessage{want}) {
		t.Errorf("the repetition leads to %+v, want the kept answer %+v", ready, want)
	}
}

// A decision of a superseded conductor is not begun any more: the present conductor may decide the
// step anew, and lets workers begin again on the version before.
func TestACommitOfASupersededConductorIsNotBegun(t *testing.T) {
	r := taken(t)
	r.Begin(push(0, 0))
	r.Handle(commit(1, 1, 1, push(0, 0)))
	r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 2})
	if answer := r.Ready().Replies[0].(kintsugi.Taken); len(answer.Records) != 1 {
		t.Errorf("the present conductor is told of %+v, want the open commit", answer.Records)
	}
	r.Complete(push(0, 0))
	if ready := r.Ready(); ready.Apply != nil {
		t.Error("what the bytes were missing for is begun, although the present conductor has not said so")
	}
	r.Handle(commit(2, 1, 1, push(0, 0)))
	if ready := r.Ready(); ready.Apply == nil || ready.Apply.Decided != 1 || ready.Apply.Fence != 2 {
		t.Errorf("the present conductor takes the step over, and what begins is %+v", ready.Apply)
	}
}

// A stream that broke may be read when its successor has long been in use. The members that it
// names are not the present ones.
func TestMembersThatAreReadLateChangeNothing(t *testing.T) {
	r := taken(t)
	known := func(change uint64, list []kintsugi.Countable) bool {
		return r.Handle(kintsugi.Members{Line: 1, Fence: 1, Change: change, Countable: list})
	}
	if !known(5, members(0)) {
		t.Fatal("a later change is not obeyed")
	}
	hold(t, r, push(0, 0))
	hold(t, r, push(1, 0))
	r.Ready()
	if known(4, members(0)[:1]) {
		t.Error("an earlier change is obeyed")
	}
	if ready := r.Ready(); len(ready.Free) > 0 {
		t.Errorf("who joined since loses %v", ready.Free)
	}
	r.Handle(commit(1, 1, 1, push(0, 0), push(1, 0)))
	if r.Ready().Apply == nil {
		t.Error("a step that counts both waits for a push that was here")
	}
	r.Applied(1, nil, 0, 0, 0)
	r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 2})
	if !r.Handle(kintsugi.Members{Line: 1, Fence: 2, Change: 1, Countable: members(0)}) {
		t.Error("a conductor counts its changes from 1, and its first is not obeyed")
	}
}

// A replica that has caught up is waited for. What it said on an earlier stream, which is read
// late, must not make the head go on without it. If its message that it has caught up was lost with
// a stream, it says again that it lacks something, and that counts.
func TestAReplicaIsWhatItHasSaidLast(t *testing.T) {
	head := shard.New(3, 2, 1, 1, 0)
	head.Place(false, true)
	lacks := kintsugi.Follow{Line: 1, View: 1, Shard: 3, Server: 1, Attempt: 5}
	follow := func(f kintsugi.Follow) error {
		t.Helper()
		_, err := head.Followed(f)
		return err
	}
	if err := follow(lacks); err != nil {
		t.Fatalf("one that comes in: %v", err)
	}
	head.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 1})
	head.Heard(kintsugi.Taken{Shard: 3, Fence: 1})
	if down := head.Ready().Down; !slices.ContainsFunc(down, func(m kintsugi.ChainMessage) bool { _, ok := m.(kintsugi.Joined); return ok }) {
		t.Fatalf("it has what the head has, and is told %+v", down)
	}
	if err := follow(lacks); !errors.Is(err, kintsugi.ErrStaleView) {
		t.Errorf("what it had said before it caught up is believed again: %v", err)
	}
	head.Handle(kintsugi.Members{Line: 1, Fence: 1, Change: 1, Countable: members(0)})
	hold(t, head, push(0, 0))
	head.Handle(commit(1, 1, 1, push(0, 0)))
	head.Ready()
	head.Applied(1, nil, 0, 0, 0)
	if replies := head.Ready().Replies; len(replies) != 1 || !replies[0].(kintsugi.Stable).Waits {
		t.Errorf("the head says %+v without the one after it", replies)
	}
	lacks.Attempt++
	if err := follow(lacks); err != nil {
		t.Errorf("it connects again, and is refused: %v", err)
	}
	if replies := head.Ready().Replies; len(replies) != 1 {
		t.Errorf("the head says %+v, although nobody has been told that the one after it has caught up", replies)
	}
}

// A replica that is catching up is not waited for. It may be told of a step's release while it
// applies the step, and takes the release afterwards.
func TestWhoIsToldThatAStepIsReleasedAppliesItFirst(t *testing.T) {
	r := shard.New(3, 2, 1, 1, 0)
	r.Lack()
	r.Place(true, false)
	obey := func(m kintsugi.ChainMessage) {
		t.Helper()
		if r.Waits() || !r.Obey(m) {
			t.Errorf("it does not obey %+v, waits: %v", m, r.Waits())
		}
	}
	obey(kintsugi.Snapshot{Step: 4})
	obey(kintsugi.Take{Line: 1, View: 1, Fence: 1})
	obey(kintsugi.Update{Commit: commit(1, 1, 5)})
	if !r.Waits() {
		t.Error("it would be told that a step is released that it has not applied")
	}
	r.Applied(1, nil, 0, 0, 0)
	obey(kintsugi.Released{Line: 1, Fence: 1, Step: 5})
	if r.Released() != 5 {
		t.Errorf("it has released step %d", r.Released())
	}
}

// A decision under a higher fence replaces a step that is not released. The step is applied again,
// from the released version, whether the first decision was applied, is being applied, or waits for
// a push.
func TestAHigherDecisionReplacesAnUnreleasedStep(t *testing.T) {
	for _, state := range []string{"waiting", "applying", "applied"} {
		r := taken(t)
		hold(t, r, push(1, 0))
		if state == "waiting" {
			r.Begin(push(0, 0))
		} else {
			hold(t, r, push(0, 0))
		}
		r.Handle(commit(1, 1, 1, push(0, 0), push(1, 0)))
		if state == "applied" {
			r.Applied(1, nil, 0, 0, 0)
		}
		r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 2})
		if state == "applying" { // the answer says whether the first decision is applied, so it has to wait
			if replies := r.Ready().Replies; len(replies) > 0 {
				t.Fatalf("%s: Take is answered by %+v", state, replies)
			}
			r.Applied(1, nil, 0, 0, 0)
		}
		r.Ready()
		r.Handle(commit(2, 2, 1, push(1, 0)))
		ready := r.Ready()
		if ready.Apply == nil || ready.Apply.Decided != 2 || len(ready.Replies) > 0 {
			t.Fatalf("%s: the second decision leads to %+v", state, ready)
		}
		r.Applied(2, nil, 0, 0, 0)
		r.Handle(kintsugi.Released{Line: 1, Fence: 2, Step: 1})
		if ready := r.Ready(); ready.Publish == nil || !slices.Contains(ready.Free, push(1, 0)) {
			t.Errorf("%s: its release leads to %+v", state, ready)
		}
		r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 3})
		answer := r.Ready().Replies[0].(kintsugi.Taken)
		if n := len(answer.Records); n != 1 || answer.Records[0].Decided != 2 || answer.Released != 1 || answer.Applied != 1 {
			t.Errorf("%s: it is taken with %+v, want the second decision alone", state, answer)
		}
	}
}

func TestAStepOutOfTurnIsNotApplied(t *testing.T) {
	r := taken(t)
	step(t, r, 1)
	hold(t, r, push(0, 1))
	for _, n := range []kintsugi.Step{1, 3} {
		r.Handle(commit(1, 1, n, push(0, 1)))
		r.Handle(kintsugi.Released{Line: 1, Fence: 1, Step: n})
		if ready := r.Ready(); ready.Apply != nil || ready.Publish != nil || r.Released() != 1 {
			t.Errorf("step %d after step 1 leads to %+v", n, ready)
		}
	}
}

func TestTakenTellsTheNewestSteps(t *testing.T) {
	r := taken(t)
	for n := range kintsugi.Step(3) {
		step(t, r, n+1)
	}
	hold(t, r, push(0, 3))
	r.Begin(push(1, 3))
	r.Handle(commit(1, 1, 4, push(0, 3), push(1, 3)))
	r.Ready()
	r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 2})
	got := r.Ready().Replies[0].(kintsugi.Taken)
	var steps []kintsugi.Step
	for _, c := range got.Records {
		steps = append(steps, c.Step)
	}
	if got.Applied != 3 || got.Released != 3 || !slices.Equal(steps, []kintsugi.Step{2, 3, 4}) {
		t.Errorf("applied %d, released %d, records of %v; want 3, 3, [2 3 4]", got.Applied, got.Released, steps)
	}
}

func TestAVersionIsSavedOnceAndItsEndIsToldAsOftenAsAsked(t *testing.T) {
	wish := kintsugi.Released{Line: 1, Fence: 1, Step: 0, Save: true}
	r := taken(t)
	r.Handle(wish)
	if s := r.Ready().Save; s == nil || *s != 0 {
		t.Fatalf("save is %v, want version 0", s)
	}
	r.Handle(wish)
	if ready := r.Ready(); ready.Save != nil || len(ready.Replies) > 0 {
		t.Errorf("asked again it owes %+v, want nothing: it is at it", ready)
	}
	failed := kintsugi.Saved{Shard: 3, Err: "disk full"}
	r.Saved(failed)
	if got := r.Ready().Replies; !reflect.DeepEqual(got, []kintsugi.ReplicaMessage{failed}) {
		t.Errorf("answers %v, want %v", got, failed)
	}
	r.Handle(wish)
	if r.Ready().Save == nil {
		t.Error("a save that failed is not tried again")
	}
	saved := kintsugi.Saved{Shard: 3, Manifest: "shard-3"}
	r.Saved(saved)
	r.Ready()
	step(t, r, 1)
	r.Handle(wish)
	if ready := r.Ready(); ready.Save != nil || !reflect.DeepEqual(ready.Replies, []kintsugi.ReplicaMessage{saved}) {
		t.Errorf("asked later it owes %+v, want the kept answer", ready)
	}
	step(t, r, 2)
	wish.Step = 1
	r.Handle(wish)
	if got := r.Ready().Replies; len(got) != 1 || !strings.Contains(got[0].(kintsugi.Saved).Err, "not here any more") {
		t.Errorf("asked for a version that is gone it says %+v", got)
	}
}

func TestDoneIsPassedOn(t *testing.T) {
	r := taken(t)
	r.Handle(kintsugi.Done{Step: 4, Reason: "all steps are done"})
	if d := r.Ready().Done; d == nil || d.Step != 4 {
		t.Errorf("got %v", d)
	}
}

// If the step that is being applied is decided anew meanwhile, it is applied again. Who has asked
// where the replica stands is told once.
func TestAStepThatIsDecidedAnewWhileItIsAppliedIsAppliedAgain(t *testing.T) {
	r := taken(t)
	hold(t, r, push(0, 0))
	r.Handle(commit(1, 1, 1, push(0, 0)))
	r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 2})
	r.Handle(commit(2, 2, 1, push(1, 0)))
	hold(t, r, push(1, 0))
	r.Ready()
	r.Applied(1, nil, 0, 0, 0)
	ready := r.Ready()
	if ready.Apply == nil || ready.Apply.Decided != 2 || len(ready.Replies) != 1 {
		t.Fatalf("%+v: the step is to be applied as it was decided anew", ready)
	}
	if taken, ok := ready.Replies[0].(kintsugi.Taken); !ok || taken.Applied != 0 || len(taken.Records) != 1 || taken.Records[0].Decided != 2 {
		t.Errorf("who has asked is told %+v", ready.Replies[0])
	}
	r.Applied(2, nil, 0, 0, 0)
	if replies := r.Ready().Replies; len(replies) != 1 || replies[0].(kintsugi.Stable).Decided != 2 {
		t.Errorf("then it says %+v", replies)
	}
}

// The conductor is told which gradients of the open commit are lacking.
func TestWhoTakesAShardHearsWhatItLacks(t *testing.T) {
	r := taken(t)
	hold(t, r, push(0, 0))
	r.Begin(push(1, 0)) // half of it
	r.Handle(commit(1, 1, 1, push(0, 0), push(1, 0)))
	r.Ready()
	r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 2})
	replies := r.Ready().Replies
	if len(replies) != 1 || !slices.Equal(replies[0].(kintsugi.Taken).Lacks, []kintsugi.PushID{push(1, 0)}) {
		t.Errorf("%+v, want that the push of worker/1 is lacking", replies)
	}
}

// A commit of any step but the one after the newest released version is of no account, nor is one on
// a line that has not begun here.
func TestOnlyTheNextStepIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		step  kintsugi.Step
		waits bool // for where the line begins
		want  bool
	}{
		"the newest":       {2, false, false},
		"the next":         {3, false, true},
		"the one after it": {4, false, false},
		"before the line":  {3, true, false},
	} {
		r := shard.New(3, 0, 1, 1, 2)
		if c.waits {
			r.Keep()
		}
		r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 1})
		r.Handle(commit(1, 1, c.step))
		if apply := r.Ready().Apply; (apply != nil) != c.want {
			t.Errorf("%s: applied is %+v", name, apply)
		}
	}
}

// A version may be read when it is applied and the conductor says so. A release of any other step
// is of no account, and nothing is saved for it.
func TestOnlyTheAppliedStepIsReleased(t *testing.T) {
	for name, c := range map[string]struct {
		decided, applied bool
		step             kintsugi.Step
	}{
		"nothing is decided":        {false, false, 1},
		"the step is being made":    {true, false, 1},
		"it is the step after that": {true, true, 2},
	} {
		r := taken(t)
		hold(t, r, push(0, 0))
		if c.decided {
			r.Handle(commit(1, 1, 1, push(0, 0)))
		}
		if c.applied {
			r.Applied(1, nil, 0, 0, 0)
		}
		r.Ready()
		r.Handle(kintsugi.Released{Line: 1, Fence: 1, Step: c.step, Save: true})
		if ready := r.Ready(); r.Released() != 0 || ready.Publish != nil || ready.Save != nil || len(ready.Replies) > 0 {
			t.Errorf("%s: released is %d, and %+v", name, r.Released(), ready)
		}
	}
}

// The gradients of a step stay until it is released, although their worker is gone: the step may
// have to be made again. Those that become late are freed, in order.
func TestGradientsOfAStepStayUntilItsRelease(t *testing.T) {
	r := taken(t)
	hold(t, r, push(0, 0))
	r.Begin(push(1, 0))
	late := push(1, 0)
	late.Sequence = 1
	r.Begin(late)
	c := commit(1, 1, 1, push(0, 0))
	c.Countable = members(0) // what is late by this step is not known yet
	r.Handle(c)
	r.Applied(1, nil, 0, 0, 0)
	r.Ready()
	r.Handle(kintsugi.Members{Line: 1, Fence: 1, Change: 2, Countable: []kintsugi.Countable{{Slot: 1, Incarnation: 1}, {Slot: 0, Incarnation: 1, Oldest: kintsugi.Never}}})
	if ready := r.Ready(); len(ready.Free) > 0 {
		t.Errorf("worker/0 has gone, and freed is %v", ready.Free)
	}
	if v, reason := r.Begin(push(0, 1)); v != shard.Refuse || !strings.Contains(reason, "worker/0 is not a member") {
		t.Errorf("a push of one who has gone has verdict %d, %q", v, reason)
	}
	r.Handle(kintsugi.Released{Line: 1, Fence: 1, Step: 1})
	if ready := r.Ready(); !slices.Equal(ready.Free, []kintsugi.PushID{push(0, 0)}) {
		t.Errorf("its step is released, and freed is %v", ready.Free)
	}
	r.Handle(kintsugi.Members{Line: 1, Fence: 1, Change: 3, Countable: []kintsugi.Countable{{Slot: 1, Incarnation: 1, Oldest: 1}}})
	if ready := r.Ready(); !slices.Equal(ready.Free, []kintsugi.PushID{push(1, 0), late}) {
		t.Errorf("what is late now: freed is %v", ready.Free)
	}
}

// A head says at once that it has applied a step, and that it waits for the replica after it. If the
// step is released before the head has heard of that one, its answer for both is not said any more.
// The replica after never says that it waits.
func TestAHeadSaysThatItWaits(t *testing.T) {
	head, next := shard.New(3, 2, 1, 1, 0), shard.New(3, 2, 1, 1, 0)
	head.Place(false, true)
	next.Place(true, true)
	if _, err := head.Followed(next.Follow(1, 1)); err != nil {
		t.Fatal(err)
	}
	head.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 1})
	next.Obey(kintsugi.Take{Line: 1, View: 1, Fence: 1})
	head.Heard(kintsugi.Taken{Shard: 3, Fence: 1})
	head.Handle(kintsugi.Members{Line: 1, Fence: 1, Change: 1, Countable: members(0)})
	step := func(n kintsugi.Step) {
		t.Helper()
		hold(t, head, push(0, n-1))
		c := commit(1, 1, n, push(0, n-1))
		c.Countable = members(0)
		head.Handle(c)
		next.Obey(kintsugi.Update{Commit: c})
		head.Ready()
		next.Ready()
		head.Applied(1, nil, 3, 0, 0)
		next.Applied(1, nil, 3, 0, 0)
		waits := kintsugi.Stable{Shard: 3, Fence: 1, Step: n, Decided: 1, Apply: 3, Waits: true}
		if got := head.Ready().Replies; len(got) != 1 || !reflect.DeepEqual(got[0], waits) {
			t.Errorf("the head says %+v, want %+v", got, waits)
		}
		if got := next.Ready().Replies; len(got) != 0 {
			t.Errorf("the replica after says %+v, and there is one behind it", got)
		}
	}
	answer := kintsugi.Stable{Shard: 3, Fence: 1, Step: 1, Decided: 1}
	step(1)
	head.Heard(answer)
	if got := head.Ready().Replies; len(got) != 1 || got[0].(kintsugi.Stable).Waits {
		t.Errorf("when it has heard, the head says %+v", got)
	}
	for _, r := range []*shard.Replica{head, next} {
		r.Handle(kintsugi.Released{Line: 1, Fence: 1, Step: 1})
	}
	step(2)
	head.Handle(kintsugi.Released{Line: 1, Fence: 1, Step: 2})
	head.Ready()
	answer.Step = 2
	head.Heard(answer)
	if got := head.Ready().Replies; len(got) != 0 || head.Released() != 2 {
		t.Errorf("of step 2, which is released, the head says %+v", got)
	}
}
