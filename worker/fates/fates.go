// Package fates keeps account of the open pushes of a worker whose codec keeps residuals. It
// decides which pushes the worker sends again, for which it only repeats the ticket, and which it
// takes for counted or for dropped. Begin reading at Book and Join.
//
// These decisions determine what happens to the residual. If a push was counted but is taken for
// dropped, its part of the residual is given back, and the next gradient sends it a second time. If
// a push was dropped but is taken for counted, that part is lost. Only the conductor's answer is
// certain, and it may be lost with a session.
//
// A Book is a pure state machine: it sees ids, views and versions, but no gradient. It is not safe
// for concurrent use.
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

// Book holds the open pushes of one worker: those whose fate the worker does not know.
type Book struct {
	line kintsugi.Line // of the open pushes; 0: no session yet
	open []entry       // ascending by id
}

type entry struct {
	id kintsugi.PushID
	// A ticket was sent, in any session, and no conductor has answered it. Every head held the
	// bytes then, so the push may be counted.
	told bool
	view kintsugi.ViewNumber // the view that the newest ticket names
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

// Ask notes that the ticket of an open push is sent. The ticket says that every head of the given
// view held the push.
func (b *Book) Ask(id kintsugi.PushID, view kintsugi.ViewNumber) {
	if at, open := b.find(id); open {
		b.open[at].told, b.open[at].view = true, view
	}
}

// Void notes that a conductor has refused an open push although its version is still the newest.
// Nothing will count the push unless the worker sends it and its ticket again.
func (b *Book) Void(id kintsugi.PushID) {
	if at, open := b.find(id); open {
		b.open[at].told = false
	}
}

// Settle closes a push. It reports whether the push was open.
func (b *Book) Settle(id kintsugi.PushID) bool {
	at, open := b.find(id)
	if open {
		b.open = slices.Delete(b.open, at, at+1)
	}
	return open
}

// Joined says what the worker must do after a session has begun.
type Joined struct {
	Settled []Fate     // fates of pushes on the line before, which this line keeps
	GivenUp bool       // the line before is not kept, so the residual belongs to parameters that no longer exist
	Lost    int        // with GivenUp: the number of pushes that were open
	Ask     []Question // in order of ids
}

// Question names a push whose ticket must be repeated, since only the conductor knows its fate.
type Question struct {
	Push kintsugi.PushID
	Send bool // send the bytes again before the ticket, and the ticket whatever the heads answer
}

// Join tells the book that a session has joined in view v and has read version. The worker must ask
// about every push that may have been counted while the worker was not connected. For most of them
// it must send the bytes again first. In the same view, the conductor may still count the push, but
// if the worker was no member for a while, the heads have dropped the bytes. In another view, the
// heads may be others, and a push on the current version may still be counted. If a head refuses
// the push, it may nevertheless have been counted, in a step so old that the head has forgotten it.
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
		if !e.told {
			continue // the next turn would compute it, and sends the same bytes again instead, as some heads may have them
		}
		// A push on an older version whose ticket names an older view will not be counted from now on.
		j.Ask = append(j.Ask, Question{Push: e.id, Send: e.view == v.Number || e.id.Version >= version})
	}
	return j
}

// Pass gives up the pushes on versions before this one whose tickets were not sent: they cannot
// have been counted.
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

// goOn continues with a line that begins where the line before ended. The residual belongs to the
// parameters that were kept, and stays. Nobody can say any more what became of the open pushes. A
// push that may have been counted is taken for counted if the line is past the step that could have
// counted it, so that its contribution is not sent twice.
func (b *Book) goOn(version kintsugi.Step) (settled []Fate) {
	for _, e := range b.open {
		settled = append(settled, Fate{Push: e.id, Counted: e.told && e.id.Version < version})
	}
	b.open = nil
	return settled
}
