package server

import (
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// holdSaved makes x, which the shard has loaded, its saved values. saved is their version, by chunk.
// velocity may be nil.
func (r *replica) holdSaved(x *version, velocity []float32, saved []kintsugi.Step) error {
	if r.cfg.Planner == nil {
		return nil
	}
	r.saved = newSaved(r.cfg.Copy, len(saved))
	r.core.Holds(saved)
	return r.takeSaved(x, velocity, saved)
}

// takeSaved makes the whole of x the saved values.
func (r *replica) takeSaved(x *version, velocity []float32, saved []kintsugi.Step) error {
	if x.far == nil {
		return r.saved.begin(r.cfg.Device, x.params, velocity, saved)
	}
	r.saved.array = r.versions.arrays.NewArray()
	return r.copySaved(x, r.all())
}

// savedFor returns the saved values from which a step is to measure distances, nil if it measures
// none.
func (r *replica) savedFor(c kintsugi.Commit) *savedValues {
	if c.Want&kintsugi.WantSaved == 0 {
		return nil
	}
	return r.saved
}

// coast moves a shard that came back, which nobody reads yet, on to the step at which its line
// begins.
func (r *replica) coast(step kintsugi.Step) {
	for i, from := range r.lostAt {
		c := r.cfg.Layout.Chunks[int(r.chunks.Lo)+i]
		lo, hi, x := c.Lo-r.lo, c.Hi-r.lo, r.versions.waiting[0]
		kernels.Coast(x.params[lo:hi], x.params[lo:hi], r.velocity[lo:hi], r.cfg.Copy.steps(from, step))
	}
	r.velocity, r.lostAt = nil, nil
}

// knowsSaved gives saved values to a head that was not the head before, or whose shard an earlier
// life has left. It does not know what was saved, so it treats every chunk as one that was saved
// last when the line began. So each of them is saved soon.
func (r *replica) knowsSaved() {
	// With copies, a shard falls back to the copies instead of the running checkpoint.
	if r.cfg.Planner == nil || r.at > 0 || r.cfg.CopyEvery > 0 {
		return
	}
	began := slices.Repeat([]kintsugi.Step{r.view.RestoreStep}, int(r.chunks.Hi-r.chunks.Lo))
	if r.saved == nil {
		r.saved = newSaved(r.cfg.Copy, len(began))
		r.core.Holds(began)
	}
	if x, _ := r.versions.pin(0); x != nil {
		r.takeSavedMeanwhile(x, began)
	}
}

// takeSavedMeanwhile makes the whole of x, which is pinned and can be read, the saved values, unless
// there are some. It unpins x. On the host it returns before that is done: workers read the version
// and compute meanwhile, and the first step that measures distances waits.
func (r *replica) takeSavedMeanwhile(x *version, saved []kintsugi.Step) {
	take := func() {
		if err := r.takeSaved(x, nil, saved); err != nil {
			r.fail(fmt.Errorf("keep what is saved of shard %d: %w", r.id, err))
		}
		r.versions.unpin(x)
	}
	r.saved.mu.Lock()
	switch {
	case r.saved.held():
		r.saved.mu.Unlock()
		r.versions.unpin(x)
	case x.far != nil:
		r.saved.mu.Unlock()
		take()
	default:
		r.work.Go(func() {
			defer r.saved.mu.Unlock()
			take()
		})
	}
}

// saveRunning saves chunks of the released version for the running checkpoint in the background.
// The version is pinned, and steps go on at once.
func (r *replica) saveRunning(run shard.Run) {
	x, _ := r.versions.pin(run.Step)
	chunks := make([]kintsugi.ChunkID, len(run.Chunks))
	for i, c := range run.Chunks {
		chunks[i] = r.chunks.Lo + c
	}
	bank, err := r.versions.pinWhole(x)
	s := r.shard(x)
	r.saves.Go(func() {
		r.cfg.Enter(Saving)
		start := time.Now()
		m := kintsugi.Saved{Shard: r.id, Step: run.Step, Running: true, Chunks: uint32(len(chunks))}
		var ran Ran
		if err == nil {
			err = s.fetch(x)
		}
		if err == nil {
			ran, err = r.cfg.SaveRunning(r.ctx, r.view, s, chunks)
		}
		if err != nil {
			m.Err = err.Error()
			r.log.Error("save for the running checkpoint", "step", run.Step, "err", err)
		} else {
			m.Manifest, m.Bytes = ran.Manifest, ran.Bytes
			r.durable(x, chunks, ran.Kept)
		}
		r.versions.unpinWhole(x, bank)
		m.Took = time.Since(start)
		r.post(func() { r.core.Ran(m) })
	})
}

// durable makes the values of chunks the saved values; of chunks that were not saved exactly, it
// takes those in kept.
func (r *replica) durable(x *version, chunks []kintsugi.ChunkID, kept map[kintsugi.ChunkID]Kept) {
	if r.saved == nil {
		return
	}
	if err := r.keep(x, chunks, kept); err != nil {
		r.fail(fmt.Errorf("keep what is saved of shard %d: %w", r.id, err))
	}
}

func (r *replica) keep(x *version, chunks []kintsugi.ChunkID, kept map[kintsugi.ChunkID]Kept) error {
	if x.far != nil {
		return r.copySaved(x, chunks)
	}
	for _, id := range chunks {
		c := r.cfg.Layout.Chunks[id]
		k, ok := kept[id]
		if !ok {
			k.Params = x.params[c.Lo-r.lo : c.Hi-r.lo]
		}
		if err := r.saved.set(r.cfg.Device, int(id-r.chunks.Lo), c.Lo-r.lo, c.Hi-r.lo, k, x.step); err != nil {
			return err
		}
	}
	return nil
}

// kept returns what is saved of a chunk.
func (r *replica) kept(id kintsugi.ChunkID) Kept {
	c := r.cfg.Layout.Chunks[id]
	return r.saved.get(c.Lo-r.lo, c.Hi-r.lo)
}

// all returns the chunks of the shard.
func (r *replica) all() []kintsugi.ChunkID {
	var list []kintsugi.ChunkID
	for id := r.chunks.Lo; id < r.chunks.Hi; id++ {
		list = append(list, id)
	}
	return list
}

// tellSums logs checksums of versions. They show that what has outlived a line is the same before
// and after.
func (r *replica) tellSums(what string, versions ...*version) {
	for _, x := range versions {
		if err := x.fetchState(); err != nil {
			r.fail(fmt.Errorf("shard %d: %w", r.id, err))
			return
		}
		sum := transport.Checksum(kernels.Bytes(x.params))
		for _, state := range x.arrays() {
			sum = sum<<1 ^ sum>>31 ^ transport.Checksum(kernels.Bytes(state))
		}
		r.log.Info(what, "line", r.view.Line, "step", x.step, "sum", sum)
	}
}
