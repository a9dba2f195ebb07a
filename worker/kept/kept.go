// Package kept holds the gradients that a worker computes while servers are away, in bounded
// memory, until the worker can offer them. A Queue holds them; Keep and Take are its main methods.
//
// The first gradient is the one that the worker was computing when the servers went away. It may
// have been pushed, so it is kept unchanged. Later gradients are new. If there is no room for
// another array, a gradient is merged into an earlier one of the same version, to their mean. So
// memory is bounded by Config.Most arrays, however long the outage lasts, and no gradient is thrown
// away for lack of memory. A worker that trains on by itself (kintsugi.KeepLocal) keeps one sum of
// the gradients on its path. The sum times the rates is the distance the path has covered. If the
// next line keeps the path's line, the path can be carried over to it (Onto).
//
// A Queue is a pure state machine: it has no clock and starts no goroutine. It is not safe for
// concurrent use.
package kept

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// Config configures a Queue.
type Config struct {
	Rule   kintsugi.KeepRule
	Values int // of a gradient
	Most   int // limit on arrays of Values floats; at least 2
}

// Gradient is pushed under one id. It is one gradient, the mean of several, or their sum along a
// path.
type Gradient struct {
	ID     kintsugi.PushID // of the first gradient in it
	Loss   float64         // mean
	Merged uint32          // number of gradients in it
	First  bool            // the gradient under way when the outage began: unmerged, and possibly pushed before
	Sent   bool            // a head may have some of its bytes and accept no others for this id, so nothing more is merged into it
	Moved  bool            // other workers have moved the parameters since it began, although its id names the current ones
	Values []float32

	examples uint64 // of all gradients in it
}

// Examples returns the number of examples of one gradient in g, on average.
func (g *Gradient) Examples() uint32 {
	n := uint64(max(1, g.Merged))
	return uint32((g.examples + n/2) / n)
}

// Queue holds the gradients of one outage, or of several in a row.
type Queue struct {
	cfg     Config
	list    []Gradient // ascending by ID
	turn    int        // number of times a gradient was merged into one of several candidates
	kept    uint64     // gradients in list
	dropped uint32     // dropped for a newer version and not reported by Take yet
	astray  bool       // a path was forgotten, so the parameters at its end must not be used
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	cfg.Most = max(2, cfg.Most)
	return &Queue{cfg: cfg}
}

// Len returns the number of pushes to offer. Gradients returns how many gradients they consist of.
func (q *Queue) Len() int          { return len(q.list) }
func (q *Queue) Gradients() uint64 { return q.kept }

// Bytes returns the memory of the queue's arrays, in bytes.
func (q *Queue) Bytes() int { return 4 * q.cfg.Values * len(q.list) }

// Oldest returns the version of the oldest gradient, or false if there is none.
func (q *Queue) Oldest() (kintsugi.Step, bool) {
	if len(q.list) == 0 {
		return 0, false
	}
	return q.list[0].ID.Version, true
}

// Keep puts a copy of a gradient in the queue. Ids must ascend. first marks the gradient that was
// under way when the outage began. Keep returns the id under which the gradient will be offered:
// its own, or that of the push it was merged into.
func (q *Queue) Keep(id kintsugi.PushID, loss float64, examples uint32, values []float32, first bool) (in kintsugi.PushID) {
	q.kept++
	if into := q.into(id, first); into != nil {
		into.merge(loss, examples, values, q.cfg.Rule == kintsugi.KeepLocal)
		return into.ID
	}
	q.list = append(q.list, Gradient{ID: id, Loss: loss, Merged: 1, First: first, Values: slices.Clone(values), examples: uint64(examples)})
	return id
}

// into returns the gradient to merge into, or nil if the new gradient gets an array of its own,
// after making room for it.
func (q *Queue) into(id kintsugi.PushID, first bool) *Gradient {
	var same []*Gradient
	for i := range q.list {
		if g := &q.list[i]; !g.First && !g.Sent && !first && g.ID.Version == id.Version && g.ID.Line == id.Line {
			same = append(same, g)
		}
	}
	one := q.cfg.Rule != kintsugi.KeepDecay // the other rules apply all gradients of a worker at once
	switch {
	case len(same) > 0 && (one || len(q.list) >= q.cfg.Most):
		q.turn++
		return same[q.turn%len(same)]
	case len(q.list) >= q.cfg.Most: // a new version: the oldest gradient makes room
		q.dropped += q.list[0].Merged
		q.kept -= uint64(q.list[0].Merged)
		q.list = slices.Delete(q.list, 0, 1)
	}
	return nil
}

// merge adds one more gradient to a sum, or includes it in a mean.
func (g *Gradient) merge(loss float64, examples uint32, values []float32, sum bool) {
	g.Merged++
	g.examples += uint64(examples)
	n := float64(g.Merged)
	g.Loss += (loss - g.Loss) / n
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

// Along calls f with every kept sum or gradient of the version of id, in order. A worker that
// begins on these parameters again repeats its path in this way. f must not change the values.
func (q *Queue) Along(id kintsugi.PushID, f func(Gradient)) {
	for _, g := range q.list {
		if g.ID.Line == id.Line && g.ID.Version == id.Version {
			f(g)
		}
	}
}

// Forget drops all gradients kept on the version of id, except the one that was under way when the
// outage began.
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

// Take empties the queue. It returns the gradients, ascending by id, and how many the queue has
// dropped since the last Take. The caller owns the arrays.
func (q *Queue) Take() (list []Gradient, dropped uint32) {
	list, dropped = q.list, q.dropped
	q.list, q.dropped, q.kept, q.turn, q.astray = nil, 0, 0, 0, false
	return list, dropped
}

// Range is the range [Lo, Hi) of indices of the flat parameter vector.
type Range struct{ Lo, Hi int }

// Part is a range of values that have one learning rate. Rate is how far a unit of gradient moves
// them.
type Part struct {
	Range
	Rate float32
}

// Onto carries a path (kintsugi.KeepLocal) over from the version of from to the version of to,
// which is the same or a later one, on a line that keeps the line of from. There the path is one
// push. In shards that were not restored, it stays the sum of its gradients. In the ranges of
// restored, these gradients began at other parameters. There the push becomes (base - end) / Rate:
// the gradient that leads from base, the parameters of to, to end, where the path has arrived. base
// and end have Config.Values values, and parts do not overlap. Gradients on other versions stay in
// the queue, but are of no use on the new line.
//
// Onto returns the id of the push, or false if there is no path or the path must not be used.
func (q *Queue) Onto(from, to kintsugi.PushID, restored []Part, base, end []float32) (kintsugi.PushID, bool) {
	if q.astray || slices.ContainsFunc(restored, func(p Part) bool { return p.Rate == 0 }) {
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
	for _, p := range restored {
		for i := p.Lo; i < p.Hi; i++ {
			path.Values[i] = (base[i] - end[i]) / p.Rate
		}
	}
	q.list = append(others, *path)
	return to, true
}

// join adds a later part of the same path to g.
func (g *Gradient) join(after *Gradient) {
	n := float64(g.Merged + after.Merged)
	part := float64(after.Merged) / n
	g.Loss += (after.Loss - g.Loss) * part
	g.examples += after.examples
	g.Merged, g.Moved = g.Merged+after.Merged, g.Moved || after.Moved
	for i, v := range after.Values {
		g.Values[i] += v
	}
}

// Back puts back gradients that could not be offered. Nothing may have been kept since Take.
func (q *Queue) Back(list []Gradient) {
	q.list = append(q.list, list...)
	for _, g := range list {
		q.kept += uint64(g.Merged)
	}
}

// Uphill reports whether a step along -g would probably raise the loss. fresh is a gradient on
// newer parameters than those of g; a negative dot product of the two predicts that.
func (g *Gradient) Uphill(fresh []float32) bool {
	dot := 0.0
	for i, v := range g.Values {
		dot += float64(v) * float64(fresh[i])
	}
	return dot < 0
}
