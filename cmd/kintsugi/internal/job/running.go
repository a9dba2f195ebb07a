package job

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/server"
)

// running is the running checkpoint of one shard, on the server that holds the shard. Like the
// shard, it outlives views.
type running struct {
	mu     sync.Mutex   // of two saves of one shard, the later waits
	writer *ckpt.Writer // of the newest view with a save; nil: none, or a save failed
	view   kintsugi.ViewNumber
}

// runningOf returns the running checkpoint of a shard.
func (c *Checkpoints) runningOf(id kintsugi.ShardID) *running {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = make(map[kintsugi.ShardID]*running)
	}
	if c.running[id] == nil {
		c.running[id] = &running{}
	}
	return c.running[id]
}

// SaveRunning saves chunks of a shard.
func (c *Checkpoints) SaveRunning(ctx context.Context, v kintsugi.View, s server.Shard, chunks []kintsugi.ChunkID) (server.Ran, error) {
	report, err := c.write(ctx, v, &s, chunks)
	if err != nil {
		return server.Ran{}, err
	}
	c.tidy(v.Run, &s)
	ran := server.Ran{Manifest: report.File, Bytes: uint64(report.Written), Kept: make(map[kintsugi.ChunkID]server.Kept, len(report.Kept))}
	for id, k := range report.Kept {
		ran.Kept[id] = server.Kept(k)
	}
	return ran, nil
}

// open returns a writer for a shard. It finds what earlier lives of the shard have saved on the
// line.
func (c *Checkpoints) open(v kintsugi.View, s *server.Shard) (*ckpt.Writer, error) {
	cfg := ckpt.WriterConfig{Layout: c.Problem.Layout, Rule: s.Rule, Shard: s.ID, Range: s.Chunks, Line: s.Line, Fence: v.Fence, Run: v.Run}
	if knobs := c.Settings.Protects().Running; knobs != nil {
		cfg.Increments = knobs.increments()
	}
	return ckpt.OpenWriter(c.FS, c.Dir, cfg)
}

// write saves chunks of a shard; nil means all chunks. If chunks are saved every few steps, the
// writer is kept: opening a new one would read what has been saved.
func (c *Checkpoints) write(ctx context.Context, v kintsugi.View, s *server.Shard, chunks []kintsugi.ChunkID) (report ckpt.SaveReport, err error) {
	r := c.runningOf(s.ID)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writer == nil || r.view != v.Number {
		r.writer, err = c.open(v, s)
		if errors.Is(err, ckpt.ErrUnclaimed) {
			if err = c.retake(v.Run, err); err == nil {
				r.writer, err = c.open(v, s)
			}
		}
		if err != nil {
			r.writer = nil
			return report, err
		}
		r.view = v.Number
	}
	snapshot := ckpt.Snapshot{Step: s.Step, Chunks: chunks, Load: c.flat(s).Load}
	if s.Saved != nil {
		snapshot.Saved = func(id kintsugi.ChunkID) ckpt.Moving { return ckpt.Moving(s.Saved(id)) }
	}
	report, err = r.writer.Save(ctx, snapshot)
	if err != nil || c.Settings.Protects().Running == nil {
		r.writer = nil
	}
	return report, err
}

// tidy removes data that newer saves have replaced, once in a period, on the server that publishes
// run manifests: only one process may do so.
func (c *Checkpoints) tidy(run string, s *server.Shard) {
	period := s.Step / c.Settings.Protects().Running.Period
	c.mu.Lock()
	before := c.tidied
	c.tidied = period
	c.mu.Unlock()
	if s.ID != 0 || period == before {
		return
	}
	if err := c.compact(run); err != nil {
		c.Log.Warn("chunks are saved, but older ones were not removed", "err", err)
	}
}

// compact removes data that no checkpoint needs any more. If the place belongs to another run by
// now, it removes nothing.
func (c *Checkpoints) compact(run string) error {
	c.compacting.Lock()
	defer c.compacting.Unlock()
	if err := c.holds(run); err != nil {
		return err
	}
	_, err := c.compactor.Compact(c.FS, c.Dir, c.Settings.CheckpointKeep.Retention)
	return err
}

// LoadRunning fills a shard with the newest saved values of its chunks since the line that the view
// keeps began; chunks that were not saved since then get the values that the line began with. If
// these are damaged or gone, it uses any value that was ever saved, and otherwise the
// initialisation. Any value is better than none: other servers still hold their shards, which would
// be lost too if this server gave up.
func (c *Checkpoints) LoadRunning(ctx context.Context, v kintsugi.View, s *server.Shard) ([]kintsugi.Step, error) {
	if err := c.holds(v.Run); err != nil {
		return nil, err
	}
	lines := ckpt.Lines{First: v.Keeps, Last: v.Line - 1, Run: v.Run}
	flat, err := c.base(ctx, v, s)
	if errors.Is(err, kintsugi.ErrCorrupt) {
		c.Log.Warn("the full checkpoint is damaged or gone; chunks of which nothing else was saved begin again", "manifest", v.Restore, "err", err)
		lines.First = 0
		flat, err = c.initial(s)
	}
	if err != nil {
		return nil, err
	}
	lo, _ := c.Problem.Layout.Span(s.Chunks)
	place := func(i ckpt.ChunkInfo) (ckpt.Arrays, error) {
		if i.Rule != s.Rule {
			return ckpt.Arrays{}, fmt.Errorf("%w: chunk %d was saved with optimizer rule %d, the run has rule %d", kintsugi.ErrOtherModel, i.Chunk, i.Rule, s.Rule)
		}
		if i.Step < flat.Saved[i.Chunk-s.Chunks.Lo] {
			return ckpt.Arrays{}, nil
		}
		if i.Velocity != nil {
			if s.Velocity == nil {
				s.Velocity = make([]float32, len(s.Params))
			}
			copy(s.Velocity[c.Problem.Layout.Chunks[i.Chunk].Lo-lo:], i.Velocity)
		}
		return flat.Place(i)
	}
	report, err := ckpt.RestoreRunning(ctx, c.FS, c.Dir, lines, c.Problem.Layout, s.Chunks, place)
	if err != nil {
		return nil, err
	}
	for _, damage := range report.Skipped {
		c.Log.Warn("passed over damage in the running checkpoint", "err", damage)
	}
	s.Taken = flat.Steps
	return flat.Saved, nil
}
