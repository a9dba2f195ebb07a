package sim

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// checkAdopted checks the values with which a shard begins a line that keeps an earlier one. When
// all shards have begun the line, the oracle continues from their values.
func (c *Cluster) checkAdopted(r *replica, step kintsugi.Step) {
	v := r.t.view
	b := c.oracle.begun[v.Line]
	if b == nil {
		b = &beginning{
			step: step, kept: c.oracle.before(v), keeps: v.Keeps, values: make([]uint64, len(c.layout.Chunks)),
			have: make(map[kintsugi.ShardID]bool), saved: make(map[kintsugi.ShardID][]kintsugi.Step),
		}
		c.oracle.begun[v.Line] = b
	}
	if b.step != step || b.have[r.id] {
		c.fail(sameSets, "shard %d begins line %d at step %d, others at %d; again: %v", r.id, v.Line, step, b.step, b.have[r.id])
		return
	}
	values := r.versions.current.values
	if r.standing == kintsugi.Kept {
		c.checkKept(b, r, values)
	} else {
		b.saved[r.id] = r.from
		if r.fell {
			c.checkFellBack(r, values)
		} else {
			c.checkCameBack(r, values)
		}
	}
	if c.violation != nil {
		return
	}
	b.have[r.id] = true
	copy(b.values[r.chunks.Lo:r.chunks.Hi], values)
	if len(b.have) == len(c.shards) {
		c.begin(v.Line, b)
	}
}

// checkKept checks that a shard that was kept has exactly the values that it had on the line
// before.
func (c *Cluster) checkKept(b *beginning, r *replica, values []uint64) {
	h := c.oracle.lines[r.origin]
	if h == nil { // not every shard has begun that line: a shard died meanwhile, or all of them before
		had := c.oracle.begun[r.origin]
		if b.step != had.step {
			c.fail(notRewound, "line %d begins at step %d, shard %d has begun at step %d", r.t.view.Line, b.step, r.id, had.step)
		}
		if want := had.values[r.chunks.Lo:r.chunks.Hi]; !slices.Equal(values, want) {
			c.fail(untouched, "shard %d has %x at step %d, want %x", r.id, values, b.step, want)
		}
		return
	}
	if b.step == h.newest()+1 && r.newest != nil && r.newest.Step == b.step {
		h.release(*r.newest, c.pushed, c.members) // all kept shards have applied the step, but its conductor died before it could report it
	}
	want := h.versions[len(h.versions)-1][r.chunks.Lo:r.chunks.Hi]
	switch {
	case b.step != h.newest():
		c.fail(notRewound, "line %d begins at step %d, line %d ended at %d", r.t.view.Line, b.step, r.origin, h.newest())
	case !slices.Equal(values, want):
		c.fail(untouched, "shard %d has %x at step %d, want %x", r.id, values, b.step, want)
	case r.newest != nil && r.newest.Step == b.step && !same(*r.newest, h.steps[len(h.steps)-1]):
		c.fail(sameSets, "shard %d has made step %d of %v, the others of %v", r.id, b.step, r.newest.Counted, h.steps[len(h.steps)-1].Counted)
	}
}

// checkCameBack checks that a lost shard has values that were saved, of the versions that are
// reported.
func (c *Cluster) checkCameBack(r *replica, values []uint64) {
	c.partials++
	for i, value := range values {
		id := r.chunks.Lo + kintsugi.ChunkID(i)
		was := slices.ContainsFunc(c.store.saved[id], func(x savedChunk) bool {
			return x.line < r.t.view.Line && x.step == r.from[i] && x.value == value
		})
		if !was && (r.from[i] != 0 || value != c.oracle.initial[id]) {
			c.fail(asSaved, "chunk %d came back as %x of step %d, which nobody has saved", id, value, r.from[i])
		}
	}
}

// mostBehind is how many steps a replica after the next may be behind when a line begins: two that
// were released, and one whose release was not reported.
const mostBehind = 3

// checkFellBack checks that a lost shard has a version of the line that it was copied on, and none
// that is too new.
func (c *Cluster) checkFellBack(r *replica, values []uint64) {
	c.partials++
	if len(values) == 0 {
		return
	}
	if begins := c.oracle.begun[r.t.view.Line].step; c.cfg.NextAnswers && c.oracle.lines[r.origin] != nil && r.from[0]+mostBehind < begins {
		c.fail(nothingLost, "shard %d falls back to step %d when line %d begins at step %d", r.id, r.from[0], r.t.view.Line, begins)
	}
	h := c.oracle.lines[r.origin]
	if h == nil { // not every shard has begun that line: compare with what was copied where this shard began it
		if had := c.oracle.begun[r.origin]; !slices.Equal(values, had.values[r.chunks.Lo:r.chunks.Hi]) {
			c.fail(asSaved, "shard %d came back as %x of step %d, which line %d has not begun with", r.id, values, r.from[0], r.origin)
		}
		return
	}
	if r.from[0] > h.newest() {
		return // no conductor has reported this step; the check of the heads that are kept covers it
	}
	c.wants(asSaved, r.origin, r.from[0], r.chunks, values, "a copy")
}

// begin begins a line that every shard has adopted. Pushes that the lines before have counted must
// not be counted again; if no shard was kept, this concerns only the steps up to the one at which
// the line begins.
func (c *Cluster) begin(line kintsugi.Line, b *beginning) {
	c.oracle.begin(line, b.step, b.values)
	h := c.oracle.lines[line]
	for k, step := range b.kept.batches {
		if step <= b.step {
			h.batches[k] = step
		}
	}
}

// before returns the history of the line that v continues: the newest line that has begun.
func (o *oracle) before(v *kintsugi.View) *history {
	for line := v.Line - 1; line > 0; line-- {
		if h := o.lines[line]; h != nil {
			return h
		}
	}
	return nil
}

// checkPartial checks the report of a shard that came back alone.
func (c *Cluster) checkPartial(x *conducting, e kintsugi.PartialEvent) {
	b := c.oracle.begun[x.view.Line]
	if b == nil || len(b.have) != len(c.shards) || e.Step != b.step || e.Line != x.view.Line {
		c.fail(toldTheTruth, "%s tells of a partial restore that was not: %+v", x.p.name, e)
		return
	}
	want := kintsugi.PartialEvent{Line: e.Line, Step: b.step, Shard: e.Shard, Oldest: b.step}
	for _, s := range b.saved[e.Shard] {
		want.Chunks++
		want.Oldest = min(want.Oldest, s)
		want.Age += uint64(b.step - min(s, b.step))
	}
	if e != want {
		c.fail(toldTheTruth, "%s tells of %+v, it was %+v", x.p.name, e, want)
	}
}
