package shard_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// headAt returns the head of a chain of two that has applied so many steps, all of which but the
// newest may still be unreleased. The shard has no chunks, so no pushes are needed.
func headAt(released, applied kintsugi.Step) *shard.Replica {
	head := shard.New(0, 0, 1, 1, 0)
	head.Place(false, true)
	head.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 3})
	for s := kintsugi.Step(1); s <= applied; s++ {
		head.Handle(kintsugi.Commit{Line: 1, Fence: 3, Decided: 3, Step: s})
		head.Applied(3, nil, 0, 0, 0)
		if s <= released {
			head.Handle(kintsugi.Released{Line: 1, Fence: 3, Step: s})
		}
	}
	head.Ready()
	return head
}

// What a replica is sent when it connects is what it lacks: nothing, the release of the step that it
// has, the sum of the step that it lacks, or everything. If it is near, it is waited for.
func TestAReplicaIsSentWhatItLacks(t *testing.T) {
	for _, c := range []struct {
		name              string
		released, applied kintsugi.Step // of the head, which has decided everything under fence 3
		f                 kintsugi.Follow
		sent              string
		waited            bool
	}{
		{"it has everything", 5, 5, kintsugi.Follow{Whole: true, Released: 5, Applied: 5, Decided: 3}, "take", true},
		{"it does not know of the release", 5, 5, kintsugi.Follow{Whole: true, Released: 4, Applied: 5, Decided: 3}, "take, released 5", true},
		{"it has another decision of the step", 5, 5, kintsugi.Follow{Whole: true, Released: 4, Applied: 5, Decided: 2}, "snapshot 5, take", false},
		{"it lacks the step", 5, 5, kintsugi.Follow{Whole: true, Released: 4, Applied: 4, Decided: 3}, "snapshot 5, take", false},
		{"it lacks the release of two steps", 5, 5, kintsugi.Follow{Whole: true, Released: 3, Applied: 4, Decided: 3}, "snapshot 5, take", false},
		{"it has a later step that was not released", 5, 5, kintsugi.Follow{Whole: true, Released: 5, Applied: 6, Decided: 2}, "take", true},
		{"it has nothing", 5, 5, kintsugi.Follow{}, "snapshot 5, take", false},
		{"it is not whole, whatever it has", 5, 5, kintsugi.Follow{Released: 5, Applied: 5, Decided: 3}, "snapshot 5, take", false},
		{"it has the open step", 5, 6, kintsugi.Follow{Whole: true, Released: 5, Applied: 6, Decided: 3}, "take, commit 6", true},
		{"it has another decision of the open step", 5, 6, kintsugi.Follow{Whole: true, Released: 5, Applied: 6, Decided: 2}, "take, update 6", true},
		{"it lacks the open step", 5, 6, kintsugi.Follow{Whole: true, Released: 5, Applied: 5, Decided: 3}, "take, update 6", true},
		{"it lacks the open step and a release", 5, 6, kintsugi.Follow{Whole: true, Released: 4, Applied: 5, Decided: 3}, "take, released 5, update 6", true},
		{"it has nothing while a step is open", 5, 6, kintsugi.Follow{}, "snapshot 5, take, update 6", false},
		{"it is not whole, and has the open step", 5, 6, kintsugi.Follow{Released: 5, Applied: 6, Decided: 3}, "snapshot 5, take, update 6", false},
	} {
		head := headAt(c.released, c.applied)
		c.f.Line, c.f.View, c.f.Server, c.f.Attempt = 1, 1, 1, 1
		plan, err := head.Followed(c.f)
		if err != nil {
			t.Fatal(err)
		}
		if got := inWords(plan); got != c.sent {
			t.Errorf("%s: it is sent %s; want %s", c.name, got, c.sent)
		}
		for _, m := range plan {
			if m, ok := m.(kintsugi.Snapshot); ok && (len(m.Records) != 1 || m.Records[0].Step != m.Step) {
				t.Errorf("%s: a snapshot of version %d with the records %+v", c.name, m.Step, m.Records)
			}
		}
		head.Ready()
		head.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 4})
		if waited := len(head.Ready().Replies) == 0; waited != c.waited {
			t.Errorf("%s: it is waited for: %v, want %v", c.name, waited, c.waited)
		}
	}
}

// A head that nobody has taken yet passes no fence on.
func TestAReplicaOfAnUntakenHeadIsSentNoFence(t *testing.T) {
	head := shard.New(0, 0, 1, 1, 0)
	head.Place(false, true)
	if plan, err := head.Followed(kintsugi.Follow{Line: 1, View: 1, Whole: true, Attempt: 1}); err != nil || len(plan) > 0 {
		t.Errorf("it is sent %+v (%v)", plan, err)
	}
}

// Where the next replica answers for those behind it, one of them may lack the newest step alone. It
// is sent that step, and no snapshot.
func TestAReplicaThatIsOneStepBehindIsSentTheStep(t *testing.T) {
	for _, c := range []struct {
		name              string
		next              bool
		released, applied kintsugi.Step
		f                 kintsugi.Follow
		sent              string
	}{
		{"one step", true, 5, 5, kintsugi.Follow{Whole: true, Released: 4, Applied: 4, Decided: 3}, "take, update 5, released 5"},
		{"and the release before", true, 5, 5, kintsugi.Follow{Whole: true, Released: 3, Applied: 4, Decided: 3}, "take, released 4, update 5, released 5"},
		{"nothing", true, 5, 5, kintsugi.Follow{Whole: true, Released: 5, Applied: 5, Decided: 3}, "take"},
		{"two steps", true, 5, 5, kintsugi.Follow{Whole: true, Released: 3, Applied: 3, Decided: 3}, "snapshot 5, take"},
		{"one step, and it has another decision of the one before", true, 5, 5, kintsugi.Follow{Whole: true, Released: 4, Applied: 4, Decided: 2}, "snapshot 5, take"},
		{"one step, and it has the one before from a snapshot", true, 5, 5, kintsugi.Follow{Whole: true, Released: 4, Applied: 4}, "snapshot 5, take"},
		{"one step while another one is open", true, 5, 6, kintsugi.Follow{Whole: true, Released: 4, Applied: 4, Decided: 3}, "snapshot 5, take, update 6"},
		{"one step, and it is not whole", true, 5, 5, kintsugi.Follow{Released: 4, Applied: 4, Decided: 3}, "snapshot 5, take"},
		{"one step, in a chain that waits for all", false, 5, 5, kintsugi.Follow{Whole: true, Released: 4, Applied: 4, Decided: 3}, "snapshot 5, take"},
	} {
		head := headAt(c.released, c.applied)
		if c.next {
			head.NextAnswers(0)
		}
		c.f.Line, c.f.View, c.f.Attempt = 1, 1, 1
		plan, err := head.Followed(c.f)
		if got := inWords(plan); got != c.sent || err != nil {
			t.Errorf("%s: it is sent %s (%v); want %s", c.name, got, err, c.sent)
		}
	}
}

// inWords says in words what a replica is sent.
func inWords(plan []kintsugi.ChainMessage) string {
	var sent []string
	for _, m := range plan {
		switch m := m.(type) {
		case kintsugi.Take:
			sent = append(sent, "take")
		case kintsugi.Snapshot:
			sent = append(sent, fmt.Sprintf("snapshot %d", m.Step))
		case kintsugi.Released:
			sent = append(sent, fmt.Sprintf("released %d", m.Step))
		case kintsugi.Commit:
			sent = append(sent, fmt.Sprintf("commit %d", m.Step))
		case kintsugi.Update:
			sent = append(sent, fmt.Sprintf("update %d", m.Commit.Step))
		}
	}
	return strings.Join(sent, ", ")
}

// A replica of another line or view cannot follow, nor can one whose message comes on a stream that
// was replaced.
func TestWhoCannotFollowIsToldWhy(t *testing.T) {
	for says, f := range map[string]kintsugi.Follow{
		"a replica of view 1 on line 2 follows one of view 1 on line 1": {Line: 2, View: 1, Attempt: 1},
		"a replica of view 2 on line 1 follows one of view 1 on line 1": {Line: 1, View: 2, Attempt: 1},
		"server/0 has connected again since":                            {Line: 1, View: 1},
	} {
		if _, err := headAt(1, 1).Followed(f); !errors.Is(err, kintsugi.ErrStaleView) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", f, err, says)
		}
	}
}

// A replica says whether it can do what the one before it says. If it cannot, it connects again and
// is sent what it lacks.
func TestAReplicaSaysWhatItCannotObey(t *testing.T) {
	commit := func(step kintsugi.Step, by kintsugi.Fence) kintsugi.Commit {
		return kintsugi.Commit{Line: 1, Fence: 3, Decided: by, Step: step}
	}
	for name, c := range map[string]struct {
		open bool // it has not applied step 2 yet
		m    kintsugi.ChainMessage
		want bool
	}{
		"the open step again":             {true, commit(2, 3), true},
		"the step that is applied":        {false, commit(2, 3), true},
		"another decision of it":          {false, commit(2, 4), false},
		"another decision of an open one": {true, commit(2, 4), false},
		"a step without its sum":          {false, commit(3, 3), false},
		"an earlier step":                 {false, commit(1, 3), false},
		"the release of what it has":      {false, kintsugi.Released{Line: 1, Fence: 3, Step: 2}, true},
		"the release before":              {false, kintsugi.Released{Line: 1, Fence: 3, Step: 1}, true},
		"the release of a step it lacks":  {false, kintsugi.Released{Line: 1, Fence: 3, Step: 3}, false},
		"the release of an open step":     {true, kintsugi.Released{Line: 1, Fence: 3, Step: 2}, false},
		"a release under another fence":   {false, kintsugi.Released{Line: 1, Fence: 2, Step: 2}, false},
		"a fence":                         {false, kintsugi.Take{Line: 1, View: 1, Fence: 4}, true},
		"an earlier fence":                {false, kintsugi.Take{Line: 1, View: 1, Fence: 2}, false},
	} {
		r := shard.New(0, 1, 1, 1, 0)
		r.Place(true, false)
		r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 3})
		for s := kintsugi.Step(1); s <= 2; s++ {
			r.Obey(kintsugi.Update{Commit: commit(s, 3)})
			if s == 2 && c.open {
				break
			}
			r.Applied(3, nil, 0, 0, 0)
			if s == 1 {
				r.Obey(kintsugi.Released{Line: 1, Fence: 3, Step: 1})
			}
		}
		if r.Waits() != c.open {
			t.Errorf("%s: the next message waits: %v, want %v", name, r.Waits(), c.open)
		}
		if got := r.Obey(c.m); got != c.want {
			t.Errorf("%s: it can do that: %v, want %v", name, got, c.want)
		}
	}
}

// A step that is applied is told again under a later fence, here and to those behind. A later
// decision about it replaces it.
func TestAnAppliedStepIsToldToThoseBehindAgain(t *testing.T) {
	head := headAt(5, 6)
	if _, err := head.Followed(kintsugi.Follow{Line: 1, View: 1, Whole: true, Released: 5, Applied: 6, Decided: 3, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	head.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 4})
	head.Ready()
	head.Handle(kintsugi.Commit{Line: 1, Fence: 4, Decided: 3, Step: 6})
	ready := head.Ready()
	if got := inWords(ready.Down); got != "commit 6" || ready.Apply != nil {
		t.Errorf("those behind are sent %s, and applied is %+v", got, ready.Apply)
	}
	head.Handle(kintsugi.Commit{Line: 1, Fence: 4, Decided: 4, Step: 6})
	if ready := head.Ready(); ready.Apply == nil || ready.Apply.Decided != 4 {
		t.Errorf("decided anew, applied is %+v", ready.Apply)
	}
}

// If the head and the next replica are gone, one behind them falls back to the newest version that
// it knows to be released, whatever it has applied.
func TestAReplicaFallsBackToWhatIsReleased(t *testing.T) {
	r := shard.New(0, 2, 1, 1, 0)
	r.Place(true, false)
	r.Handle(kintsugi.Take{Line: 1, View: 1, Fence: 3})
	for s := kintsugi.Step(1); s <= 6; s++ {
		r.Obey(kintsugi.Update{Commit: kintsugi.Commit{Line: 1, Fence: 3, Decided: 3, Step: s}})
		r.Applied(3, nil, 0, 0, 0)
		if s < 6 {
			r.Obey(kintsugi.Released{Line: 1, Fence: 3, Step: s})
		}
	}
	r = r.FallBack(2, 2)
	r.Place(false, false)
	r.Handle(kintsugi.Take{Line: 2, View: 2, Fence: 4})
	replies := r.Ready().Replies
	taken, ok := replies[len(replies)-1].(kintsugi.Taken)
	if !ok || taken.Standing != kintsugi.Lost || taken.Applied != 5 || taken.Released != 5 || !slices.Equal(taken.Saved, []kintsugi.Step{5, 5}) || len(taken.Records) != 1 || taken.Records[0].Step != 5 {
		t.Errorf("it says %+v, want that it has version 5 of two chunks", replies)
	}
}
