package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/live"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// Question: what does a step lose to a snapshot that is written while steps go on? One server holds
// parameters and optimizer state, and workers that compute nothing keep it busy. Its saves go to a
// real disk, or to a slow one. There are three ways, used in turn for a few steps each: nothing is
// saved; an unrelated copy of the state is written like a save, which shows the cost of the disk
// and the CPU time; and each save writes the version itself. The claims that could be false: no
// step waits for the snapshot for longer than a hundredth of a step; and steps lose time to the
// writing, not to the snapshot.

// SnapshotConfig configures Snapshots.
type SnapshotConfig struct {
	State    int // bytes of parameters and optimizer state
	Workers  int
	Steps    int     // number of steps during saves to wait for
	Block    int     // number of steps before the next way
	Dir      string  // folder for saves; empty: the folder for temporary files
	Limit    float64 // limit of the store in bytes per second; 0: none
	Progress io.Writer
}

// Check returns a usage error if the configuration is empty or too large.
func (c *SnapshotConfig) Check() error {
	if c.State < 1<<20 || c.State > 1<<38 || c.Workers < 1 || c.Workers > 256 || c.Steps < 1 || c.Block < 1 || c.Limit < 0 {
		return fmt.Errorf("%w: bench snapshot takes states from 1 MiB to 256 GiB, 1 to 256 workers, and a step at least", kintsugi.ErrUsage)
	}
	return nil
}

// SnapshotRow describes the steps while one of the ways was in use.
type SnapshotRow struct {
	Name        string  `json:"name"` // none; copy: an unrelated copy is written; or save
	StateBytes  int64   `json:"state_bytes"`
	Workers     int     `json:"workers"`
	Steps       int     `json:"steps"`
	Seconds     float64 `json:"seconds"` // median from release to release
	P99         float64 `json:"p99_seconds"`
	Longest     float64 `json:"max_seconds"`
	StepsPerSec float64 `json:"steps_per_s"`
	Ratio       float64 `json:"ratio"`           // of steps per second, to none
	WaitedP99   float64 `json:"wait_p99"`        // seconds that a step waited because of a snapshot
	WaitedMax   float64 `json:"wait_max"`        //
	Saves       int     `json:"saves"`           // number of saves begun
	Took        float64 `json:"save_seconds"`    // median
	CopyShare   float64 `json:"copy_of_a_step"`  // seconds of one copy of the state, relative to a step: the cost per save of copy-on-write
	Store       string  `json:"store,omitempty"` // its limit
}

// The ways, used in turn.
const (
	snapshotNone = iota
	snapshotCopy
	snapshotSave
	snapshotWays
)

var snapshotNames = [snapshotWays]string{"none", "copy", "save"}

// snapshots is a running measurement.
type snapshots struct {
	cfg    *SnapshotConfig
	layout *kintsugi.Layout
	fs     vfs.FS
	dir    string
	copied server.Shard // the unrelated copy

	mu    sync.Mutex
	way   int
	spans [snapshotWays][]period // when something was written; the last one may be open
	busy  bool                   // the unrelated copy is being written
	wg    sync.WaitGroup
	err   error
}

type period struct{ begin, end time.Time } // end is zero while the period is open

// Snapshots runs a cluster until enough steps were made during saves.
func Snapshots(ctx context.Context, cfg SnapshotConfig) (rows []SnapshotRow, err error) {
	dir, err := os.MkdirTemp(cfg.Dir, "kintsugi-bench-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if left := os.RemoveAll(dir); err == nil {
			err = left
		}
	}()
	rule := kernels.Rule(syntheticSchedule().Rule)
	s := &snapshots{cfg: &cfg, fs: vfs.OS{}, dir: dir}
	if cfg.Limit > 0 {
		s.fs = vfs.Limit(s.fs, cfg.Limit)
	}
	if s.layout, err = syntheticLayout(cfg.State / 4 / (1 + rule.States())); err != nil {
		return nil, err
	}
	s.copied = server.Shard{Chunks: kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(s.layout.Chunks))}, Line: 1, Rule: syntheticSchedule().Rule, Params: values(s.layout.Values, 1)}
	for i := range rule.States() {
		s.copied.State = append(s.copied.State, values(s.layout.Values, uint64(i)))
	}
	events, err := s.run(ctx)
	s.wg.Wait()
	if err != nil {
		return nil, err
	}
	if s.err != nil {
		return nil, s.err
	}
	return s.rows(events), nil
}

// run runs the cluster and returns its steps.
func (s *snapshots) run(ctx context.Context) ([]kintsugi.StepEvent, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := live.Start(ctx, live.Config{
		Servers: 1, Workers: s.cfg.Workers, Layout: s.layout, Gradient: syntheticGradient, Schedule: syntheticSchedule(),
		Steps: 1 << 40, SaveEvery: 1, Device: kernels.Best(), Threads: runtime.GOMAXPROCS(0), Wire: worker.WireAuto, Save: s.save,
	})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var events []kintsugi.StepEvent
	saved := 0
	err = l.Watch(ctx, func(e kintsugi.RunEvent) bool {
		step, ok := e.(kintsugi.StepEvent)
		if !ok {
			return true
		}
		events = append(events, step)
		n := len(events) - warmSteps
		if n < 1 {
			return true
		}
		s.mu.Lock()
		if s.of(events[len(events)-2].Time, step.Time) == snapshotSave {
			saved++
		}
		s.way = n / s.cfg.Block % snapshotWays
		s.mu.Unlock()
		if n%(snapshotWays*s.cfg.Block) == 0 {
			fmt.Fprintf(s.cfg.Progress, "%d of %d steps beside saves\n", saved, s.cfg.Steps)
		}
		return saved < s.cfg.Steps || n%(snapshotWays*s.cfg.Block) != 0
	})
	return events, err
}

// save is called by the server with a released version.
func (s *snapshots) save(ctx context.Context, v kintsugi.View, x server.Shard) (string, uint64, error) {
	s.mu.Lock()
	way := s.way
	if way == snapshotCopy && !s.busy {
		s.busy = true
		y := s.copied
		y.Step = x.Step
		s.wg.Go(func() {
			err := s.write(ctx, v, &y, snapshotCopy)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.busy = false
			if s.err == nil && ctx.Err() == nil {
				s.err = err
			}
		})
	}
	s.mu.Unlock()
	if way != snapshotSave {
		return "nothing", 0, nil
	}
	return "a save", uint64(s.cfg.State), s.write(ctx, v, &x, snapshotSave)
}

// write writes a shard as a server does, and removes it.
func (s *snapshots) write(ctx context.Context, v kintsugi.View, x *server.Shard, way int) (err error) {
	s.mu.Lock()
	i := len(s.spans[way])
	s.spans[way] = append(s.spans[way], period{begin: time.Now()})
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.spans[way][i].end = time.Now()
	}()
	dir := filepath.Join(s.dir, fmt.Sprintf("%s-%d", snapshotNames[way], x.Step))
	w, err := ckpt.OpenWriter(s.fs, dir, ckpt.WriterConfig{Layout: s.layout, Rule: x.Rule, Shard: x.ID, Range: x.Chunks, Line: v.Line, Fence: v.Fence})
	if err != nil {
		return err
	}
	n := len(s.layout.Chunks)
	flat := &ckpt.Flat{Layout: s.layout, Range: x.Chunks, Steps: slices.Repeat([]uint64{uint64(x.Step)}, n), Saved: make([]kintsugi.Step, n)}
	flat.Params = x.Params
	copy(flat.State[:], x.State)
	if _, err := w.Save(ctx, ckpt.Snapshot{Step: x.Step, Load: flat.Load}); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// of returns the way in use between two releases: the last one that wrote anything. While the run
// goes on, the caller must hold the lock.
func (s *snapshots) of(begin, end time.Time) int {
	for way := snapshotWays - 1; way > snapshotNone; way-- {
		for _, x := range s.spans[way] {
			if x.begin.Before(end) && (x.end.IsZero() || x.end.After(begin)) {
				return way
			}
		}
	}
	return snapshotNone
}

func (s *snapshots) rows(events []kintsugi.StepEvent) []SnapshotRow {
	var seconds, waited [snapshotWays][]float64
	for i := warmSteps; i < len(events); i++ {
		begin, end := events[i-1].Time, events[i].Time
		way := s.of(begin, end)
		seconds[way] = append(seconds[way], end.Sub(begin).Seconds())
		waited[way] = append(waited[way], events[i].Saving.Seconds())
	}
	copyTakes := s.copySeconds()
	var rows []SnapshotRow
	for way, all := range seconds {
		if len(all) == 0 {
			continue
		}
		r := SnapshotRow{
			Name: snapshotNames[way], StateBytes: 4 * int64(len(s.copied.Params)) * int64(1+len(s.copied.State)), Workers: s.cfg.Workers, Steps: len(all), Seconds: bench.Median(all), P99: percentile(all, 0.99),
			Longest: slices.Max(all), WaitedP99: percentile(waited[way], 0.99), WaitedMax: slices.Max(waited[way]), Saves: len(s.spans[way]),
		}
		if s.cfg.Limit > 0 {
			r.Store = fmt.Sprintf("%.0f MB/s", s.cfg.Limit/1e6)
		}
		sum := 0.0
		for _, x := range all {
			sum += x
		}
		r.StepsPerSec = float64(len(all)) / sum
		r.Ratio = 1
		if len(rows) > 0 {
			r.Ratio = r.StepsPerSec / rows[0].StepsPerSec
		}
		var took []float64
		for _, x := range s.spans[way] {
			if !x.end.IsZero() {
				took = append(took, x.end.Sub(x.begin).Seconds())
			}
		}
		if len(took) > 0 {
			r.Took = bench.Median(took)
		}
		r.CopyShare = copyTakes / r.Seconds
		rows = append(rows, r)
	}
	return rows
}

// copySeconds returns how long this machine takes to copy the state once, with nothing else
// running.
func (s *snapshots) copySeconds() float64 {
	dst := make([]float32, len(s.copied.Params))
	copy(dst, s.copied.Params) // touch the pages
	start := time.Now()
	for _, x := range append([][]float32{s.copied.Params}, s.copied.State...) {
		copy(dst, x)
	}
	return time.Since(start).Seconds()
}

// percentile returns the smallest element that is at least as large as the given share of x.
func percentile(x []float64, share float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[min(len(x)-1, int(float64(len(x))*share))]
}
