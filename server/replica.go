package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// replica is the shell of one shard: the core decides, the loop's goroutine owns the core and the table
// of held pushes.
type replica struct {
	loop
	cfg    *Config
	view   kintsugi.View
	id     kintsugi.ShardID
	chunks kintsugi.ChunkRange
	lo     int // first value of the shard in the flat vector
	values int
	log    *slog.Logger
	fail   func(error) // ends the process's service

	core     *shard.Replica
	held     map[kintsugi.PushID]*held
	spare    []*held                            // buffers of freed pushes
	replies  []*outbox[kintsugi.ReplicaMessage] // of the open streams that have taken it under the promised fence
	versions *versions
	applying bool           // the kernel may be reading held pushes, even of a commit that was replaced
	work     sync.WaitGroup // apply and save

	pushed, pulled atomic.Uint64 // bytes, for the run's events
}

// newReplica loads the version that the view starts from.
func newReplica(ctx context.Context, cfg *Config, fail func(error), v kintsugi.View, id kintsugi.ShardID, chunks kintsugi.ChunkRange) (*replica, error) {
	lo, hi := cfg.Layout.Span(chunks)
	rule := cfg.Schedule.Rule
	r := &replica{
		loop: newLoop(ctx), cfg: cfg, view: v, id: id, chunks: chunks, lo: lo, values: hi - lo,
		log:      cfg.Log.With("shard", id),
		fail:     fail,
		held:     make(map[kintsugi.PushID]*held),
		versions: newVersions(cfg.Layout, chunks, kernels.Rule(rule).States()),
	}
	r.versions.keep = cfg.Consistency.Controller != ""
	first := r.versions.take(v.RestoreStep)
	s := Shard{ID: id, Chunks: chunks, Line: v.Line, Step: v.RestoreStep, Rule: rule, Params: first.params, State: first.arrays(rule)}
	if err := cfg.Load(ctx, v, &s); err != nil {
		return nil, fmt.Errorf("load shard %d: %w", id, err)
	}
	first.step = s.Step
	r.versions.publish(first)
	r.core = shard.New(id, int(chunks.Hi-chunks.Lo), v.Line, v.Number, s.Step)
	r.core.Hold(cfg.Consistency.Held())
	return r, nil
}

// arrays returns the arrays of optimizer state that rule has.
func (x *version) arrays(rule kintsugi.Rule) [][]float32 {
	return x.state[:kernels.Rule(rule).States()]
}

func (r *replica) run() {
	r.loop.run(r.perform)
	r.work.Wait()
}

// perform carries out what the core owes.
func (r *replica) perform() {
	ready := r.core.Ready()
	for _, p := range ready.Free {
		if h := r.held[p]; h != nil && h.landed && !r.applying && len(r.spare) < 2*r.cfg.Slots {
			r.spare = append(r.spare, h)
		}
		delete(r.held, p)
	}
	if ready.Publish != nil {
		r.versions.publish(nil)
		r.cfg.Enter(Publishing)
	}
	if ready.Apply != nil {
		r.apply(*ready.Apply)
	}
	if ready.Save != nil {
		r.save(*ready.Save)
	}
	for _, m := range ready.Replies {
		for _, out := range r.replies {
			out.put(m)
		}
	}
	if ready.Done != nil {
		r.log.Info("run is over", "step", ready.Done.Step, "reason", ready.Done.Reason)
	}
}

// apply runs the fused kernel over the shard's chunks, off the loop: gradients of the next step may
// land meanwhile.
func (r *replica) apply(c kintsugi.Commit) {
	start := time.Now()
	counted := make([]*held, len(c.Counted))
	for i, w := range c.Counted {
		counted[i] = r.held[w.Push] // nil: a shard without chunks
	}
	src, _ := r.versions.pin(0, 1)
	var before *version
	if c.Want&kintsugi.WantDotDisplacement != 0 {
		before = r.versions.pinPrevious()
	}
	dst := r.versions.take(c.Step)
	r.applying = true
	r.work.Go(func() {
		r.cfg.Enter(Committing)
		products, err := r.step(c, before, src, dst, counted)
		r.versions.unpin(src)
		if before != nil {
			r.versions.unpin(before)
		}
		if err != nil { // the device is lost, and with it this process: recovery does the rest
			r.versions.discard(dst)
			r.fail(fmt.Errorf("apply step %d to shard %d: %w", c.Step, r.id, err))
			return
		}
		took := time.Since(start)
		r.post(func() {
			r.applying = false
			r.versions.applied(dst)
			r.core.Applied(c.Decided, products, took, r.pushed.Load(), r.pulled.Load())
		})
	})
}

// step applies c to src, writing dst, and returns the by-products of each chunk. before is the version before src,
// nil if it is not known or not needed. Threads take chunks in turn; what a chunk becomes does not depend on which
// thread has it.
func (r *replica) step(c kintsugi.Commit, before, src, dst *version, counted []*held) ([]kintsugi.Products, error) {
	products := make([]kintsugi.Products, r.chunks.Hi-r.chunks.Lo)
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range min(r.cfg.Threads, len(products)) {
		wg.Go(func() {
			k := newKernelStep(c)
			k.Streaming = kernels.Streams(4 * r.values * (len(counted) + 2*(1+k.Rule.States())))
			for {
				i := int(next.Add(1)) - 1
				if i >= len(products) || failed.Load() != nil {
					return
				}
				chunk := r.cfg.Layout.Chunks[int(r.chunks.Lo)+i]
				lo, hi := chunk.Lo-r.lo, chunk.Hi-r.lo
				for j, h := range counted {
					k.Operands[j] = h.operand(i, lo, hi, c.Counted[j].Weight)
				}
				p, err := k.run(r.cfg.Device, before, src, dst, lo, hi)
				if err != nil {
					failed.Store(&err)
					return
				}
				products[i] = p
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return products, nil
}

// kernelStep is one thread's kernel arguments, reused from chunk to chunk.
type kernelStep struct{ kernels.Step }

func newKernelStep(c kintsugi.Commit) *kernelStep {
	o := c.Optimizer
	return &kernelStep{kernels.Step{
		Rule: kernels.Rule(o.Rule),
		Scalars: kernels.Scalars{
			LearningRate: o.LearningRate, Momentum: o.Momentum, Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon,
			WeightDecay: o.WeightDecay, Correction1: o.Correction1, Correction2: o.Correction2,
		},
		Operands:         make([]kernels.Operand, len(c.Counted)),
		Scale:            c.Scale,
		WantDisplacement: c.Want&kintsugi.WantSquaredDisplacement != 0,
	}}
}

// run does the step on the values [lo, hi) of the shard; the operands are set.
func (k *kernelStep) run(d kernels.Device, before, src, dst *version, lo, hi int) (kintsugi.Products, error) {
	if k.WantDot = before != nil; k.WantDot {
		k.Previous = before.params[lo:hi]
	}
	k.Params, k.Next = src.params[lo:hi], dst.params[lo:hi]
	for i := range k.Rule.States() {
		k.State[i], k.NextState[i] = src.state[i][lo:hi], dst.state[i][lo:hi]
	}
	p, err := d.Step(&k.Step)
	return kintsugi.Products{SquaredNorm: p.SquaredNorm, DotDisplacement: p.DotDisplacement, SquaredDisplacement: p.SquaredDisplacement}, err
}

// save writes the released version to the checkpoint in the background: steps go on.
func (r *replica) save(step kintsugi.Step) {
	x, _ := r.versions.pin(step, 1)
	if x == nil || x.step != step {
		if x != nil {
			r.versions.unpin(x)
		}
		r.core.Saved(kintsugi.Saved{Shard: r.id, Step: step, Err: fmt.Sprintf("version %d is not here any more", step)})
		return
	}
	r.work.Go(func() {
		r.cfg.Enter(Saving)
		start := time.Now()
		s := Shard{ID: r.id, Chunks: r.chunks, Line: r.view.Line, Step: step, Rule: r.cfg.Schedule.Rule, Params: x.params, State: x.arrays(r.cfg.Schedule.Rule)}
		name, bytes, err := r.cfg.Save(r.ctx, r.view, s)
		r.versions.unpin(x)
		m := kintsugi.Saved{Shard: r.id, Step: step, Manifest: name, Bytes: bytes, Took: time.Since(start)}
		if err != nil {
			m.Err = err.Error()
			r.log.Error("save", "step", step, "err", err)
		}
		r.post(func() { r.core.Saved(m) })
	})
}
