// Package fates decides what a worker whose codec keeps residuals makes of its pushes until it
// knows what became of them: which it sends again, of which it repeats the ticket, and which it
// takes for counted or for dropped.
//
// That decides what becomes of the residual. A push that was counted and is taken for dropped gives
// back what it took, and the next gradient brings it a second time; one that was dropped and is
// taken for counted loses it. The conductor's word is the only one that is certain, and it may be
// lost with a session.
//
// A Book is a pure machine: it sees ids, views and versions, and no gradient. It is not safe for concurrent use.
package fates

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// Fate says what became of a push.
type Fate struct {
	Push    kintsugi.PushID
	Counted bool
}

// Book has the open pushes of one worker: those of which it does not know what became.
type Book struct {
	line kintsugi.Line // of the open pushes; 0: there was no session yet
	open []entry       // ascending by id
}

type entry struct {
	id   kintsugi.PushID
	told bool                // a ticket has gone out, in whatever session, and no conductor has answered: every head held the bytes then, so it may be counted
	view kintsugi.ViewNumber // that the newest ticket says the heads are of
}

// find returns the place of a push, and whether it is open.
func (b *Book) find(id kintsugi.PushID) (int, bool) {
	return slices.BinarySearchFunc(b.open, id, func(e entry, id kintsugi.PushID) int { return e.id.Compare(id) })
}

// Begin opens a push that is about to be sent for the first time.
func (b *Book) Begin(id kintsugi.PushID) {
	if at, open := b.find(id); !open {
		b.open = slices.Insert(b.open, at, entry{id: id})
	}
}

// Ask notes that the ticket of an open push goes out, which says that every head of a view held it.
func (b *Book) Ask(id kintsugi.PushID, view kintsugi.ViewNumber) {
	if at, open := b.find(id); open {
		b.open[at].told, b.open[at].view = true, view
	}
}

// Void notes that a conductor has refused an open push on a version that is still the newest:
// nothing counts it unless it is sent and told of again.
func (b *Book) Void(id kintsugi.PushID) {
	if at, open := b.find(id); open {
		b.open[at].told = false
	}
}

// Settle closes a push. It reports whether that was open.
func (b *Book) Settle(id kintsugi.PushID) bool {
	at, open := b.find(id)
	if open {
		b.open = slices.Delete(b.open, at, at+1)
	}
	return open
}

// Joined is what follows from a session that has begun.
type Joined struct {
	Settled []Fate            // on the line before, which this one keeps
	GivenUp bool              // the line before is not kept: what earlier gradients left out belongs to parameters that are gone
	Lost    int               // GivenUp: pushes that were open
	Repeat  []kintsugi.PushID // their tickets are to be repeated, in this order
	Again   []kintsugi.PushID // behind those: they are to be sent again, in this order, and then their tickets, whatever the heads say
}

// Join takes the book to a session that has joined in a view and read a version. Every push that
// may have been counted while nobody listened is asked about. Most are sent again before: in the
// same view the conductor may still count it, and if the worker was no member for a while, the
// heads have dropped its bytes; in another view the heads may be others, and one on this very
// version may be counted anew. A head that refuses it does not say that it is not counted: a step
// may have counted it that is so old that the head has forgotten.
func (b *Book) Join(v kintsugi.View, version kintsugi.Step) (j Joined) {
	switch {
	case b.line == v.Line:
	case v.Keeps != 0 && b.line >= v.Keeps:
		j.Settled = b.goOn(version)
	default:
		j.GivenUp, j.Lost = b.line != 0, len(b.open)
		b.open = nil
	}
	b.line = v.Line
	for _, e := range b.open {
		switch {
		case !e.told: // the turn that would compute it sends it again, the same bytes, for some heads may have them
		case e.view != v.Number && e.id.Version < version: // its ticket says so, and nothing counts it from here on
			j.Repeat = append(j.Repeat, e.id)
		default:
			j.Again = append(j.Again, e.id)
		}
	}
	return j
}

// Pass gives up the pushes on versions before this one of which no ticket is out: nobody can have counted them.
func (b *Book) Pass(version kintsugi.Step) (settled []Fate) {
	b.open = slices.DeleteFunc(b.open, func(e entry) bool {
		gone := !e.told && e.id.Version < version
		if gone {
			settled = append(settled, Fate{Push: e.id})
		}
		return gone
	})
	return settled
}

// goOn goes on with a line that begins where the one before ended. The residual is of the
// parameters that were kept, and stays. Nobody is left to say what became of the open pushes: those
// that may be counted are taken for counted where the line is past the step that could count them,
// so that what they have brought is not sent a second time.
func (b *Book) goOn(version kintsugi.Step) (settled []Fate) {
	for _, e := range b.open {
		settled = append(settled, Fate{Push: e.id, Counted: e.told && e.id.Version < version})
	}
	b.open = nil
	return settled
}
