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

// noCloser reports whether a replica that is catching up is waited for, which was so many steps
// behind in its answers.
func noCloser(behind []kintsugi.Step) bool {
	for i := range behind {
		soFar := behind[:i+1]
		least := slices.Min(soFar)
		if after := soFar[slices.Index(soFar, least)+1:]; kintsugi.Step(len(after)) >= least || soFar[i] >= 2*least {
			return true
		}
	}
	return false
}

// In whatever order messages arrive: while the next replica counts, nothing is answered that it has
// not answered. After Joined, nothing has been answered before that the next replica had not
// applied then. While it comes closer, it is not waited for; if it does not, it is.
func TestWhoCatchesUpIsNotWaitedForAndNothingIsSaidWithoutWhoHasCaughtUp(t *testing.T) {
	joins, waits := 0, 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := chain.New(true)
		l.Connected(false)
		var ours, said, theirs kintsugi.Step // the steps applied here, answered here, and applied by the next replica
		counts := false
		var behind []kintsugi.Step
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
					if !counts && said == ours && noCloser(behind) {
						t.Fatalf("seed %d: step %d does not wait for one that comes no closer", seed, ours)
					}
				}
			case 1:
				if theirs < ours || theirs == ours && said == ours { // it may be sent a step that is being made here, and apply it first
					if theirs++; theirs < ours && !counts {
						behind = append(behind, ours-theirs)
					}
					l.Follows(theirs, ours)
					join(l.Heard(stable(theirs, 1), ours, 1))
				}
			case 2:
				switch waiting := said != ours; {
				case counts:
				case waiting && !noCloser(behind):
					t.Fatalf("seed %d: step %d waits for one that comes closer", seed, ours)
				case waiting:
					waits++
				}
			}
		}
	}
	if joins < 100 || waits < 10 {
		t.Errorf("%d of 200 joined, %d times a step waited", joins, waits)
	}
}

// row is a chain of four replicas whose messages keep their order.
type row struct {
	links   []chain.Link
	at      []kintsugi.Stable // by replica: what it has applied last
	down    [][]kintsugi.ReplicaMessage
	up      [][]kintsugi.ReplicaMessage // by replica: its answers to the one before; of the head: to the conductor
	told    int                         // how many were told that they have caught up
	ordered kintsugi.Stable             // the newest decision that the head has
}

func newRow(relaxed bool) *row {
	r := &row{at: make([]kintsugi.Stable, 4), down: make([][]kintsugi.ReplicaMessage, 4), up: make([][]kintsugi.ReplicaMessage, 4)}
	for i := range r.at {
		l := chain.New(i < 3)
		if relaxed {
			l.Relax(i == 1, 0, 0)
		}
		r.links = append(r.links, l)
	}
	r.down[0] = append(r.down[0], taken(1))
	return r
}

// obey makes replica i do what the oldest message to it says, pass it on, and answer.
func (r *row) obey(i int) bool {
	if len(r.down[i]) == 0 {
		return false
	}
	m := r.down[i][0]
	r.down[i] = r.down[i][1:]
	if i < 3 {
		r.down[i+1] = append(r.down[i+1], m)
	}
	switch x := m.(type) {
	case kintsugi.Stable:
		r.at[i] = x
	case kintsugi.Taken:
		x.Released = r.at[i].Step
		m = x
	}
	r.answer(i)(r.links[i].Answer(m))
	return true
}

// hear makes replica i hear the oldest answer of the one after it.
func (r *row) hear(i int) bool {
	if i == 3 || len(r.up[i+1]) == 0 {
		return false
	}
	m := r.up[i+1][0]
	r.up[i+1] = r.up[i+1][1:]
	r.answer(i)(r.links[i].Heard(m, r.at[i].Step, r.at[i].Decided))
	return true
}

func (r *row) answer(i int) func(said []kintsugi.ReplicaMessage, joined bool) {
	return func(said []kintsugi.ReplicaMessage, joined bool) {
		r.up[i] = append(r.up[i], said...)
		if joined {
			r.told++
		}
	}
}

// same reports whether two answers are about the same decision.
func same(a, b kintsugi.Stable) bool { return a.Step == b.Step && a.Decided == b.Decided }

// decide gives the head a step, or another decision of it.
func (r *row) decide(step kintsugi.Step, by kintsugi.Fence) {
	r.ordered = stable(step, by)
	r.down[0] = append(r.down[0], r.ordered)
}

// What the head says is true of all replicas. Where the next answers for those behind it, it is true
// of the head and the next, and the others have the step before. In either case every step is said
// in the end, as it was decided last.
func TestWhatAHeadSaysIsTrueOfItsChain(t *testing.T) {
	for _, relaxed := range []bool{false, true} {
		early := 0
		for seed := range uint64(300) {
			rng := rand.New(rand.NewPCG(seed, 5))
			r := newRow(relaxed)
			fence, said := kintsugi.Fence(1), kintsugi.Stable{}
			hears := func() {
				for _, m := range r.up[0] {
					s, ok := m.(kintsugi.Stable)
					if !ok || !same(s, r.ordered) {
						continue // of a decision that was replaced
					}
					said = s
					for i, at := range r.at {
						least := s
						if relaxed && i > 1 {
							least.Step--
						}
						if at.Step < least.Step || at.Step == s.Step && at.Decided != s.Decided && (i < 2 || !relaxed) {
							t.Fatalf("relaxed %v, seed %d: the head says %+v, and replica %d has %+v", relaxed, seed, s, i, at)
						}
						if at.Step < s.Step {
							early++
						}
					}
				}
				r.up[0] = nil
			}
			for range 200 {
				switch rng.IntN(6) {
				case 0:
					if same(said, r.ordered) {
						r.decide(said.Step+1, fence)
					}
				case 1:
					if !same(said, r.ordered) && rng.IntN(8) == 0 {
						fence++
						r.decide(r.ordered.Step, fence)
					}
				case 2, 3:
					r.obey(rng.IntN(4))
				default:
					r.hear(rng.IntN(4))
				}
				hears()
			}
			for busy := true; busy; hears() {
				busy = false
				for i := range 4 {
					busy = r.obey(i) || r.hear(i) || busy
				}
			}
			if !same(said, r.ordered) {
				t.Fatalf("relaxed %v, seed %d: %+v is never said; replicas have %+v", relaxed, seed, r.ordered, r.at)
			}
			if told := map[bool]int{true: 3}[relaxed]; r.told != told {
				t.Fatalf("relaxed %v, seed %d: %d replicas are told that they have caught up, want %d", relaxed, seed, r.told, told)
			}
		}
		if (early > 100) != relaxed {
			t.Errorf("relaxed %v: %d times a step was said that a replica did not have", relaxed, early)
		}
	}
}

// What a replica knows of the one after it counts from one connection to the next, or does not.
func TestWhatALinkRemembers(t *testing.T) {
	joining := func() chain.Link {
		l := chain.New(true)
		l.Connected(false)
		return l
	}
	waits := func(l *chain.Link) bool {
		said, _ := l.Answer(stable(100, 1))
		return len(said) == 0
	}
	relaxed := func(next bool) chain.Link {
		l := chain.New(true)
		l.Relax(next, 5, 3)
		return l
	}
	for _, c := range []struct {
		name string
		link chain.Link
		do   func(l *chain.Link)
		want bool // it waits for the answer of the one after
	}{
		{"one that counts", chain.New(true), func(*chain.Link) {}, true},
		{"one that catches up", joining(), func(*chain.Link) {}, false},
		{"it connects again, and has caught up", joining(), func(l *chain.Link) { l.Connected(true) }, true},
		{"nobody connects to a tail", chain.Link{}, func(l *chain.Link) { l.Connected(true) }, false},
		{"a tail waits for nobody", chain.Link{}, (*chain.Link).Wait, false},
		{"it was outpaced", joining(), (*chain.Link).Wait, true},
		{"it was outpaced, and connects again", joining(), func(l *chain.Link) { l.Wait(); l.Connected(false) }, true},
		{"it was outpaced, caught up, and has nothing again", joining(), func(l *chain.Link) { l.Wait(); l.Connected(true); l.Connected(false) }, false},
		{"it is where this one is", joining(), func(l *chain.Link) { l.Follows(3, 3) }, false},
		{"it is a step behind, once", joining(), func(l *chain.Link) { l.Follows(2, 3) }, false},
		{"it is a step behind, and again", joining(), func(l *chain.Link) { l.Follows(2, 3); l.Follows(3, 4) }, true},
		{"it falls back to twice as far", joining(), func(l *chain.Link) { l.Follows(5, 10); l.Follows(6, 16) }, true},
		{"it falls back, to less than that", joining(), func(l *chain.Link) { l.Follows(5, 10); l.Follows(6, 15) }, false},
		{"it falls back on another connection", joining(), func(l *chain.Link) { l.Follows(5, 10); l.Connected(false); l.Follows(6, 16) }, false},
		{"it was far behind when it counted", chain.New(true), func(l *chain.Link) { l.Follows(1, 10); l.Follows(1, 20); l.Connected(false) }, false},
		{"the next answers, and has not heard where those behind stand", relaxed(true), func(*chain.Link) {}, true},
		{"a head with a next", relaxed(false), func(*chain.Link) {}, true},
		{"they have the step before", relaxed(true), func(l *chain.Link) { l.Heard(stable(5, 3), 5, 3) }, false},
		{"they have one before that", relaxed(true), func(l *chain.Link) { l.Heard(stable(4, 3), 5, 3) }, true},
		{"they have another decision of it", relaxed(true), func(l *chain.Link) { l.Heard(stable(5, 2), 5, 3) }, true},
		{"they have a later one", relaxed(true), func(l *chain.Link) { l.Heard(stable(6, 1), 5, 3) }, false},
		{"they say that they have it", relaxed(true), func(l *chain.Link) { l.Heard(kintsugi.Taken{Released: 5}, 5, 3) }, false},
		{"they say that they have one before", relaxed(true), func(l *chain.Link) { l.Heard(kintsugi.Taken{Released: 4}, 5, 3) }, true},
	} {
		if c.do(&c.link); waits(&c.link) != c.want {
			t.Errorf("%s: waited for is %v", c.name, !c.want)
		}
	}
}

// The one after may have applied a step before this one has. It has caught up if that is the same
// decision of the step.
func TestOneThatHasAStepFirstHasCaughtUp(t *testing.T) {
	for decided, want := range map[kintsugi.Fence]bool{1: false, 2: true} {
		l := chain.New(true)
		l.Connected(false)
		l.Heard(stable(1, decided), 0, 0)
		said, joined := l.Answer(stable(1, 2))
		if joined != want || len(said) != 1 {
			t.Errorf("decision %d: it has caught up is %v; %+v is said", decided, joined, said)
		}
	}
}

// A released step needs no answer. A later one does.
func TestTheAnswerToAReleasedStepIsDropped(t *testing.T) {
	l := chain.New(true)
	l.Answer(stable(2, 1))
	if l.Released(1); !l.Waits() {
		t.Error("the answer to step 2 is dropped when step 1 is released")
	}
	if l.Released(2); l.Waits() {
		t.Error("the answer to step 2 waits although step 2 is released")
	}
	if said, _ := l.Heard(stable(2, 1), 2, 1); len(said) > 0 {
		t.Errorf("of a released step, %+v is said", said)
	}
}
