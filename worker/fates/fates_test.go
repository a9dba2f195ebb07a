package fates_test

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/fates"
)

func push(version kintsugi.Step, sequence uint32) kintsugi.PushID {
	return kintsugi.PushID{Line: 1, Version: version, Sequence: sequence}
}

func view(number kintsugi.ViewNumber) kintsugi.View { return kintsugi.View{Number: number, Line: 1} }

// The heads have dropped the bytes of a worker that was not a member for a while. If only the
// ticket were sent again, a step would wait for the bytes.
func TestAPushIsSentAgainInTheSameView(t *testing.T) {
	var b fates.Book
	b.Join(view(1), 4)
	b.Begin(push(4, 1))
	b.Ask(push(4, 1), 1)
	b.Begin(push(4, 0))
	b.Ask(push(4, 0), 1)
	b.Begin(push(4, 2)) // no conductor was told of it, so the turn that would compute it sends it
	j := b.Join(view(1), 4)
	if want := []fates.Question{{push(4, 0), true}, {push(4, 1), true}}; !slices.Equal(j.Ask, want) || len(j.Settled) > 0 || j.GivenUp {
		t.Errorf("%+v, want %v sent again", j, want)
	}
}

func TestAPushOnThisVersionIsSentAgainToTheHeadsOfAnotherView(t *testing.T) {
	var b fates.Book
	b.Join(view(1), 4)
	b.Begin(push(4, 0))
	b.Ask(push(4, 0), 1)
	if j := b.Join(view(2), 4); !slices.Equal(j.Ask, []fates.Question{{push(4, 0), true}}) {
		t.Errorf("%+v, want it sent again", j)
	}
}

func TestAPushOnAnOlderVersionIsOnlyAskedAboutInAnotherView(t *testing.T) {
	var b fates.Book
	b.Join(view(1), 4)
	b.Begin(push(4, 0))
	b.Ask(push(4, 0), 1)
	if j := b.Join(view(2), 5); !slices.Equal(j.Ask, []fates.Question{{push(4, 0), false}}) {
		t.Errorf("%+v, want its ticket repeated", j)
	}
	if f := b.Pass(9); len(f) > 0 {
		t.Errorf("%v is given up, and may have been counted", f)
	}
}

// A session that breaks after it has asked about an older push leaves a newer one that names an older
// view. The next session asks about both in order of their ids all the same: a conductor that was
// asked about a push is not asked about an earlier one later.
func TestQuestionsAreInOrderOfIDs(t *testing.T) {
	var b fates.Book
	b.Join(view(1), 4)
	for i := range uint32(2) {
		b.Begin(push(4, i))
		b.Ask(push(4, i), 1)
	}
	b.Join(view(2), 4)
	b.Ask(push(4, 0), 2)
	if j := b.Join(view(2), 5); !slices.Equal(j.Ask, []fates.Question{{push(4, 0), true}, {push(4, 1), false}}) {
		t.Errorf("%+v, want the older one first, sent again", j)
	}
}

// In another view, heads refuse the push, or the session breaks before they have it. The conductor
// of the first view may have counted it nevertheless.
func TestAPushThatWasToldOfOnceIsNotGivenUpWithoutAWord(t *testing.T) {
	var b fates.Book
	b.Join(view(1), 4)
	b.Begin(push(4, 0))
	b.Ask(push(4, 0), 1)
	b.Join(view(2), 4)
	b.Join(view(3), 5)
	if f := b.Pass(5); len(f) > 0 {
		t.Errorf("%v is given up", f)
	}
}

func TestAPushThatNoConductorWasToldOfIsGivenUpWhenItIsPassed(t *testing.T) {
	var b fates.Book
	b.Join(view(1), 4)
	b.Begin(push(4, 0))
	b.Begin(push(4, 1))
	b.Ask(push(4, 1), 1)
	b.Void(push(4, 1)) // the conductor says that this is not counted, although nothing is newer
	if f := b.Pass(4); len(f) > 0 {
		t.Errorf("%v before its version is passed", f)
	}
	if f := b.Pass(5); !slices.Equal(f, []fates.Fate{{Push: push(4, 0)}, {Push: push(4, 1)}}) || b.Settle(push(4, 1)) {
		t.Errorf("%v are given up", f)
	}
}

// On a line that keeps the one before, nobody knows what became of a push. If it may have been
// counted, it is taken for counted.
func TestOnALineThatKeepsTheOneBeforePushesAreTakenForCounted(t *testing.T) {
	var b fates.Book
	b.Join(view(1), 4)
	for i := range uint32(2) {
		b.Begin(push(4, i))
	}
	b.Ask(push(4, 0), 1)
	j := b.Join(kintsugi.View{Number: 2, Line: 2, Keeps: 1}, 5)
	if want := []fates.Fate{{Push: push(4, 0), Counted: true}, {Push: push(4, 1)}}; !slices.Equal(j.Settled, want) || j.GivenUp {
		t.Errorf("%+v, want %v", j, want)
	}
}

func TestALineThatKeepsNothingGivesTheResidualUp(t *testing.T) {
	var b fates.Book
	if j := b.Join(view(1), 4); j.GivenUp {
		t.Error("the first line gives a residual up")
	}
	b.Begin(push(4, 0))
	if j := b.Join(kintsugi.View{Number: 2, Line: 2}, 3); !j.GivenUp || j.Lost != 1 || b.Settle(push(4, 0)) {
		t.Errorf("%+v", j)
	}
}

// plainBook is a Book that is slow and obvious.
type plainBook struct {
	line kintsugi.Line
	told map[kintsugi.PushID]kintsugi.ViewNumber // by open push: the view of its ticket; 0: no ticket was sent
}

func (b *plainBook) open() []kintsugi.PushID {
	return slices.SortedFunc(maps.Keys(b.told), kintsugi.PushID.Compare)
}

func (b *plainBook) join(v kintsugi.View, version kintsugi.Step) (j fates.Joined) {
	same, kept := b.line == v.Line, v.Keeps != 0 && b.line >= v.Keeps
	if !same && !kept {
		j.GivenUp, j.Lost = b.line != 0, len(b.told)
	}
	for _, id := range b.open() {
		switch {
		case same && b.told[id] != 0:
			j.Ask = append(j.Ask, fates.Question{Push: id, Send: b.told[id] == v.Number || id.Version >= version})
		case !same && kept:
			j.Settled = append(j.Settled, fates.Fate{Push: id, Counted: b.told[id] != 0 && id.Version < version})
		}
	}
	if !same {
		clear(b.told)
	}
	b.line = v.Line
	return j
}

func (b *plainBook) pass(version kintsugi.Step) (settled []fates.Fate) {
	for _, id := range b.open() {
		if b.told[id] == 0 && id.Version < version {
			settled = append(settled, fates.Fate{Push: id})
			delete(b.told, id)
		}
	}
	return settled
}

// Whatever happens to a worker's pushes, in any order, the book says what the plain one says.
func TestABookSaysWhatThePlainOneSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	told := 0
	for range 300 {
		var b fates.Book
		plain := plainBook{told: map[kintsugi.PushID]kintsugi.ViewNumber{}}
		v := kintsugi.View{Number: 1, Line: 1}
		version := kintsugi.Step(4)
		for range 60 {
			id := push(version-kintsugi.Step(rng.IntN(3)), uint32(rng.IntN(2)))
			id.Line = v.Line
			var got, want any
			op := rng.IntN(8)
			switch op {
			case 0, 1:
				b.Begin(id)
				if _, open := plain.told[id]; !open {
					plain.told[id] = 0
				}
			case 2, 3:
				b.Ask(id, v.Number)
				if _, open := plain.told[id]; open {
					plain.told[id] = v.Number
				}
			case 4:
				b.Void(id)
				if _, open := plain.told[id]; open {
					plain.told[id] = 0
				}
			case 5:
				_, open := plain.told[id]
				got, want = b.Settle(id), open
				delete(plain.told, id)
			case 6:
				version++
				got, want = b.Pass(version), plain.pass(version)
			case 7:
				switch rng.IntN(4) {
				case 0: // the connection was broken
				case 1:
					v.Number++
				case 2:
					v = kintsugi.View{Number: v.Number + 1, Line: v.Line + 1, Keeps: v.Line - kintsugi.Line(rng.IntN(2))}
				case 3:
					v = kintsugi.View{Number: v.Number + 1, Line: v.Line + 1}
				}
				j := b.Join(v, version)
				told += len(j.Ask) + len(j.Settled) + j.Lost
				got, want = j, plain.join(v, version)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("operation %d on %v: %+v, want %+v", op, id, got, want)
			}
		}
	}
	if told < 1000 {
		t.Errorf("%d pushes were asked about, settled or lost: the test tests little", told)
	}
}
