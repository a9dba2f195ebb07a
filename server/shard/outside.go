package shard

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// A line may go on in the next view: see kintsugi.View.Continues. Pushes and the open commit are
// left behind. Workers push again what may still be counted, and a step that not every shard has
// applied is decided anew.

// GoOn returns the replica of a later view of the same line. It stands where r stands, at its place
// in the chain of that view (see Place). r is not used afterwards.
func (r *Replica) GoOn(view kintsugi.ViewNumber, follows, after bool) *Replica {
	next := New(r.id, r.chunks, r.line, view, r.released)
	next.every, next.hasCopy, next.dueBy, next.most, next.have, next.lacking, next.standing = r.every, r.hasCopy, r.dueBy, r.most, r.have, r.lacking, r.standing
	next.behind = r.Behind()
	next.applied, next.promised, next.records, next.answer, next.saved = r.applied, r.promised, r.records, ofLaterView(r.answer), r.saved
	next.Place(follows, after)
	return next
}

// Recent returns what a later life needs of r besides its versions: the commits that made them,
// ascending, and the answer to the newest.
func (r *Replica) Recent() (made []kintsugi.Commit, answer kintsugi.Stable) {
	return slices.Clone(r.records), r.answer
}

// Recall moves r, which is new and whose version can be read, to where an earlier life of its
// server has left it. last has the commit of that version, if there was one, and of the version
// after it, if that is applied. answer is the answer to the newer one.
func (r *Replica) Recall(last []kintsugi.Commit, answer kintsugi.Stable) {
	r.records = last
	if n := len(last); n > 0 {
		r.applied, r.answer = last[n-1].Step, ofLaterView(answer)
	}
}

// ofLaterView returns an answer of an earlier view as it is repeated in a later one, where bytes
// are counted from the beginning of that view.
func ofLaterView(answer kintsugi.Stable) kintsugi.Stable {
	answer.Pushed, answer.Pulled = 0, 0
	return answer
}
