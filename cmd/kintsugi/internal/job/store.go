package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/server"
)

// Checkpoints connects the checkpoint store to the functions that servers and the coordinator call.
type Checkpoints struct {
	Settings *Settings
	Problem  *Problem
	FS       vfs.FS
	Dir      string
	Name     string // of the run, for messages
	Forgets  bool   // the place is in memory: if it is empty, the process that had it may have ended
	Log      *slog.Logger

	mu         sync.Mutex
	running    map[kintsugi.ShardID]*running
	tidied     kintsugi.Step // the period in which the checkpoint was last tidied
	compacting sync.Mutex
	compactor  ckpt.Compactor // of compacting
}

// Load fills a shard with what the view starts from. If that is damaged or gone, or if it is the
// initialisation although there are checkpoints, then no checkpoint is whole (Newest): a person
// must decide before the run starts over.
func (c *Checkpoints) Load(ctx context.Context, v kintsugi.View, s *server.Shard) error {
	if err := c.holds(v.Run); err != nil {
		return err
	}
	const what = "no checkpoint is whole, see kintsugi checkpoint verify; kintsugi checkpoint repair may make one of what is"
	if v.Restore == "" {
		names, err := ckpt.ListOf(c.FS, c.Dir, v.Run)
		if err == nil && len(names) > 0 {
			err = fmt.Errorf("%w: %s: %s", kintsugi.ErrCorrupt, c.Dir, what)
		}
		if err != nil {
			return err
		}
	}
	flat, err := c.base(ctx, v, s)
	if v.Restore != "" && errors.Is(err, kintsugi.ErrCorrupt) {
		return fmt.Errorf("%w: %s", err, what)
	}
	if err != nil {
		return err
	}
	s.Step, s.Taken = v.RestoreStep, flat.Steps
	return nil
}

// base fills a shard with the full checkpoint that the view names, or with the initialisation.
func (c *Checkpoints) base(ctx context.Context, v kintsugi.View, s *server.Shard) (*ckpt.Flat, error) {
	if v.Restore == "" {
		return c.initial(s)
	}
	flat := c.flat(s)
	m, err := ckpt.Read(c.FS, c.Dir, v.Restore)
	if err != nil {
		return nil, err
	}
	if m.Rule != s.Rule {
		return nil, fmt.Errorf("%w: %s was saved with optimizer rule %d, the run has rule %d", kintsugi.ErrOtherModel, v.Restore, m.Rule, s.Rule)
	}
	if err := ckpt.Restore(ctx, c.FS, c.Dir, m, c.Problem.Layout, s.Chunks, flat.Place); err != nil {
		return nil, fmt.Errorf("restore %s: %w", v.Restore, err)
	}
	return flat, nil
}

// initial fills a shard with the initialisation, whatever it contained.
func (c *Checkpoints) initial(s *server.Shard) (*ckpt.Flat, error) {
	lo, _ := c.Problem.Layout.Span(s.Chunks)
	if err := c.Problem.initPart(c.Settings, lo, s.Params); err != nil {
		return nil, err
	}
	for _, state := range s.State {
		clear(state)
	}
	flat := c.flat(s)
	clear(flat.Steps)
	return flat, nil
}

// flat returns a view of a shard's arrays as chunks, without copying.
func (c *Checkpoints) flat(s *server.Shard) *ckpt.Flat {
	n := int(s.Chunks.Hi - s.Chunks.Lo)
	f := &ckpt.Flat{Layout: c.Problem.Layout, Range: s.Chunks, Steps: s.Taken, Saved: make([]kintsugi.Step, n)}
	f.Params = s.Params
	copy(f.State[:], s.State)
	if f.Steps == nil {
		f.Steps = make([]uint64, n)
		for i := range f.Steps {
			f.Steps[i] = uint64(s.Step)
		}
	}
	return f
}

// Save saves the shard's version.
func (c *Checkpoints) Save(ctx context.Context, v kintsugi.View, s server.Shard) (string, uint64, error) {
	report, err := c.write(ctx, v, &s, nil)
	return report.File, uint64(report.Written), err
}

// Publish publishes a run manifest, and removes data that only older ones needed.
func (c *Checkpoints) Publish(_ context.Context, cp server.Checkpoint) (string, error) {
	m := &ckpt.RunManifest{
		Line: cp.Line, Step: cp.Step, Fence: cp.Fence, Created: time.Now(), Model: c.Settings.Model, Seed: c.Settings.Seed,
		Tensors: c.Problem.Layout.Tensors,
	}
	schedule, err := c.Settings.Schedule()
	if err != nil {
		return "", err
	}
	m.Rule = schedule.Rule
	if err := c.holds(cp.Run); err != nil {
		return "", err
	}
	if err := ckpt.PublishRun(c.FS, c.Dir, m, cp.Manifests); err != nil {
		return "", err
	}
	if err := c.compact(cp.Run); err != nil {
		c.Log.Warn("the checkpoint is published, but older ones were not removed", "err", err)
	}
	return m.Name(), nil
}

// longRead is the number of bytes whose reading takes so long that it should be logged.
const longRead = 1 << 28

// Newest finds the checkpoint that a new line starts from: the newest one in which every byte that
// a restore needs is correct. Reading all of it takes one pass. It finds damage here, where another
// checkpoint can be used instead, and not on a server, which could only die. If every checkpoint is
// damaged, there is none. Launchers that resume a run check that before (resumable), and servers do
// not start over (Load).
//
// A run that begins first claims the place, so that another run that still has it cannot compact
// away what this one reads.
func (c *Checkpoints) Newest(ctx context.Context, asks recovery.Asking) (string, kintsugi.Step, kintsugi.Line, error) {
	var line kintsugi.Line
	var err error
	if asks.Begins {
		line, err = c.take(asks.Run)
	} else if err = c.holds(asks.Run); err == nil {
		line, err = ckpt.LastLine(c.FS, c.Dir)
	}
	if err != nil {
		return "", 0, 0, err
	}
	name, step, err := c.NewestOf(ctx, asks.Run)
	return name, step, line, err
}

// take claims the place for a run that begins, and returns the line before its first one.
func (c *Checkpoints) take(run string) (kintsugi.Line, error) {
	before, err := ckpt.Holder(c.FS, c.Dir)
	if err != nil && !errors.Is(err, kintsugi.ErrCorrupt) {
		return 0, err
	}
	mine, err := ckpt.Take(c.FS, c.Dir, ckpt.Claim{Run: run, Name: c.Name, Since: time.Now()})
	if err != nil {
		return 0, err
	}
	if before != nil && before.Run != run {
		c.Log.Info("this run goes on in the place of another, which saves nothing there any more if it still runs",
			"place", c.Dir, "of", before.Name, "since", before.Since, "id", before.Run)
	}
	return mine.Line - 1, nil
}

// holds returns an error if the place belongs to another run by now. An empty run name means that
// the run shares the place with nobody.
//
// A folder that is not mounted on this host looks like a place without saved data. So a place that
// nobody has claimed is not this run's, since the run claimed its own before it began. Using such a
// place would start shards over although their checkpoints still exist elsewhere.
func (c *Checkpoints) holds(run string) error {
	if run == "" {
		return nil
	}
	err := ckpt.Holds(c.FS, c.Dir, run)
	if errors.Is(err, ckpt.ErrUnclaimed) {
		if c.Forgets {
			return nil
		}
		return fmt.Errorf("%w: %s", err, notTheRuns)
	}
	return err
}

const notTheRuns = "nothing of this run is there: it is another place than that of the coordinator, or it is not mounted on this host, or somebody has emptied it; give all servers and the coordinator the same --store"

// retake claims an unclaimed place for a run that has begun, so that what it saves there is found
// again.
func (c *Checkpoints) retake(run string, unclaimed error) error {
	c.Log.Warn("the checkpoint begins in an empty place", "err", unclaimed, "why", notTheRuns)
	_, err := ckpt.Take(c.FS, c.Dir, ckpt.Claim{Run: run, Name: c.Name, Since: time.Now()})
	return err
}

// NewestOf returns the newest whole checkpoint of a run; an empty run name means any run.
func (c *Checkpoints) NewestOf(ctx context.Context, run string) (string, kintsugi.Step, error) {
	names, err := ckpt.ListOf(c.FS, c.Dir, run)
	if err != nil {
		return "", 0, err
	}
	for _, name := range names {
		m, err := c.verify(ctx, name)
		switch {
		case err == nil:
			return name, m.Step, nil
		case !errors.Is(err, kintsugi.ErrCorrupt):
			return "", 0, fmt.Errorf("checkpoint %s in %s: %w", name, c.Dir, err)
		}
		c.Log.Warn("passed over a damaged checkpoint", "manifest", name, "err", err)
	}
	return "", 0, nil
}

func (c *Checkpoints) verify(ctx context.Context, name string) (*ckpt.RunManifest, error) {
	m, err := ckpt.Read(c.FS, c.Dir, name)
	if err != nil {
		return nil, err
	}
	if err := m.Fits(c.Problem.Layout); err != nil {
		return nil, err
	}
	if values := c.Problem.Layout.Values * (1 + m.Rule.States()); values > longRead/4 {
		c.Log.Info("reading a checkpoint to see whether it is whole", "manifest", name, "bytes", 4*values)
	}
	all := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(c.Problem.Layout.Chunks))}
	nowhere := func(ckpt.ChunkInfo) (ckpt.Arrays, error) { return ckpt.Arrays{}, nil }
	return m, ckpt.Restore(ctx, c.FS, c.Dir, m, c.Problem.Layout, all, nowhere)
}
