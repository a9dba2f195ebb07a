package server

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// savedValues are the parameters of a shard as the running checkpoint has them: four bytes for each, which is what it
// costs to know how far the shard is from what its loss would bring back. They outlive views, as the shard does. They
// are float32 because two bytes could not tell what moves slowly from what does not move: the values of bf16 are 2⁻⁸ apart.
type savedValues struct {
	mu     sync.RWMutex // the kernel holds it for a chunk at a time, and so does what it waits for
	values []float32
	array  kernels.Array // in place of values where the shard lives on an accelerator
}

// holdSaved makes what a shard has loaded what is saved of it.
func (r *replica) holdSaved(x *version, saved []kintsugi.Step) error {
	if r.cfg.Planner == nil {
		return nil
	}
	r.saved = &savedValues{}
	r.core.Holds(saved)
	return r.takeSaved(x)
}

// takeSaved takes all of a version as what is saved.
func (r *replica) takeSaved(x *version) error {
	if x.far == nil {
		r.saved.values = slices.Clone(x.params)
		return nil
	}
	r.saved.array = r.versions.arrays.NewArray()
	return r.copySaved(x, r.all())
}

// savedFor returns the saved values that a step is to be measured against, nil for none.
func (r *replica) savedFor(c kintsugi.Commit) *savedValues {
	if c.Want&kintsugi.WantSaved == 0 {
		return nil
	}
	return r.saved
}

// knowsSaved makes a head that was none before, or whose shard an earlier life has left, hold saved values: it does not know them, and takes
// every chunk for one that was not saved since the line began. So each of them is saved soon.
func (r *replica) knowsSaved() {
	if r.cfg.Planner == nil || r.at > 0 {
		return
	}
	if r.saved == nil {
		r.saved = &savedValues{}
		r.core.Holds(slices.Repeat([]kintsugi.Step{r.view.RestoreStep}, int(r.chunks.Hi-r.chunks.Lo)))
	}
	if x, _ := r.versions.pin(0, 1); x != nil {
		if r.saved.values == nil && r.saved.array == nil {
			if err := r.takeSaved(x); err != nil {
				r.fail(fmt.Errorf("keep what is saved of shard %d: %w", r.id, err))
			}
		}
		r.versions.unpin(x)
	}
}

// saveRunning saves chunks of the released version for the running checkpoint in the background: the version is
// pinned, and steps go on at once.
func (r *replica) saveRunning(run shard.Run) {
	x, _ := r.versions.pin(run.Step, 1)
	chunks := make([]kintsugi.ChunkID, len(run.Chunks))
	for i, c := range run.Chunks {
		chunks[i] = r.chunks.Lo + c
	}
	r.saves.Go(func() {
		r.cfg.Enter(Saving)
		start := time.Now()
		m := kintsugi.Saved{Shard: r.id, Step: run.Step, Running: true, Chunks: uint32(len(chunks))}
		err := x.fetchState()
		if err == nil {
			m.Manifest, m.Bytes, err = r.cfg.SaveRunning(r.ctx, r.view, r.shard(x), chunks)
		}
		if err != nil {
			m.Err = err.Error()
			r.log.Error("save for the running checkpoint", "step", run.Step, "err", err)
		} else {
			r.durable(x, chunks)
		}
		r.versions.unpin(x)
		m.Took = time.Since(start)
		r.post(func() { r.core.Ran(m) })
	})
}

// durable takes the values of chunks as what is saved of them.
func (r *replica) durable(x *version, chunks []kintsugi.ChunkID) {
	if r.saved == nil {
		return
	}
	if x.far != nil {
		if err := r.copySaved(x, chunks); err != nil {
			r.fail(fmt.Errorf("keep what is saved of shard %d: %w", r.id, err))
		}
		return
	}
	for _, id := range chunks {
		c := r.cfg.Layout.Chunks[id]
		r.saved.mu.Lock()
		copy(r.saved.values[c.Lo-r.lo:c.Hi-r.lo], x.params[c.Lo-r.lo:c.Hi-r.lo])
		r.saved.mu.Unlock()
	}
}

// all returns the chunks of the shard.
func (r *replica) all() []kintsugi.ChunkID {
	var list []kintsugi.ChunkID
	for id := r.chunks.Lo; id < r.chunks.Hi; id++ {
		list = append(list, id)
	}
	return list
}

// tellSums logs checksums of versions: what has outlived a line must be the same before and after, and this shows it.
func (r *replica) tellSums(what string, versions ...*version) {
	for _, x := range versions {
		if err := x.fetchState(); err != nil {
			r.fail(fmt.Errorf("shard %d: %w", r.id, err))
			return
		}
		sum := transport.Checksum(kernels.Bytes(x.params))
		for _, state := range x.arrays(r.cfg.Schedule.Rule) {
			sum = sum<<1 ^ sum>>31 ^ transport.Checksum(kernels.Bytes(state))
		}
		r.log.Info(what, "line", r.view.Line, "step", x.step, "sum", sum)
	}
}
