package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// frame is one chunk of a push.
type frame struct {
	shard kintsugi.ShardID
	push  kintsugi.PushID
	chunk kintsugi.ChunkID
	value uint64
	first bool // of the push, on its stream

	damaged bool // its checksum does not match
}

// readRequest asks for a released version of at least atLeast or, with unreleased, for that one before
// it is released.
type readRequest struct {
	line       kintsugi.Line
	atLeast    kintsugi.Step
	unreleased bool
}

// answerFrame is one chunk of a version. Its value is in the memory of the version until the frame
// has arrived.
type answerFrame struct {
	line    kintsugi.Line
	version kintsugi.Step
	chunk   kintsugi.ChunkID
	r       *replica
	from    *version
}

func (f *answerFrame) value() uint64 { return f.from.values[f.chunk-f.r.chunks.Lo] }
func (f *answerFrame) done()         { f.r.versions.unpin(f.from) }

// sealed is a control message together with its sender.
type sealed struct {
	from    *conducting
	message kintsugi.ControlMessage
}

// replica is the shell of one shard in one view.
type replica struct {
	t        *tenure
	c        *Cluster
	id       kintsugi.ShardID
	chunks   kintsugi.ChunkRange
	core     *shard.Replica
	held     map[kintsugi.PushID]*held
	spare    []*held
	chain    []kintsugi.ServerID
	at       int      // in chain; 0: the head
	before   *end     // to the replica before; nil: not connected
	after    *end     // of the replica after; nil: not connected
	sum      []uint64 // of the last applied step
	given    []uint64 // the sum to apply the next step from; of a head: nil
	later    []func() // messages of the replica before that wait until a step is applied
	hearing  []*end   // streams that listen to it, if it is not the head
	replies  []*end   // open streams whose conductors have taken the shard under the promised fence
	versions *versions
	outside  *shm.Memory // nil: the shard is only in the process
	applying bool
	sent     struct { // to the replica after, before the step was applied here
		to     *end
		commit kintsugi.Commit
	}

	// State of the checkers.
	promised kintsugi.Fence   // largest fence of a Take
	pending  *kintsugi.Commit // commit that is being applied
	newest   *kintsugi.Commit // last applied commit
	heard    *kintsugi.Commit // last obeyed commit
	released kintsugi.Step
	reached  kintsugi.Step // last applied step
	standing kintsugi.Standing
	from     []kintsugi.Step // if Lost: the versions of its chunks
	fell     bool            // if Lost: it has copies of line origin
	origin   kintsugi.Line   // if Kept: the line on which it got its values
}

// held is the receive buffer of one push.
type held struct {
	values []uint64
	have   []bool
	left   int
	landed bool
}

func newReplica(t *tenure, id kintsugi.ShardID, values []uint64, step kintsugi.Step) *replica {
	r := emptyReplica(t, id, step, false)
	first := r.versions.take(step)
	copy(first.values, values)
	r.versions.publish(first)
	r.c.checkLoaded(r, first)
	r.beginOutside(first)
	return r
}

func emptyReplica(t *tenure, id kintsugi.ShardID, step kintsugi.Step, lacks bool) *replica {
	chunks := t.server.c.shards[id]
	n := int(chunks.Hi - chunks.Lo)
	r := &replica{
		t: t, c: t.server.c, id: id, chunks: chunks, held: make(map[kintsugi.PushID]*held),
		core:     shard.New(id, n, t.view.Line, t.view.Number, step),
		versions: &versions{n: n, overwrite: t.server.c.cfg.plant == overwritePinned},
		released: step, reached: step, chain: t.view.Chains[id],
	}
	r.at = slices.Index(r.chain, t.server.member.Server)
	r.core.CopyEvery(r.c.cfg.Copies)
	r.core.Hold(r.c.cfg.Consistency.Held())
	if lacks {
		r.core.Lack()
	}
	r.core.Place(r.at > 0, r.awaits())
	r.nextAnswers()
	r.core.Holds(slices.Repeat([]kintsugi.Step{step}, n))
	return r
}

// nextAnswers makes the next replica answer for the core's chain, if that is so in this run.
func (r *replica) nextAnswers() {
	if r.c.cfg.NextAnswers {
		r.core.NextAnswers(r.at)
	}
}

// lostReplica returns the replica of a shard whose chunks came back from the running checkpoint.
func lostReplica(t *tenure, id kintsugi.ShardID, values []uint64, saved []kintsugi.Step) *replica {
	r := emptyReplica(t, id, 0, false)
	first := r.versions.take(0)
	copy(first.values, values)
	r.versions.aside = []*version{first}
	r.core.Lose(saved)
	r.core.Place(false, r.awaits())
	r.standing, r.from = kintsugi.Lost, saved
	return r
}

// continued returns a replica that continues with the values of old, whose view it has left.
func continued(t *tenure, old *replica) *replica {
	r := &replica{
		t: t, c: old.c, id: old.id, chunks: old.chunks, held: make(map[kintsugi.PushID]*held),
		core: old.core.Continue(t.view.Line, t.view.Number), versions: old.versions,
		released: old.released, reached: old.reached, newest: old.newest, standing: old.standing, from: old.from,
		origin: old.origin, fell: old.fell, chain: t.view.Chains[old.id],
	}
	if r.standing == kintsugi.Settled {
		r.standing, r.origin = kintsugi.Kept, old.t.view.Line
	}
	r.core.Place(false, r.awaits())
	r.nextAnswers()
	r.versions.wait()
	if r.c.cfg.plant == touchedSurvivor && r.standing == kintsugi.Kept {
		if values, _, err := r.c.store.readRunning(t.view, r.chunks); err == nil {
			for _, x := range r.versions.aside {
				copy(x.values, values)
			}
		}
	}
	return r
}

// fallenBack returns the replica that begins a line with the copies of old, or with the version
// that old knows to be released. old followed another replica.
func fallenBack(t *tenure, old *replica) *replica {
	r := &replica{
		t: t, c: old.c, id: old.id, chunks: old.chunks, held: make(map[kintsugi.PushID]*held),
		core: old.core.FallBack(t.view.Line, t.view.Number), versions: old.versions,
		released: old.released, reached: old.reached, standing: kintsugi.Lost, fell: true, origin: old.t.view.Line, chain: t.view.Chains[old.id],
	}
	r.core.Place(false, r.awaits())
	r.nextAnswers()
	if r.c.cfg.Copies == 0 {
		r.versions.next = nil
	}
	r.versions.wait()
	return r
}

// adopt begins the line with the values of the replica.
func (r *replica) adopt(step kintsugi.Step) {
	was := r.versions.adopt(step)
	if r.fell {
		r.from = slices.Repeat([]kintsugi.Step{was}, int(r.chunks.Hi-r.chunks.Lo))
	}
	r.c.say("%s: shard %d begins line %d at step %d (%d)", r.t.server.name, r.id, r.t.view.Line, step, r.standing)
	r.c.checkAdopted(r, step)
	r.released, r.reached, r.standing, r.newest, r.fell = step, step, kintsugi.Settled, nil, false
	r.beginOutside(r.versions.current)
	r.c.after(r.t.server.proc, 0, r.t.server.caughtUp)
}

// control passes a conductor's message to the core.
func (r *replica) control(e *end, s sealed) {
	m := s.message
	if r.c.cfg.plant == forgottenFence {
		m = withFence(m, r.promised)
	}
	if c, ok := m.(kintsugi.Commit); ok && r.c.cfg.plant == appliedTwice && c.Step == r.reached && r.newest != nil && !r.applying && r.versions.next != nil {
		x := r.versions.next
		for i := range x.values {
			x.values[i] = stepOf(x.values[i], &c, func(int) uint64 { return 0 })
		}
	}
	if c, ok := m.(kintsugi.Commit); ok && c.Fence == r.promised {
		r.rollBack(c)
	}
	counts := r.core.Handle(m)
	if c, ok := m.(kintsugi.Commit); ok && counts {
		r.heard = &c
	}
	if take, ok := m.(kintsugi.Take); ok && counts {
		if take.Fence > r.promised {
			r.replies, r.promised = nil, take.Fence
		}
		r.replies = slices.DeleteFunc(r.replies, func(x *end) bool { return x == e || x.closed })
		r.replies = append(r.replies, e)
	}
	ready := r.core.Ready()
	r.c.checkObeys(r, s, ready)
	r.carryOut(ready)
}

func (r *replica) perform() { r.carryOut(r.core.Ready()) }

// carryOut carries out the effects of the core, in field order.
func (r *replica) carryOut(ready shard.Ready) {
	if ready.Withdraw && r.c.cfg.plant != staleOffer {
		r.versions.early = nil
	}
	for _, p := range ready.Free {
		r.c.checkFree(r, p, ready.Publish)
		if h := r.held[p]; h != nil && h.landed && !r.applying {
			r.spare = append(r.spare, h)
		}
		delete(r.held, p)
	}
	if ready.Adopt != nil {
		r.adopt(*ready.Adopt)
	}
	if ready.Publish != nil {
		r.c.say("%s: version %d of shard %d may be read", r.t.server.name, *ready.Publish, r.id)
		r.c.checkPublish(r, *ready.Publish)
		r.versions.publish(nil)
	}
	if ready.Offer {
		r.versions.offer()
	}
	if ready.Apply != nil {
		r.apply(*ready.Apply)
	}
	if ready.Save != nil {
		r.save(*ready.Save)
	}
	if ready.Run != nil {
		r.saveRunning(*ready.Run)
	}
	for _, m := range ready.Down {
		r.hand(m)
	}
	for _, m := range ready.Replies {
		if r.at > 0 && r.before != nil {
			r.before.send(m)
			if _, ok := m.(kintsugi.Stable); ok {
				for _, e := range r.hearing {
					e.send(m)
				}
			}
		}
		for _, e := range r.replies {
			e.send(m)
		}
	}
}

// apply runs the kernel in the background: its inputs must not change until it has ended.
func (r *replica) apply(c kintsugi.Commit) {
	operands := make([]*held, len(c.Counted))
	sum := r.given
	if r.at == 0 {
		sum = nil
		for i, w := range c.Counted {
			operands[i] = r.held[w.Push]
			r.c.checkOperand(r, w.Push, operands[i])
		}
	}
	src := r.versions.current
	src.pins++
	dst := r.versions.take(c.Step)
	r.applying, r.pending = true, &c
	if r.outside != nil {
		r.outside.Begin(uint64(src.step), 0)
	}
	if r.c.cfg.plant == earlyFree {
		for _, h := range operands {
			if h != nil {
				r.spare = append(r.spare, h)
			}
		}
	}
	summed := func() []uint64 {
		if sum == nil {
			sum = make([]uint64, len(dst.values))
			for i := range sum {
				sum[i] = sumOf(&c, func(k int) uint64 { return operands[k].values[i] })
			}
		}
		return sum
	}
	took := r.c.between(r.c.cfg.Kernel/2, 2*r.c.cfg.Kernel)
	if r.at == 0 {
		r.c.summing(r, c, took)
	}
	r.c.after(r.t.server.proc, took/2, func() {
		if !r.t.over && r.c.violation == nil {
			r.ahead(c, summed)
		}
	})
	r.c.after(r.t.server.proc, took, func() {
		if r.t.over || r.c.violation != nil {
			return
		}
		sum = summed()
		for i := range dst.values {
			dst.values[i] = stepFrom(src.values[i], &c, sum[i])
		}
		if r.sum = nil; r.t.view.Replicas > 1 || len(r.chain) > 1 {
			r.sum = sum
		}
		r.versions.unpin(src)
		r.writeOutside(dst, &c, func() { r.appliedTo(dst, c, took) })
	})
}

// appliedTo tells the core that a commit was applied.
func (r *replica) appliedTo(dst *version, c kintsugi.Commit, took time.Duration) {
	if r.t.over || r.c.violation != nil {
		return
	}
	r.applying = false
	r.versions.applied(dst)
	r.newest, r.reached, r.pending = &c, c.Step, nil
	r.c.say("%s: shard %d has applied step %d", r.t.server.name, r.id, c.Step)
	r.core.Applied(c.Decided, productsOf(&c, dst.values), took, 0, 0)
	r.perform()
	r.c.checkApart(r)
	later := r.later
	r.later = nil
	for _, f := range later { // messages that must wait again keep their order
		f()
	}
}

// save writes the released version to the store in the background.
func (r *replica) save(step kintsugi.Step) {
	x := r.versions.current
	if x.step != step {
		r.core.Saved(kintsugi.Saved{Shard: r.id, Step: step, Err: fmt.Sprintf("version %d is not here any more", step)})
		return
	}
	x.pins++
	took := r.c.store.took()
	r.c.after(r.t.server.proc, took, func() {
		p := &part{line: r.t.view.Line, step: step, shard: r.id, chunks: r.chunks, values: append([]uint64(nil), x.values...)}
		r.versions.unpin(x)
		if r.t.over {
			return
		}
		m := kintsugi.Saved{Shard: r.id, Step: step, Bytes: 8, Took: took}
		name, err := r.c.store.write(p, r.t.view.Fence)
		if m.Manifest = name; err != nil {
			m.Err = err.Error()
		}
		r.c.say("%s: shard %d has saved step %d: %s", r.t.server.name, r.id, step, orOK(m.Err))
		r.core.Saved(m)
		r.perform()
	})
}

// anyHalf plans to save a random half of the chunks, since any planner might choose any chunks.
type anyHalf struct {
	c     *Cluster
	saved []kintsugi.Step
}

func (c *Cluster) planner() conductor.Planner {
	if c.cfg.RunEvery == 0 {
		return nil
	}
	return &anyHalf{c: c}
}

func (a *anyHalf) Begin(_ kintsugi.Step, saved []kintsugi.Step)      { a.saved = saved }
func (a *anyHalf) Due(step kintsugi.Step) bool                       { return step%a.c.cfg.RunEvery == 0 }
func (a *anyHalf) Observe(kintsugi.RunEvent)                         {}
func (a *anyHalf) Done(kintsugi.Step, []kintsugi.ChunkID, bool)      {}
func (a *anyHalf) Accessed(kintsugi.ChunkID, uint64)                 {}
func (a *anyHalf) Age(kintsugi.Step, kintsugi.ChunkID) kintsugi.Step { return 0 }

func (a *anyHalf) Plan(kintsugi.Step, []float64) (chosen []kintsugi.ChunkID) {
	for id := range a.saved {
		if a.c.chance(0.5) {
			chosen = append(chosen, kintsugi.ChunkID(id))
		}
	}
	return chosen
}

// saveRunning writes chunks of the released version in the background, one after the other, so that
// a crash may come between any two.
func (r *replica) saveRunning(run shard.Run) {
	x, step := r.versions.current, run.Step
	x.pins++
	r.c.after(r.t.server.proc, r.c.store.took(), func() {
		m := kintsugi.Saved{Shard: r.id, Step: step, Running: true}
		for _, i := range run.Chunks {
			if err := r.c.store.writeChunk(r.chunks.Lo+i, savedChunk{r.t.view.Line, step, x.values[i]}); err != nil {
				m.Err = err.Error()
				break
			}
			m.Chunks++
		}
		r.versions.unpin(x)
		if r.t.over {
			return
		}
		r.core.Ran(m)
		r.perform()
	})
}

func orOK(s string) string {
	if s == "" {
		return "well"
	}
	return s
}

// answer sends a version as soon as there is one that is new enough.
func (r *replica) answer(e *end, q readRequest) {
	if q.line != r.t.view.Line {
		e.close(errOver)
		return
	}
	r.versions.read(q, func(x *version) {
		for i := range x.values {
			x.pins++
			e.send(&answerFrame{line: r.t.view.Line, version: x.step, chunk: r.chunks.Lo + kintsugi.ChunkID(i), r: r, from: x})
		}
		r.versions.unpin(x)
	})
}

// landing is the state of one push stream.
type landing struct {
	r       *replica
	e       *end
	push    kintsugi.PushID
	buffer  *held // nil: its frames are dropped, since the push is already held or was refused
	started bool
}

// land receives one frame.
func (in *landing) land(f *frame) {
	again := in.buffer == nil && f.first
	if !in.started || in.push != f.push || again {
		in.begin(f.push)
	}
	if in.buffer == nil {
		return
	}
	if f.damaged {
		if in.r.held[f.push] == in.buffer { // no later stream has begun it again
			in.r.core.Drop(f.push)
			in.r.perform()
		}
		in.buffer = nil
		in.e.close(kintsugi.ErrCorrupt)
		return
	}
	i := f.chunk - in.r.chunks.Lo
	in.buffer.values[i] = f.value
	if !in.buffer.have[i] {
		in.buffer.have[i] = true
		in.buffer.left--
	}
	if in.buffer.left == 0 {
		in.complete()
	}
}

func (in *landing) begin(p kintsugi.PushID) {
	r := in.r
	in.started, in.push, in.buffer = true, p, nil
	switch verdict, reason := r.core.Begin(p); verdict {
	case shard.Accept:
		in.buffer = r.landingBuffer()
		r.held[p] = in.buffer
	case shard.Have:
		in.received(p)
	case shard.Refuse:
		in.refused(p, reason)
	}
	r.perform()
}

func (in *landing) complete() {
	r, p, buffer := in.r, in.push, in.buffer
	in.buffer = nil
	buffer.landed = true
	if h := r.held[p]; h != nil && h != buffer { // another stream of the worker has begun it again: the first one that is complete becomes the push
		if verdict, _ := r.core.Begin(p); verdict == shard.Accept {
			r.held[p] = buffer
		}
	}
	if ok, reason := r.core.Complete(p); !ok {
		in.refused(p, reason)
	} else {
		in.received(p)
	}
	r.perform()
}

func (in *landing) received(p kintsugi.PushID) {
	in.e.send(kintsugi.Received{Push: p, Shard: in.r.id, View: in.r.t.view.Number})
}

func (in *landing) refused(p kintsugi.PushID, reason string) {
	in.e.send(kintsugi.Refused{Push: p, Step: in.r.core.Awaited(p), Reason: reason})
}

// landingBuffer returns a buffer for one push. It reuses a buffer if possible.
func (r *replica) landingBuffer() *held {
	n := int(r.chunks.Hi - r.chunks.Lo)
	if k := len(r.spare); k > 0 {
		h := r.spare[k-1]
		r.spare = r.spare[:k-1]
		clear(h.have)
		h.left, h.landed = n, false
		return h
	}
	return &held{values: make([]uint64, n), have: make([]bool, n), left: n}
}

// withFence returns m with another fence.
func withFence(m kintsugi.ControlMessage, f kintsugi.Fence) kintsugi.ControlMessage {
	switch m := m.(type) {
	case kintsugi.Members:
		m.Fence = f
		return m
	case kintsugi.Commit:
		m.Fence = f
		return m
	case kintsugi.Released:
		m.Fence = f
		return m
	}
	return m
}

// productsOf computes numbers that stand for the by-products of a step, from what the step wrote. A
// controller can work with them, and they are the same in every replay.
func productsOf(c *kintsugi.Commit, values []uint64) []kintsugi.Products {
	products := make([]kintsugi.Products, len(values))
	if c.Want == 0 {
		return products
	}
	for i, v := range values {
		x := float64(v>>11) / (1 << 53)
		products[i] = kintsugi.Products{SquaredNorm: 0.2 + x, DotDisplacement: 0.02 * (x - 0.8), SquaredDisplacement: 0.01 * (0.2 + x)}
	}
	return products
}
