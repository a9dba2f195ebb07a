package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// CheckpointConfig configures Checkpoint.
type CheckpointConfig struct {
	Dir      string // for Checkpoint: folder for the files, on the disk to measure; empty: the folder for temporary files
	Sizes    []int  // bytes of parameters and momentum
	Rounds   int
	Progress io.Writer
}

// Check returns a usage error if the configuration is empty or too large.
func (c *CheckpointConfig) Check() error {
	bad := len(c.Sizes) == 0 || c.Rounds < 1
	for _, size := range c.Sizes {
		bad = bad || size < 1<<20 || size > 1<<38
	}
	if bad {
		return fmt.Errorf("%w: bench checkpoint takes sizes from 1 MiB to 256 GiB, and a round at least", kintsugi.ErrUsage)
	}
	return nil
}

// Checkpoint measures how close saving and restoring a shard come to the speed of the disk. The
// bound of a save is to write the same bytes, from the memory of the model, a megabyte at a time
// and to sync them, with and without asking the disk to begin early. The bound of a restore is to
// read the same bytes into the memory of the model, a megabyte at a time, from the disk and from
// the page cache. Both include creating the file. A save also has checksums, manifests and their
// syncs; a restore also verifies every byte before it returns any.
func Checkpoint(ctx context.Context, cfg CheckpointConfig) ([]bench.Row, error) {
	return cfg.each(func(size int) ([]bench.Row, error) { return checkpointOf(ctx, cfg, size) })
}

// each returns the rows of all sizes.
func (c *CheckpointConfig) each(measure func(size int) ([]bench.Row, error)) (rows []bench.Row, err error) {
	for _, size := range c.Sizes {
		fmt.Fprintf(c.Progress, "checkpoint, %d bytes\n", size)
		got, err := measure(size)
		if err != nil {
			return nil, err
		}
		rows = append(rows, got...)
	}
	return rows, nil
}

func checkpointOf(ctx context.Context, cfg CheckpointConfig, size int) (rows []bench.Row, err error) {
	dir, err := os.MkdirTemp(cfg.Dir, "kintsugi-bench-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if left := os.RemoveAll(dir); err == nil {
			err = left
		}
	}()
	b := &checkpointBench{ctx: ctx, fs: vfs.OS{}, dir: dir}
	if err := b.build(size); err != nil {
		return nil, err
	}
	operations := append(b.writes(), b.reads()...)
	rows, err = bench.Interleave(ctx, cfg.Rounds, 0, operations)
	if err == nil {
		err = b.err
	}
	return rows, err
}

// checkpointBench is a model and the files that it is written to.
type checkpointBench struct {
	ctx    context.Context
	fs     vfs.FS
	dir    string
	layout *kintsugi.Layout
	model  *ckpt.Flat
	saved  *ckpt.RunManifest // the checkpoint to restore
	file   string            // the segment of saved
	bytes  int64
	step   kintsugi.Step
	err    error // the first error; the rows are then worthless
}

const (
	benchRule = kintsugi.RuleMomentum
	piece     = 1 << 20 // of one write or read of a bound
)

// build makes the model and its checkpoint.
func (b *checkpointBench) build(size int) (err error) {
	const columns = 1024
	rows := max(1, size/8/columns)
	if b.layout, err = kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{rows, columns}}}); err != nil {
		return err
	}
	all := kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(b.layout.Chunks))}
	if b.model, err = ckpt.NewFlat(b.layout, all, benchRule); err != nil {
		return err
	}
	for i := range b.model.Params { // touch every page
		b.model.Params[i], b.model.State[0][i] = float32(i), 1/float32(i+1)
	}
	b.bytes = int64(8 * len(b.model.Params))
	report, err := b.save("restored")
	if err != nil {
		return err
	}
	dir := filepath.Join(b.dir, "restored")
	b.saved = &ckpt.RunManifest{Line: 1, Step: b.step, Fence: 1, Rule: benchRule, Tensors: b.layout.Tensors}
	b.file = filepath.Join(dir, "segment", filepath.Base(report.File))
	return ckpt.PublishRun(b.fs, dir, b.saved, []string{report.File})
}

// save saves the model as a server does.
func (b *checkpointBench) save(folder string) (ckpt.SaveReport, error) {
	b.step++
	w, err := ckpt.OpenWriter(b.fs, filepath.Join(b.dir, folder), ckpt.WriterConfig{
		Layout: b.layout, Rule: benchRule, Range: b.model.Range, Line: 1, Fence: 1,
	})
	if err != nil {
		return ckpt.SaveReport{}, err
	}
	return w.Save(b.ctx, ckpt.Snapshot{Step: b.step, Load: b.model.Load})
}

// operation returns an operation that runs once per round.
func (b *checkpointBench) operation(name, device, variant string, before func(), run func() error) *bench.Timed {
	return &bench.Timed{
		Row:    bench.Row{Name: name, Device: device, Variant: variant, K: 1, DType: "fp32", Threads: 1, Elements: len(b.model.Params), Bytes: b.bytes},
		Before: before,
		Run: func(times int) {
			for range times {
				b.note(run())
			}
		},
	}
}

// note keeps the first error.
func (b *checkpointBench) note(err error) {
	if b.err == nil {
		b.err = err
	}
}

// writes returns a save and its bounds. The files of the last round are removed outside the
// measured time.
func (b *checkpointBench) writes() []*bench.Timed {
	clear := func() {
		for _, pattern := range []string{"plain", "saved/segment/*", "saved/shard/*"} { // folders are created only once in a run
			b.note(removeAll(filepath.Join(b.dir, pattern)))
		}
	}
	name := filepath.Join(b.dir, "plain")
	plain := b.operation("write and sync", "disk", "plain", clear, func() error {
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		return b.write(f)
	})
	early := b.operation("write and sync", "disk", "begun early", clear, func() error {
		f, err := vfs.OS{}.Create(name)
		if err != nil {
			return err
		}
		return b.write(f)
	})
	save := b.operation("save", kernels.Best().Name(), "whole shard", clear, func() error {
		_, err := b.save("saved")
		return err
	})
	save.Bound = bench.Fastest(b.bytes, plain, early)
	return []*bench.Timed{plain, early, save}
}

// removeAll removes the files that a pattern matches.
func removeAll(pattern string) error {
	names, err := filepath.Glob(pattern)
	for _, name := range names {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// synced is a file that can be written and synced.
type synced interface {
	io.WriteCloser
	Sync() error
}

// write writes the model and syncs it.
func (b *checkpointBench) write(f synced) error {
	err := b.inPieces(func(piece []byte) error {
		_, err := f.Write(piece)
		return err
	})
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// reads returns a restore and its bounds, from the disk and from the page cache.
func (b *checkpointBench) reads() []*bench.Timed {
	var all []*bench.Timed
	cold, err := vfs.Forget(b.file)
	if err != nil {
		b.err = err
		return nil
	}
	for _, from := range []string{"from the disk", "from the cache"} {
		before := func() {
			_, err := vfs.Forget(b.file)
			b.note(err)
		}
		if from == "from the cache" {
			before = nil
		} else if !cold {
			continue
		}
		read := b.operation("read", "disk", from, before, b.read)
		restore := b.operation("restore", kernels.Best().Name(), from, before, b.restore)
		restore.Bound = read.At
		all = append(all, read, restore)
	}
	return all
}
