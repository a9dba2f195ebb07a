package chain_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/chain"
)

func taken(f kintsugi.Fence) kintsugi.Taken { return kintsugi.Taken{Fence: f} }

func stable(step kintsugi.Step, decided kintsugi.Fence) kintsugi.Stable {
	return kintsugi.Stable{Step: step, Decided: decided, Fence: decided}
}

func TestATailAnswersAtOnce(t *testing.T) {
	var l chain.Link
	for _, m := range []kintsugi.ReplicaMessage{taken(1), stable(1, 1), kintsugi.MembersKnown{Change: 1}, kintsugi.Saved{Step: 1}} {
		if got, joined := l.Answer(m); joined || !reflect.DeepEqual(got, []kintsugi.ReplicaMessage{m}) {
			t.Errorf("%+v leads to %+v", m, got)
		}
	}
}

// The answer to an earlier decision about a step is not an answer to a later one.
func TestAnAnswerWaitsForTheSameOfTheOneAfter(t *testing.T) {
	l := chain.New(true)
	hears := func(m kintsugi.ReplicaMessage, want ...kintsugi.ReplicaMessage) {
		t.Helper()
		if got, joined := l.Heard(m, 1, 2); !slices.EqualFunc(got, want, func(a, b kintsugi.ReplicaMessage) bool { return reflect.DeepEqual(a, b) }) || joined {
			t.Errorf("%+v leads to %+v, joined %v, want %+v", m, got, joined, want)
		}
	}
	answers := func(m kintsugi.ReplicaMessage) []kintsugi.ReplicaMessage {
		said, _ := l.Answer(m)
		return said
	}
	if got := append(answers(taken(2)), answers(stable(1, 2))...); got != nil {
		t.Errorf("it answers alone: %+v", got)
	}
	hears(taken(1))
	hears(stable(1, 1))
	hears(stable(1, 2), stable(1, 2))
	hears(taken(3), taken(2))
	if got := answers(stable(1, 2)); len(got) != 1 {
		t.Errorf("what the one after has said is forgotten: %+v", got)
	}
	l.Connected(true) // again, since it may have lost what it had
	if got := answers(stable(1, 2)); got != nil {
		t.Errorf("what it said on another connection counts: %+v", got)
	}
}

// In whatever order messages arrive: while the next replica counts, nothing is answered that it has
// not answered. After Joined, nothing has been answered before that the next replica had not
// applied then.
func TestWhoCatchesUpIsNotWaitedForAndNothingIsSaidWithoutWhoHasCaughtUp(t *testing.T) {
	joins := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := chain.New(true)
		l.Connected(false)
		var ours, said, theirs kintsugi.Step // the steps applied here, answered here, and applied by the next replica
		counts := false
		note := func(answers []kintsugi.ReplicaMessage) {
			for _, m := range answers {
				said = m.(kintsugi.Stable).Step
				if counts && said > theirs {
					t.Fatalf("seed %d: step %d is said, the one after has applied %d", seed, said, theirs)
				}
			}
		}
		for range 50 {
			join := func(answers []kintsugi.ReplicaMessage, joined bool) {
				if joined {
					joins++
					if counts = true; said > theirs {
						t.Fatalf("seed %d: it has joined at step %d, but step %d was said", seed, theirs, said)
					}
				}
				note(answers)
			}
			switch rng.IntN(3) {
			case 0:
				if said == ours { // a step is decided when the previous one is stable
					ours++
					join(l.Answer(stable(ours, 1)))
				}
			case 1:
				if theirs < ours || theirs == ours && said == ours { // it may be sent a step that is being made here, and apply it first
					theirs++
					join(l.Heard(stable(theirs, 1), ours, 1))
				}
			case 2:
				if !counts && said != ours {
					t.Fatalf("seed %d: step %d waits for one that is catching up", seed, ours)
				}
			}
		}
	}
	if joins < 100 {
		t.Errorf("%d of 200 joined", joins)
	}
}
