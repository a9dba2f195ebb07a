package ckpt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// story is what happens until the machine goes down: full checkpoints, with saves of a few chunks
// between them, and compaction that keeps one checkpoint. It calls published after each full
// checkpoint that is durable.
func story(tr *trainer, models map[kintsugi.Step]*Flat, published func(kintsugi.Step)) error {
	for _, step := range []kintsugi.Step{10, 20, 30} {
		if _, err := tr.save(step, models[step]); err != nil {
			return err
		}
		published(step)
		if _, err := Compact(tr.fs, testDir, Retention{Newest: 1}); err != nil {
			return err
		}
		part := models[step+5]
		for _, w := range tr.writers {
			s := Snapshot{Step: step + 5, Chunks: []kintsugi.ChunkID{w.cfg.Range.Lo + 1}, Load: part.Load}
			if _, err := w.Save(context.Background(), s); err != nil {
				return err
			}
		}
	}
	return nil
}

func storyModels(t *testing.T, layout *kintsugi.Layout) map[kintsugi.Step]*Flat {
	models := map[kintsugi.Step]*Flat{}
	for step := kintsugi.Step(10); step <= 40; step += 5 {
		models[step] = model(t, layout, kintsugi.RuleMomentum, uint64(step))
	}
	return models
}

// A crash after any operation, on a disk that loses any part of what was not synced, leaves the old
// checkpoint or the new one, complete. It never leaves only checkpoints older than the last that
// was published.
func TestCrashAfterAnyOperationLeavesTheOldOrTheNewCheckpoint(t *testing.T) {
	race.Skip(t)
	t.Parallel()
	layout := smallLayout(t)
	models := storyModels(t, layout)
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for n := 0; ; n += stride() {
		operations := 0
		for seed := -1; seed < seeds; seed++ {
			mem := vfs.NewMem()
			inj := vfs.NewInjector(mem, vfs.CrashAfter(n))
			durable, trying := kintsugi.Step(0), kintsugi.Step(10)
			tr, err := openTrainer(inj, layout, kintsugi.RuleMomentum, 2, 1, 1)
			if err == nil {
				err = story(tr, models, func(s kintsugi.Step) { durable, trying = s, s+10 })
			}
			if operations = inj.Operations(); err != nil && !errors.Is(err, vfs.ErrCrashed) {
				t.Fatalf("operation %d: %v", n, err)
			}
			var rng *rand.Rand // in the first round: a disk that loses all it may lose
			if seed >= 0 {
				rng = rand.New(rand.NewPCG(uint64(seed), uint64(n)))
			}
			disk := mem.Crash(rng)
			if err := checkAfterCrash(t, disk, layout, models, durable, trying); err != nil {
				t.Fatalf("crash after operation %d, seed %d: %v", n, seed, err)
			}
			if err := goOnAfterCrash(disk, disk.Walk, layout, models[40]); err != nil {
				t.Fatalf("crash after operation %d, seed %d, going on: %v", n, seed, err)
			}
		}
		if operations <= n {
			if n < 150 {
				t.Fatalf("the story takes %d operations: the test tests too little", n)
			}
			return
		}
	}
}

func checkAfterCrash(t *testing.T, disk vfs.FS, layout *kintsugi.Layout, models map[kintsugi.Step]*Flat, durable, trying kintsugi.Step) error {
	m, skipped, err := Newest(disk, testDir)
	if errors.Is(err, ErrNoCheckpoint) && durable == 0 && len(skipped) == 0 {
		return nil
	}
	if err != nil || len(skipped) > 0 {
		return fmt.Errorf("newest: skipped %v, error %w", skipped, err)
	}
	if m.Step != durable && m.Step != trying {
		return fmt.Errorf("the newest is of step %d; step %d is durable", m.Step, durable)
	}
	got, err := restoreAll(disk, m, layout, kintsugi.RuleMomentum)
	if err != nil {
		return err
	}
	if !same(got, models[m.Step]) {
		return fmt.Errorf("step %d is not what was saved", m.Step)
	}
	if r := mustVerify(t, disk); len(r.Damage) > 0 {
		return fmt.Errorf("verify: %v", r.Damage)
	}
	// A partial restore finds for each chunk a value at least as new as the full checkpoint.
	running, err := NewFlat(layout, got.Range, kintsugi.RuleMomentum)
	if err != nil {
		return err
	}
	report, err := RestoreRunning(context.Background(), disk, testDir, Lines{First: 1, Last: 1}, layout, got.Range, running.Place)
	if err != nil || len(report.Missing)+len(report.Skipped) > 0 {
		return fmt.Errorf("running checkpoint: %+v, error %w", report, err)
	}
	for id, step := range running.Saved {
		id := kintsugi.ChunkID(id)
		if step < m.Step || !sameBits(running.Chunk(id).Params, models[step].Chunk(id).Params) {
			return fmt.Errorf("chunk %d comes from step %d, or is not what was saved then", id, step)
		}
	}
	return nil
}

// goOnAfterCrash starts new writers on what is left and makes the next checkpoint. Afterwards,
// nothing that the crash left is still there.
func goOnAfterCrash(disk vfs.FS, walk func(dir string) []string, layout *kintsugi.Layout, f *Flat) error {
	tr, err := openTrainer(disk, layout, kintsugi.RuleMomentum, 2, 1, 2)
	if err != nil {
		return err
	}
	if _, err := tr.save(40, f); err != nil {
		return err
	}
	if _, err := Compact(disk, testDir, Retention{Newest: 1}); err != nil {
		return err
	}
	m, _, err := Newest(disk, testDir)
	if err != nil || m.Step != 40 {
		return fmt.Errorf("newest is %v, error %w", m, err)
	}
	if got, err := restoreAll(disk, m, layout, kintsugi.RuleMomentum); err != nil || !same(got, f) {
		return fmt.Errorf("restore: %w", err)
	}
	if files := walk(testDir); len(files) != 5 { // a run manifest, two shard manifests, two segments
		return fmt.Errorf("files that nobody needs: %v", files)
	}
	return nil
}

// A publisher that dies between link and sync leaves a manifest that exists but is not durable.
// Compact must not remove the durable one because of it.
func TestCompactDoesNotTrustAManifestThatIsNotDurable(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	models := storyModels(t, layout)
	for n := 0; ; n += stride() {
		mem := vfs.NewMem()
		tr := mustTrainer(t, mem, layout, kintsugi.RuleMomentum, 2, 1, 1)
		tr.mustSave(t, 10, models[10])
		process := vfs.NewInjector(mem, vfs.CrashAfter(n)) // only the process dies
		for _, w := range tr.writers {
			w.fs = process
		}
		tr.fs = process
		_, err := tr.save(20, models[20])
		for c := 0; ; c++ {
			// The machine goes down during the compaction of another process.
			other := vfs.NewInjector(mem, vfs.CrashAfter(c))
			_, compactErr := Compact(other, testDir, Retention{Newest: 1})
			if compactErr == nil {
				break
			}
		}
		disk := mem.Crash(nil)
		if err := checkAfterCrash(t, disk, layout, models, 10, 20); err != nil {
			t.Fatalf("the process died after operation %d: %v", n, err)
		}
		if err == nil {
			return
		}
	}
}

// runningStory is a full checkpoint, followed by saves of parts, with compaction after each. It
// calls saved when a save is durable.
func runningStory(fsys vfs.FS, layout *kintsugi.Layout, models map[kintsugi.Step]*Flat, saved func(kintsugi.Step, []kintsugi.ChunkID)) error {
	tr, err := openTrainer(fsys, layout, kintsugi.RuleMomentum, 2, 1, 1)
	if err != nil {
		return err
	}
	if _, err := tr.save(10, models[10]); err != nil {
		return err
	}
	for id := range layout.Chunks {
		saved(10, []kintsugi.ChunkID{kintsugi.ChunkID(id)})
	}
	for step := kintsugi.Step(11); step <= 18; step++ {
		w := tr.writers[step%2]
		n := w.cfg.Range.Hi - w.cfg.Range.Lo
		chunks := []kintsugi.ChunkID{w.cfg.Range.Lo + kintsugi.ChunkID(step/2)%n} // one chunk after the other, and in the end each again
		if _, err := w.Save(context.Background(), Snapshot{Step: step, Chunks: chunks, Load: models[step].Load}); err != nil {
			return err
		}
		saved(step, chunks)
		if _, err := Compact(fsys, testDir, Retention{Newest: 1}); err != nil {
			return err
		}
	}
	return nil
}

// A crash after any operation of the running checkpoint leaves the newest saved value of each
// chunk, or a newer one.
func TestCrashAfterAnyOperationLeavesTheRunningCheckpoint(t *testing.T) {
	race.Skip(t)
	t.Parallel()
	layout := smallLayout(t)
	models := map[kintsugi.Step]*Flat{}
	for step := kintsugi.Step(10); step <= 20; step++ {
		models[step] = model(t, layout, kintsugi.RuleMomentum, uint64(step))
	}
	for n := 0; ; n += stride() {
		mem := vfs.NewMem()
		inj := vfs.NewInjector(mem, vfs.CrashAfter(n))
		durable := make([]kintsugi.Step, len(layout.Chunks))
		err := runningStory(inj, layout, models, func(step kintsugi.Step, chunks []kintsugi.ChunkID) {
			for _, id := range chunks {
				durable[id] = step
			}
		})
		if err != nil && !errors.Is(err, vfs.ErrCrashed) {
			t.Fatalf("operation %d: %v", n, err)
		}
		disk := mem.Crash(rand.New(rand.NewPCG(uint64(n), 3)))
		s := stateOf(t, disk, layout, models)
		s.atLeast(t, fmt.Sprintf("crash after operation %d", n), state{newest: min(10, durable[0]), running: durable})
		if r := mustVerify(t, disk); len(r.Damage) > 0 {
			t.Fatalf("crash after operation %d: %v", n, r.Damage)
		}
		if err == nil {
			if n < 150 {
				t.Fatalf("the story takes %d operations: the test tests too little", n)
			}
			return
		}
	}
}

// Clocks are not trusted: the newest checkpoint is the one with the greatest step, whatever the
// time says.
func TestAClockThatJumpsChangesNothing(t *testing.T) {
	layout := smallLayout(t)
	models := storyModels(t, layout)
	fsys := vfs.NewMem()
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 2, 1, 1)
	for step, year := range map[kintsugi.Step]int{10: 2031, 20: 1970, 30: 2026} {
		var files []string
		for _, w := range mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 2, 1, tr.fence).writers {
			w.newest = nil // here steps may come in any order
			r, err := w.Save(context.Background(), Snapshot{Step: step, Load: models[step].Load})
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, r.File)
		}
		m := &RunManifest{Line: 1, Step: step, Fence: 1, Rule: kintsugi.RuleMomentum, Tensors: layout.Tensors, Created: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)}
		if err := PublishRun(fsys, testDir, m, files); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Compact(fsys, testDir, Retention{Newest: 1}); err != nil {
		t.Fatal(err)
	}
	if s := stateOf(t, fsys, layout, models); s.newest != 30 {
		t.Errorf("the newest checkpoint is of step %d", s.newest)
	}
}
