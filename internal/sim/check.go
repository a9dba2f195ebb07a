package sim

import (
	"errors"
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// The promises: the texts that name a violation.
const (
	countedOnce    = "a gradient is counted at most once"
	sameSets       = "every shard and every conductor has the same steps"
	oneStepApart   = "shards never differ by more than one step"
	releasedStays  = "a released version is what its steps make of it, and stays so"
	oneVersion     = "readers assemble one version"
	wholeManifest  = "a manifest names whole saves of one step and line"
	readable       = "nothing that was published is unreadable"
	movesOn        = "training moves on when faults stop"
	changesNothing = "a superseded conductor changes nothing"
	toldTheTruth   = "what a worker is told is true"
	heldBytes      = "a push is held until its step is released"
	obeysKnobs     = "a step counts what the knobs allow"
	viewsGrow      = "views, lines and fences only grow"
	untouched      = "a partial restore leaves what survives as it is"
	foundWhole     = "what a server finds outside of itself is the newest step or the one before, whole"
	asSaved        = "what a partial restore gives back was saved"
	notRewound     = "a partial restore takes no step back"
	notAtFault     = "no error where the world is at fault"
	nothingLost    = "no released step is lost while a replica of its shard lives that has it"
	keptOnce       = "a kept gradient counts at most once, on its line or one that keeps it"
	keptBounded    = "what a worker keeps in an outage is bounded"
	inItsView      = "a replica obeys those before it in its view"
	headsCame      = "a worker is admitted when no head is in an earlier view"
)

// checkAdmitted checks that no head that a worker has joined is in a view before the worker's. It
// might still read what the worker wrote in that view, and the worker writes there again.
func (c *Cluster) checkAdmitted(s *session) {
	for i := range s.view.Chains {
		life := c.lives[s.view.Head(kintsugi.ShardID(i)).Incarnation]
		if life != nil && !life.dead && life.tenure != nil && life.tenure.view.Number < s.view.Number {
			c.fail(headsCame, "worker/%d is admitted in view %d, and server/%d is in view %d", s.h.slot, s.view.Number, life.member.Server, life.tenure.view.Number)
		}
	}
}

// checkView checks a new view that counts, and begins its line.
func (c *Cluster) checkView(v kintsugi.View) {
	c.say("view %d on line %d, fence %d, chains %v: %s", v.Number, v.Line, v.Fence, v.Chains, v.Reason)
	for i, chain := range v.Chains {
		if v.Replicas <= 1 && int(chain[0]) != i {
			c.moved++
		}
	}
	long := func(chain []kintsugi.ServerID) bool { return len(chain) > 1 }
	if before := c.registry.before; before != nil && before.Replicas <= 1 && v.Continues && (handedOver(*before, v) || slices.ContainsFunc(v.Chains, long)) {
		c.checkGoesOn(*before, v)
		return
	}
	if before := c.registry.before; before != nil && before.Replicas > 1 {
		if v.Line == before.Line {
			c.checkGoesOn(*before, v)
			return
		}
		if v.Replicas == before.Replicas {
			c.checkLineIsOver(*before)
		} else if v.Keeps == 0 || len(v.Lost) > 0 {
			c.fail(nothingLost, "another number of replicas loses shards %v, view %+v", v.Lost, v)
		}
	}
	for line := range c.oracle.lines {
		if line > v.Line || line == v.Line && !v.Continues {
			c.fail(viewsGrow, "view %d is on line %d after line %d", v.Number, v.Line, line)
		}
	}
	base := c.oracle.initial
	if v.Restore != "" {
		m := c.store.run(v.Restore)
		if m == nil || m.step != v.RestoreStep {
			c.fail(readable, "view %d restores step %d from %q, which is not there", v.Number, v.RestoreStep, v.Restore)
			return
		}
		base = c.oracle.version(m.line, m.step)
	}
	if v.Continues {
		if c.oracle.lines[v.Line] == nil && c.oracle.begun[v.Line] == nil { // if some shards have begun a line, the others will begin it too
			c.fail(viewsGrow, "view %d goes on with line %d, which has not begun", v.Number, v.Line)
		}
		return
	}
	if v.Keeps != 0 { // the line begins when its shards have agreed where
		return
	}
	c.oracle.begin(v.Line, v.RestoreStep, base)
}

// wants compares the values of a shard with those of the oracle.
func (c *Cluster) wants(promise string, line kintsugi.Line, step kintsugi.Step, chunks kintsugi.ChunkRange, values []uint64, who string) {
	want := c.oracle.version(line, step)
	switch {
	case want == nil:
		c.fail(promise, "%s: version %d of line %d was never released", who, step, line)
	case !slices.Equal(values, want[chunks.Lo:chunks.Hi]):
		c.fail(promise, "%s: version %d of line %d is %x, want %x", who, step, line, values, want[chunks.Lo:chunks.Hi])
	}
}

func (c *Cluster) checkLoaded(r *replica, x *version) {
	c.wants(readable, r.t.view.Line, x.step, r.chunks, x.values, "loading")
}

// checkCommit checks a commit that a conductor sends to a shard.
func (c *Cluster) checkCommit(x *conducting, m kintsugi.Commit) {
	if !slices.IsSortedFunc(m.Counted, func(a, b kintsugi.Weighted) int { return a.Push.Compare(b.Push) }) {
		c.fail(sameSets, "step %d counts %v: not in order", m.Step, m.Counted)
	}
	if m.Decided != x.fence {
		return
	}
	k := c.cfg.Consistency
	if n := len(m.Counted); n == 0 || (k.Quota > 0 && n > k.Quota) {
		c.fail(obeysKnobs, "step %d counts %d gradients, the quota is %d", m.Step, n, k.Quota)
	}
	total := 0.0
	each := make(map[kintsugi.Slot]int)
	for _, w := range m.Counted {
		tau := m.Step - 1 - w.Push.Version
		want := 1.0
		if k.Scale == agg.Mean {
			want = float64(examplesOf(w.Push))
		}
		total += want
		if norm := math.Sqrt(c.cfg.squaredNormOf(w.Push)); k.ClipNorm > 0 && norm > k.ClipNorm {
			want *= k.ClipNorm / norm
		}
		kept := c.offered[w.Push].kept
		if local := kept > 0 && k.Keep == kintsugi.KeepLocal; local {
			want *= c.pathPart(w.Weight/float32(want), len(m.Counted))
		} else if k.Discount || kept > 0 && k.Keep == kintsugi.KeepDecay {
			want /= float64(1 + tau)
		}
		if kept > 0 && k.Keep == kintsugi.KeepSum {
			want *= float64(kept) * 0.1
		}
		each[w.Push.Slot]++
		if math.Abs(float64(w.Weight)-float64(float32(want))) > 1e-6*float64(w.Weight)*float64(min(1, kept)) {
			c.fail(obeysKnobs, "step %d weighs %v with %v, want %v", m.Step, w.Push, w.Weight, want)
		}
		if w.Push.Version >= m.Step || (k.Late == agg.Drop && tau > 0) || (k.Staleness != kintsugi.Infinite && tau > kintsugi.Step(k.Staleness)) {
			c.fail(obeysKnobs, "step %d counts %v, which is %d steps old", m.Step, w.Push, tau)
		}
		if each[w.Push.Slot] > max(1, k.PerWorker) {
			c.fail(obeysKnobs, "step %d counts %d gradients of worker/%d", m.Step, each[w.Push.Slot], w.Push.Slot)
		}
	}
	scale := float32(1)
	if k.Scale == agg.Mean {
		scale = float32(1 / total)
	}
	if m.Scale != scale {
		c.fail(obeysKnobs, "step %d is scaled by %v, want %v", m.Step, m.Scale, scale)
	}
}

// pathPart returns the correct weight of a worker's path, in a step that counts the given number of
// gradients, that is nearest to its actual weight. Times the step's share of the learning rate, the
// weight is 1/n in a run of n workers; only the conductor knows n.
func (c *Cluster) pathPart(is float32, counted int) (nearest float64) {
	k := c.cfg.Consistency
	for n := 1; n <= c.cfg.Workers; n++ {
		part := 1 / float64(n) / k.RatePart(counted, n)
		if k.Scale == agg.Mean {
			part *= float64(counted)
		}
		if math.Abs(part-float64(is)) < math.Abs(nearest-float64(is)) {
			nearest = part
		}
	}
	return nearest
}

// checkStep checks a step that a conductor has released.
func (c *Cluster) checkStep(x *conducting, e kintsugi.StepEvent) {
	if x.done || (x.told != 0 && e.Step != x.told+1) {
		c.fail(sameSets, "%s releases step %d after step %d, done: %v", x.p.name, e.Step, x.told, x.done)
	}
	if x.held {
		c.fail(standsStill, "%s releases step %d after its word", x.p.name, e.Step)
	}
	x.told = e.Step
	m, h := x.commits[e.Step], c.oracle.lines[e.Line]
	if !slices.EqualFunc(m.Counted, e.Counted, func(w kintsugi.Weighted, p kintsugi.PushID) bool { return w.Push == p }) {
		c.fail(sameSets, "%s says that step %d counts %v and has committed %v", x.p.name, e.Step, e.Counted, m.Counted)
		return
	}
	if e.Step <= h.newest() {
		if was := h.steps[e.Step-h.base-1]; !same(was, m) {
			c.fail(sameSets, "step %d of line %d is released with %v and with %v", e.Step, e.Line, was.Counted, m.Counted)
		}
		return
	}
	if e.Step != h.newest()+1 {
		c.fail(sameSets, "%s releases step %d of line %d, which stands at %d", x.p.name, e.Step, e.Line, h.newest())
		return
	}
	counts := make(map[batch]bool)
	for _, w := range m.Counted {
		p := w.Push
		if before, ok := h.counted[p]; ok {
			c.fail(countedOnce, "%v@%d is counted in step %d and in step %d", p, p.Incarnation, before, e.Step)
			return
		}
		promise := countedOnce
		if x, kept := c.offered[p]; kept {
			promise = keptOnce
			c.outages.Counted += len(c.members(p))
			if !c.goesOn(x.of, e.Line) {
				c.fail(promise, "step %d of line %d counts %v, which is made of %+v", e.Step, e.Line, p, x.of)
				return
			}
		}
		for _, id := range c.members(p) {
			b := batch{id.Slot, id.Version, id.Sequence}
			if before, ok := h.batches[b]; ok {
				c.fail(promise, "%v@%d is counted in step %d, the same of an earlier life or push in step %d", id, id.Incarnation, e.Step, before)
				return
			}
			if counts[b] {
				c.fail(promise, "%v@%d is counted twice in step %d, the second time in %v", id, id.Incarnation, e.Step, p)
				return
			}
			counts[b] = true
		}
		if p.Line != e.Line || p.Version < h.base || p.Version > h.newest() {
			c.fail(sameSets, "step %d of line %d counts %v of line %d", e.Step, e.Line, p, p.Line)
			return
		}
		if c.refused[p] {
			c.fail(toldTheTruth, "step %d counts %v@%d, which was refused for good", e.Step, p, p.Incarnation)
			return
		}
		if c.returned[p] {
			c.fail(conserved, "step %d counts %v@%d, and what it brings was taken back", e.Step, p, p.Incarnation)
			return
		}
	}
	h.release(m, c.pushed, c.members)
	c.spendOutage(e.Step)
}

func (c *Cluster) checkDone(x *conducting, e kintsugi.Done) {
	if x.done || (e.Step != c.cfg.Steps && !c.stopped) {
		c.fail(sameSets, "%s says done at step %d of %d, again: %v", x.p.name, e.Step, c.cfg.Steps, x.done)
	}
	x.done = true
	if x.view.Number == c.registry.view.Number {
		c.finished = x.view.Number
	}
}

// checkObeys checks that a conductor with an old fence is not obeyed.
func (c *Cluster) checkObeys(r *replica, s sealed, ready shard.Ready) {
	switch s.message.(type) {
	case kintsugi.Take, kintsugi.Done: // Take is how a new conductor comes, and Done has no effect
		return
	}
	if s.from.fence >= r.promised && s.from.view.Line == r.t.view.Line {
		return
	}
	if len(ready.Free) > 0 || ready.Publish != nil || ready.Apply != nil || ready.Save != nil || len(ready.Replies) > 0 {
		c.fail(changesNothing, "%T under fence %d of line %d changes shard %d, which has promised %d on line %d",
			s.message, s.from.fence, s.from.view.Line, r.id, r.promised, r.t.view.Line)
	}
}

// checkFree checks that no push is freed that an unreleased step needs.
func (c *Cluster) checkFree(r *replica, p kintsugi.PushID, publish *kintsugi.Step) {
	names := func(m *kintsugi.Commit) bool {
		if m == nil || m.Step <= r.released || (publish != nil && *publish >= m.Step) || r.versions.n == 0 {
			return false
		}
		if h := r.heard; h != nil && h.Step == m.Step && h.Decided > m.Decided {
			return false // the step was decided anew, so what it counted before is not needed
		}
		return slices.ContainsFunc(m.Counted, func(w kintsugi.Weighted) bool { return w.Push == p })
	}
	if h := r.held[p]; h != nil && h.left > 0 {
		return // the push was sent again in a later view, incompletely: the step has its bytes already
	}
	if names(r.pending) || names(r.newest) {
		c.fail(heldBytes, "shard %d frees %v@%d, which an unreleased step counts", r.id, p, p.Incarnation)
	}
}

// checkOperand checks that the bytes of a counted push are there.
func (c *Cluster) checkOperand(r *replica, p kintsugi.PushID, h *held) {
	if r.versions.n > 0 && (h == nil || h.left > 0) {
		c.fail(heldBytes, "shard %d applies %v@%d without its bytes", r.id, p, p.Incarnation)
	}
}

// checkPublish checks a version that may be read from now on.
func (c *Cluster) checkPublish(r *replica, step kintsugi.Step) {
	if r.newest == nil || r.versions.next == nil || step != r.released+1 || r.reached != step {
		c.fail(sameSets, "shard %d publishes %d, has released %d and applied %d", r.id, step, r.released, r.reached)
		return
	}
	r.released = step
	h := c.oracle.lines[r.t.view.Line]
	if step > h.newest() {
		c.fail(sameSets, "shard %d publishes version %d of line %d, which is released up to %d", r.id, step, r.t.view.Line, h.newest())
		return
	}
	if was := h.steps[step-h.base-1]; !same(was, *r.newest) {
		c.fail(sameSets, "step %d counts %v on shard %d and %v elsewhere", step, r.newest.Counted, r.id, was.Counted)
		return
	}
	c.wants(releasedStays, r.t.view.Line, step, r.chunks, r.versions.next.values, "publishing")
}

// checkApart compares the steps of the shards of a view.
func (c *Cluster) checkApart(r *replica) {
	lags := func(r *replica) bool { return c.cfg.NextAnswers && r.core.Behind() } // how far it is behind is checked when a shard falls back to it
	if !r.core.Whole() || lags(r) {
		return
	}
	for _, s := range c.servers {
		if s.dead || s.tenure == nil || s.tenure.view.Number != r.t.view.Number {
			continue
		}
		for _, o := range s.tenure.replicas {
			if o != nil && (c.cfg.Copies > 0 && o.at > 0 || lags(o)) {
				continue // its copies may be many steps old
			}
			if o != nil && o.core.Whole() && o.standing == kintsugi.Settled && r.standing == kintsugi.Settled && (o.reached > r.reached+1 || r.reached > o.reached+1 || o.released > r.reached || r.released > o.reached) {
				c.fail(oneStepApart, "shard %d has applied %d and released %d, shard %d %d and %d", r.id, r.reached, r.released, o.id, o.reached, o.released)
			}
		}
	}
}

// checkManifest checks a published run manifest.
func (c *Cluster) checkManifest(m *manifest) {
	c.say("checkpoint %s is published", m.name)
	c.whole(wholeManifest, m)
}

func (c *Cluster) whole(promise string, m *manifest) {
	if len(m.parts) != len(c.shards) {
		c.fail(promise, "%s has %d parts of %d", m.name, len(m.parts), len(c.shards))
	}
	for i, name := range m.parts {
		x := c.store.parts[name]
		if x == nil || x.line != m.line || x.step != m.step || x.shard != kintsugi.ShardID(i) {
			c.fail(promise, "%s names %q for shard %d: %+v", m.name, name, i, x)
			return
		}
		c.wants(promise, m.line, m.step, x.chunks, x.values, "checkpoint "+name)
	}
}

// checkRead checks a version that a worker has assembled.
func (c *Cluster) checkRead(h *hand, line kintsugi.Line, v kintsugi.Step) {
	for i, chunks := range c.shards {
		if h.session.reads[i] != nil {
			c.wants(oneVersion, line, v, chunks, h.params[chunks.Lo:chunks.Hi], h.name)
		}
	}
}

// checkToldCounted checks a report to a worker that its push was counted.
func (c *Cluster) checkToldCounted(h *hand, m kintsugi.Released, p kintsugi.PushID) {
	if step, ok := c.oracle.lines[p.Line].counted[p]; !ok || step > m.Step {
		c.fail(toldTheTruth, "%s is told that version %d counts %v, which is counted in step %d", h.name, m.Step, p, step)
	}
}

// checkToldRefused checks a report that a push is too late because of a newer version.
func (c *Cluster) checkToldRefused(m kintsugi.Refused) {
	if m.Step <= m.Push.Version {
		return // the worker tries again: the sender may be superseded and not know the newer version
	}
	if step, ok := c.oracle.lines[m.Push.Line].counted[m.Push]; ok {
		c.fail(toldTheTruth, "%v@%d is refused (%s) and counted in step %d", m.Push, m.Push.Incarnation, m.Reason, step)
	}
	c.refused[m.Push] = true
}

func (c *Cluster) checkTurnedAway(h *hand, err error) {
	if !errors.Is(err, kintsugi.ErrFenced) || c.workers[h.slot] == h {
		c.fail(toldTheTruth, "%s is turned away: %v", h.name, err)
	}
}

func (c *Cluster) checkReceived(m kintsugi.Received) {
	if v := c.registry.view; m.View > v.Number {
		c.fail(toldTheTruth, "a push is received in view %d, the newest is %d", m.View, v.Number)
	}
}

// checkEnd checks, at the end, everything that must still exist.
func (c *Cluster) checkEnd() {
	for _, m := range c.store.runs {
		c.whole(readable, m)
	}
	for _, s := range c.servers {
		if s.dead || s.tenure == nil || s.tenure.view.Number != c.finished {
			continue
		}
		for _, r := range s.tenure.replicas {
			if r != nil && r.versions.current != nil && (c.cfg.Copies == 0 || r.core.Whole()) { // otherwise it may have a copy that is not released yet
				c.wants(releasedStays, s.tenure.view.Line, r.released, r.chunks, r.versions.current.values, "at the end")
			}
		}
	}
}
