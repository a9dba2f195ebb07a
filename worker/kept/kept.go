// Package kept holds the gradients that a worker computes while servers are away, in bounded
// memory, until they can be offered.
//
// The first is the one that the worker was at when the servers went: it may have been pushed, so it
// stays as it is. Later ones are new. When there is no room for one of its own it is merged into
// another of the same version, to their mean: so memory is bounded by Config.Most arrays, whatever
// the outage lasts, and no gradient is thrown away for want of room. A worker that trains on by
// itself (kintsugi.KeepLocal) keeps one sum of the gradients on its path: times the rate, it is how
// far it has come. Such a path can go on on the line that follows its own, if that keeps it.
//
// A Queue is a pure machine: it holds no clock and starts nothing. It is not safe for concurrent use.
package kept

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// Config says what a queue holds.
type Config struct {
	Rule   kintsugi.KeepRule
	Values int // of a gradient
	Most   int // arrays of Values floats; at least 2
}

// Gradient is what is pushed under one id: a gradient, or the mean of some, or their sum along a path.
type Gradient struct {
	ID       kintsugi.PushID // of the first of them
	Loss     float64         // mean
	Examples uint32          // of one of them, on average
	Merged   uint32          // how many they are
	First    bool            // it was under way when the outage began: an ordinary gradient, that may have been pushed before
	Sent     bool            // some of its bytes may be with a head, which takes no others for the id: nothing is merged into it any more
	Moved    bool            // others have moved the parameters since it began, although its id names those that are there now
	Values   []float32
}

// Queue holds the gradients of one outage, or of several in a row.
type Queue struct {
	cfg     Config
	list    []Gradient // ascending by ID
	turn    int        // of those that later ones are merged into
	kept    uint64     // gradients in list
	dropped uint32     // gradients that a newer version has pushed out, not told yet
	astray  bool       // a path was forgotten: the parameters at its end are of no use
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	cfg.Most = max(2, cfg.Most)
	return &Queue{cfg: cfg}
}

// Len returns how many pushes there are to offer, Gradients of how many gradients.
func (q *Queue) Len() int          { return len(q.list) }
func (q *Queue) Gradients() uint64 { return q.kept }

// Bytes returns the memory of the arrays.
func (q *Queue) Bytes() int { return 4 * q.cfg.Values * len(q.list) }

// Oldest returns the version of the oldest gradient; false: there is none.
func (q *Queue) Oldest() (kintsugi.Step, bool) {
	if len(q.list) == 0 {
		return 0, false
	}
	return q.list[0].ID.Version, true
}

// Keep takes a copy of a gradient. Ids ascend. first says that it is the one that was under way. It
// returns the id under which the gradient will be offered: its own, or that of the push that it is
// merged into.
func (q *Queue) Keep(id kintsugi.PushID, loss float64, examples uint32, values []float32, first bool) (in kintsugi.PushID) {
	q.kept++
	if into := q.into(id, first); into != nil {
		into.merge(loss, examples, values, q.cfg.Rule == kintsugi.KeepLocal)
		return into.ID
	}
	q.list = append(q.list, Gradient{ID: id, Loss: loss, Examples: examples, Merged: 1, First: first, Values: slices.Clone(values)})
	return id
}

// into returns what a gradient is merged into; nil: it gets an array of its own, for which there is room.
func (q *Queue) into(id kintsugi.PushID, first bool) *Gradient {
	var same []*Gradient
	for i := range q.list {
		if g := &q.list[i]; !g.First && !g.Sent && !first && g.ID.Version == id.Version && g.ID.Line == id.Line {
			same = append(same, g)
		}
	}
	one := q.cfg.Rule != kintsugi.KeepDecay // the other rules apply all of a worker at once
	switch {
	case len(same) > 0 && (one || len(q.list) >= q.cfg.Most):
		q.turn++
		return same[q.turn%len(same)]
	case len(q.list) >= q.cfg.Most: // of a new version: the oldest makes room
		q.dropped += q.list[0].Merged
		q.kept -= uint64(q.list[0].Merged)
		q.list = slices.Delete(q.list, 0, 1)
	}
	return nil
}

// merge adds one gradient more to a sum, or moves a mean towards it.
func (g *Gradient) merge(loss float64, examples uint32, values []float32, sum bool) {
	g.Merged++
	n := float64(g.Merged)
	g.Loss += (loss - g.Loss) / n
	g.Examples = uint32((float64(g.Examples)*(n-1) + float64(examples)) / n)
	if sum {
		for i, v := range values {
			g.Values[i] += v
		}
		return
	}
	part := float32(1 / n)
	for i, v := range values {
		g.Values[i] += float32((v - g.Values[i]) * part)
	}
}

// Along calls f with every sum or gradient of a version that is kept, in order: a worker that
// begins on its parameters again goes along what it has been before. f must not change its values.
func (q *Queue) Along(id kintsugi.PushID, f func(Gradient)) {
	for _, g := range q.list {
		if g.ID.Line == id.Line && g.ID.Version == id.Version {
			f(g)
		}
	}
}

// Forget drops what was kept on a version but for the gradient that was under way.
func (q *Queue) Forget(id kintsugi.PushID) {
	q.astray = true
	q.list = slices.DeleteFunc(q.list, func(g Gradient) bool {
		gone := !g.First && g.ID.Line == id.Line && g.ID.Version == id.Version
		if gone {
			q.dropped += g.Merged
			q.kept -= uint64(g.Merged)
		}
		return gone
	})
}

// Take empties the queue and returns what it held, ascending, and how many gradients it has dropped
// since the last Take. The caller owns the arrays.
func (q *Queue) Take() (list []Gradient, dropped uint32) {
	list, dropped = q.list, q.dropped
	q.list, q.dropped, q.kept, q.turn, q.astray = nil, 0, 0, 0, false
	return list, dropped
}

// Range is the values [Lo, Hi) of the flat parameter vector.
type Range struct{ Lo, Hi int }

// Onto takes a path (kintsugi.KeepLocal) from the version of from to that of to, which is the same
// or a later one, on a line that keeps that of from. There it is one push. Where shards stayed as
// they were it is the sum of gradients that it was. Where they came back, in the ranges of
// restored, that sum would be steps from elsewhere: there it is what leads from base, the
// parameters of to, to end, where the path has come to, with steps of the given rate. base and end
// have Config.Values values, and ranges do not overlap. Gradients on other versions stay, and are
// of no use on the new line.
//
// It returns the id of the push; false: there is no path, or it leads nowhere.
func (q *Queue) Onto(from, to kintsugi.PushID, restored []Range, base, end []float32, rate float32) (kintsugi.PushID, bool) {
	if q.astray || rate == 0 {
		return to, false
	}
	var path *Gradient
	var others []Gradient
	for _, g := range q.list {
		switch {
		case g.ID.Line != from.Line || g.ID.Version != from.Version:
			others = append(others, g)
		case path == nil:
			path = &g
		default:
			path.join(&g)
		}
	}
	if path == nil {
		return to, false
	}
	path.First, path.Sent, path.Moved = false, false, path.Moved || to.Version > from.Version
	if to.Version == from.Version { // the batches of its gradients are used up
		to.Sequence = path.ID.Sequence
	}
	path.ID = to
	for _, r := range restored {
		for i := r.Lo; i < r.Hi; i++ {
			path.Values[i] = (base[i] - end[i]) / rate
		}
	}
	q.list = append(others, *path)
	return to, true
}

// join adds a part of the same path that comes after g.
func (g *Gradient) join(after *Gradient) {
	n := float64(g.Merged + after.Merged)
	part := float64(after.Merged) / n
	g.Loss += (after.Loss - g.Loss) * part
	g.Examples = uint32((float64(g.Examples)*(n-float64(after.Merged)) + float64(after.Examples)*float64(after.Merged)) / n)
	g.Merged, g.Moved = g.Merged+after.Merged, g.Moved || after.Moved
	for i, v := range after.Values {
		g.Values[i] += v
	}
}

// Back puts back what could not be offered, before anything else is kept.
func (q *Queue) Back(list []Gradient) {
	q.list = append(q.list, list...)
	for _, g := range list {
		q.kept += uint64(g.Merged)
	}
}

// Uphill reports whether a step against g would, as far as fresh tells, raise the loss: fresh is a
// gradient on newer parameters than those of g, and the two point apart.
func (g *Gradient) Uphill(fresh []float32) bool {
	dot := 0.0
	for i, v := range g.Values {
		dot += float64(v) * float64(fresh[i])
	}
	return dot < 0
}
