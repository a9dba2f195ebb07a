package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/recovery/scar"
	"github.com/kintsugi-ml/kintsugi/server"
)

// running is the running checkpoint of one shard, as the server that holds it sees it: which chunks to save next, and
// what a loss would bring back. It outlives views, as the shard does.
type running struct {
	mu      sync.Mutex // of two saves of one shard the later one waits
	chunks  kintsugi.ChunkRange
	planner *scar.Planner

	// saved are the values of the shard as they were saved last: four bytes for each parameter. Distances to them
	// decide what is saved next.
	saved []float32

	writer *ckpt.Writer // of the newest view in which it saved; nil: none, or a save went wrong
	view   kintsugi.ViewNumber
}

// ages is the oldest that a saved chunk may become, in periods: rare enough that it takes little from what moves.
const ages = 4

// newRunning returns the running checkpoint of a shard whose chunks were saved with these values as of these versions.
func (c *checkpoints) newRunning(s *server.Shard, saved []kintsugi.Step) (*running, error) {
	knobs := c.settings.scar()
	if knobs == nil || s.Chunks.Lo == s.Chunks.Hi {
		return nil, nil
	}
	cfg := scar.Config{Period: knobs.period, Fraction: knobs.fraction, MaxAge: ages * knobs.period}
	for id := s.Chunks.Lo; id < s.Chunks.Hi; id++ {
		cfg.Bytes = append(cfg.Bytes, int64(4*(1+len(s.State))*c.problem.layout.Chunks[id].Len()))
	}
	p, err := scar.New(cfg)
	if err != nil {
		return nil, err
	}
	for i, step := range saved {
		p.Done(scar.Plan{Step: step, Chunks: []kintsugi.ChunkID{kintsugi.ChunkID(i)}}, true)
	}
	return &running{chunks: s.Chunks, planner: p, saved: slices.Clone(s.Params)}, nil
}

// remember makes what a shard has loaded what is saved of it.
func (c *checkpoints) remember(s *server.Shard, saved []kintsugi.Step) error {
	r, err := c.newRunning(s, saved)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = make(map[kintsugi.ShardID]*running)
	}
	c.running[s.ID] = r
	return nil
}

// runningOf returns the running checkpoint of a shard, nil if there is none.
func (c *checkpoints) runningOf(id kintsugi.ShardID) *running {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[id]
}

// saveRunning saves the chunks that are furthest from their saved values.
func (c *checkpoints) saveRunning(ctx context.Context, v kintsugi.View, s server.Shard) (server.RunningSave, error) {
	r := c.runningOf(s.ID)
	if r == nil {
		return server.RunningSave{}, fmt.Errorf("shard %d has no running checkpoint", s.ID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	distances, err := c.distances(r, &s)
	if err != nil {
		return server.RunningSave{}, err
	}
	plan := r.planner.Plan(s.Step, distances)
	if len(plan.Chunks) == 0 {
		return server.RunningSave{}, nil
	}
	var chunks []kintsugi.ChunkID
	for _, i := range plan.Chunks { // the planner counts from the first of the shard
		chunks = append(chunks, s.Chunks.Lo+i)
	}
	slices.Sort(chunks)
	report, err := r.write(ctx, c, v, &s, chunks)
	r.planner.Done(plan, err == nil)
	if err != nil {
		return server.RunningSave{}, err
	}
	c.tidy(&s)
	lo, _ := c.problem.layout.Span(s.Chunks)
	for _, id := range chunks {
		distances[id-s.Chunks.Lo] = 0
		x := c.problem.layout.Chunks[id]
		copy(r.saved[x.Lo-lo:x.Hi-lo], s.Params[x.Lo-lo:x.Hi-lo])
	}
	left := 0.0
	for _, d := range distances {
		left += d
	}
	return server.RunningSave{Manifest: report.File, Chunks: len(chunks), Bytes: uint64(report.Written), Distance: left}, nil
}

// distances returns ‖x − saved‖² of each chunk of a shard.
func (c *checkpoints) distances(r *running, s *server.Shard) ([]float64, error) {
	lo, _ := c.problem.layout.Span(s.Chunks)
	list := make([]float64, s.Chunks.Hi-s.Chunks.Lo)
	for i := range list {
		x := c.problem.layout.Chunks[int(s.Chunks.Lo)+i]
		d, err := c.device.SquaredDistance(s.Params[x.Lo-lo:x.Hi-lo], r.saved[x.Lo-lo:x.Hi-lo])
		if err != nil {
			return nil, fmt.Errorf("measure how far chunk %d is from its saved values: %w", int(s.Chunks.Lo)+i, err)
		}
		if !(d <= math.MaxFloat64) { // parameters that have overflowed: nothing else matters for what is saved
			d = math.MaxFloat64
		}
		list[i] = d
	}
	return list, nil
}

// open returns a writer for a shard: it finds what other lives of the shard have saved on the line.
func (c *checkpoints) open(v kintsugi.View, s *server.Shard) (*ckpt.Writer, error) {
	return ckpt.OpenWriter(c.fs, c.dir, ckpt.WriterConfig{
		Layout: c.problem.layout, Rule: s.Rule, Shard: s.ID, Range: s.Chunks, Line: s.Line, Fence: v.Fence,
	})
}

// write writes chunks of a shard, nil for all of them. The writer is kept: it knows what it has saved, and opening it
// reads that again.
func (r *running) write(ctx context.Context, c *checkpoints, v kintsugi.View, s *server.Shard, chunks []kintsugi.ChunkID) (report ckpt.SaveReport, err error) {
	if r.writer == nil || r.view != v.Number {
		if r.writer, err = c.open(v, s); err != nil {
			r.writer = nil
			return report, err
		}
		r.view = v.Number
	}
	if report, err = r.writer.Save(ctx, ckpt.Snapshot{Step: s.Step, Chunks: chunks, Load: c.flat(s).Load}); err != nil {
		r.writer = nil
	}
	return report, err
}

// saveAll writes all chunks of a shard: its part of a full checkpoint, and the newest values of the running one.
func (c *checkpoints) saveAll(ctx context.Context, v kintsugi.View, s *server.Shard) (ckpt.SaveReport, error) {
	r := c.runningOf(s.ID)
	if r == nil {
		w, err := c.open(v, s)
		if err != nil {
			return ckpt.SaveReport{}, err
		}
		return w.Save(ctx, ckpt.Snapshot{Step: s.Step, Load: c.flat(s).Load})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	report, err := r.write(ctx, c, v, s, nil)
	if err == nil {
		copy(r.saved, s.Params)
		all := scar.Plan{Step: s.Step}
		for i := range s.Chunks.Hi - s.Chunks.Lo {
			all.Chunks = append(all.Chunks, i)
		}
		r.planner.Done(all, true)
	}
	return report, err
}

// tidy removes what newer saves have replaced, once in a period, on the server that publishes run manifests: only one
// process may.
func (c *checkpoints) tidy(s *server.Shard) {
	period := s.Step / c.settings.scar().period
	if s.ID != 0 || period == c.tidied {
		return
	}
	c.tidied = period
	if err := c.compact(); err != nil {
		c.log.Warn("chunks are saved, but older ones were not removed", "err", err)
	}
}

// compact removes what no checkpoint needs any more.
func (c *checkpoints) compact() error {
	c.compacting.Lock()
	defer c.compacting.Unlock()
	_, err := ckpt.Compact(c.fs, c.dir, ckpt.DefaultKeep)
	return err
}

// loadRunning fills a shard with the newest values that were saved of its chunks since the line that the view keeps
// began, and what was not saved since with those that the line began with.
func (c *checkpoints) loadRunning(ctx context.Context, v kintsugi.View, s *server.Shard) ([]kintsugi.Step, error) {
	flat, err := c.base(ctx, v, s)
	if err != nil {
		return nil, err
	}
	place := func(i ckpt.ChunkInfo) (ckpt.Arrays, error) {
		if i.Rule != s.Rule {
			return ckpt.Arrays{}, fmt.Errorf("%w: chunk %d was saved with optimizer rule %d, the run has rule %d", kintsugi.ErrOtherModel, i.Chunk, i.Rule, s.Rule)
		}
		if i.Step < flat.Saved[i.Chunk-s.Chunks.Lo] {
			return ckpt.Arrays{}, nil
		}
		return flat.Place(i)
	}
	report, err := ckpt.RestoreRunning(ctx, c.fs, c.dir, ckpt.Lines{First: v.Keeps, Last: v.Line - 1}, c.problem.layout, s.Chunks, place)
	if err != nil {
		return nil, err
	}
	for _, damage := range report.Skipped {
		c.log.Warn("passed over damage in the running checkpoint", "err", damage)
	}
	s.Taken = flat.Steps
	return flat.Saved, c.remember(s, flat.Saved)
}
