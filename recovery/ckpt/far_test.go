package ckpt

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// far is a store in another building: a request takes a round trip, and as long as its content takes
// in a stream of its own.
type far struct{ object.Store }

const (
	farTrip = 30 * time.Millisecond
	farRate = 90 << 20 // bytes per second, of each stream
)

func (f far) wait(bytes int) {
	time.Sleep(farTrip + time.Duration(bytes)*time.Second/farRate)
}

func (f far) Create(ctx context.Context, name string, content []byte) error {
	f.wait(len(content))
	return f.Store.Create(ctx, name, content)
}

func (f far) Read(ctx context.Context, name string, p []byte, offset int64) error {
	f.wait(len(p))
	return f.Store.Read(ctx, name, p, offset)
}

func (f far) Begin(ctx context.Context, name string, p []byte) (int64, error) {
	f.wait(len(p))
	return f.Store.Begin(ctx, name, p)
}

func (f far) Stat(ctx context.Context, name string) (int64, error) {
	f.wait(0)
	return f.Store.Stat(ctx, name)
}

func (f far) Remove(ctx context.Context, name string) error {
	f.wait(0)
	return f.Store.Remove(ctx, name)
}

func (f far) List(ctx context.Context, prefix string) ([]string, error) {
	f.wait(0)
	return f.Store.List(ctx, prefix)
}

// A restore from a store that is far away has many requests under way at once: a large shard comes
// faster than by one stream, and a running checkpoint of many small saves does not take a round trip
// for each.
func TestARestoreFromAfarDoesNotWaitForEachAnswer(t *testing.T) {
	layout := mustLayout(t, kintsugi.Tensor{Name: "w", Shape: []int{4096, 1024}})
	saved := model(t, layout, kintsugi.RuleSGD, 1)
	all := saved.Range
	const saves = 48
	synctest.Test(t, func(t *testing.T) {
		fsys := objectFS(t, far{&object.Mem{}})
		w, err := OpenWriter(fsys, testDir, WriterConfig{Layout: layout, Rule: kintsugi.RuleSGD, Range: all, Line: 1, Fence: 1})
		if err != nil {
			t.Fatal(err)
		}
		took := func(what string, most time.Duration, f func() error) {
			t.Helper()
			begin := time.Now()
			if err := f(); err != nil {
				t.Fatal(err)
			}
			took := time.Since(begin)
			t.Logf("%s: %v", what, took)
			if took > most {
				t.Errorf("%s takes %v, want at most %v", what, took, most)
			}
		}
		whole, err := w.Save(t.Context(), Snapshot{Step: 1, Load: saved.Load})
		if err != nil {
			t.Fatal(err)
		}
		m := &RunManifest{Line: 1, Step: 1, Fence: 1, Rule: kintsugi.RuleSGD, Tensors: layout.Tensors}
		if err := PublishRun(fsys, testDir, m, []string{whole.File}); err != nil {
			t.Fatal(err)
		}
		got := model(t, layout, kintsugi.RuleSGD, 2)
		bytes := time.Duration(4 * len(saved.Params))
		took("a full restore", 6*farTrip+bytes*time.Second/(3*farRate), func() error {
			return Restore(t.Context(), fsys, testDir, m, layout, all, got.Place)
		})
		if !same(got, saved) {
			t.Error("it has other bits")
		}
		for step := range kintsugi.Step(saves) {
			chunk := kintsugi.ChunkID(int(step) % len(layout.Chunks))
			if _, err := w.Save(t.Context(), Snapshot{Step: 2 + step, Chunks: []kintsugi.ChunkID{chunk}, Load: saved.Load}); err != nil {
				t.Fatal(err)
			}
		}
		verify := func(fsys vfs.FS) func() error {
			return func() error {
				r, err := Verify(t.Context(), fsys, testDir, nil)
				if err == nil && len(r.Damage) > 0 {
					err = r.Damage[0]
				}
				return err
			}
		}
		took("a check of all by one request after the other", time.Hour, verify(struct{ vfs.FS }{fsys}))
		took("a check of all", saves*farTrip+bytes*time.Second/(3*farRate), verify(fsys))
		got = model(t, layout, kintsugi.RuleSGD, 2)
		running := func(fsys vfs.FS) func() error {
			return func() error {
				_, err := RestoreRunning(t.Context(), fsys, testDir, Lines{First: 1, Last: 1}, layout, all, got.Place)
				return err
			}
		}
		took("a restore of a running checkpoint by one request after the other", time.Hour, running(struct{ vfs.FS }{fsys}))
		took("a restore of a running checkpoint", saves*farTrip, running(fsys))
		if !same(got, saved) {
			t.Error("it has other bits")
		}
		took("a survey", saves*farTrip, func() error {
			states, skipped, err := Survey(t.Context(), fsys, testDir, layout, kernels.Host.SquaredDistance)
			if moved := slices.ContainsFunc(states, func(s ChunkState) bool { return s.Before != nil }); err == nil && (!moved || len(skipped) > 0) {
				t.Errorf("it has found %v", skipped)
			}
			return err
		})
		took("a compaction", saves*farTrip, func() error {
			report, err := Compact(fsys, testDir, Retention{})
			if err == nil && len(report.Removed) < saves-DefaultKeep {
				t.Errorf("it has removed %d files of %d saves", len(report.Removed), saves)
			}
			return err
		})
	})
}
