package ckpt

import (
	"context"
	"errors"
	"path"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

func TestCompactKeepsTheNewestFullCheckpoints(t *testing.T) {
	layout := smallLayout(t)
	for keep, want := range map[int][]kintsugi.Step{0: {50, 40}, 1: {50}, 3: {50, 40, 30}, 9: {50, 40, 30, 20, 10}} {
		fsys := vfs.NewMem()
		tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 2, 1, 1)
		for step := kintsugi.Step(10); step <= 50; step += 10 {
			tr.mustSave(t, step, model(t, layout, kintsugi.RuleSGD, uint64(step)))
		}
		before := fsys.Walk(testDir)
		r, err := Compact(fsys, testDir, Retention{Newest: keep})
		if err != nil {
			t.Fatal(err)
		}
		var kept []kintsugi.Step
		for _, name := range r.Kept {
			m, err := Read(fsys, testDir, name)
			if err != nil {
				t.Fatal(err)
			}
			kept = append(kept, m.Step)
			if got, err := restoreAll(fsys, m, layout, kintsugi.RuleSGD); err != nil || !same(got, model(t, layout, kintsugi.RuleSGD, uint64(m.Step))) {
				t.Errorf("keep %d: step %d does not restore: %v", keep, m.Step, err)
			}
		}
		if !slices.Equal(kept, want) {
			t.Errorf("keep %d: kept steps %v, want %v", keep, kept, want)
		}
		if after := fsys.Walk(testDir); len(after) != 5*len(want) || len(before)-len(after) != len(r.Removed) {
			t.Errorf("keep %d: %d files are left, %d removed of %d", keep, len(after), len(r.Removed), len(before))
		}
		if again, err := Compact(fsys, testDir, Retention{Newest: keep}); err != nil || len(again.Removed) > 0 {
			t.Errorf("keep %d: the second time removes %v, error %v", keep, again.Removed, err)
		}
	}
}

// A damaged checkpoint is no reason to remove an intact one.
func TestCompactDoesNotCountDamagedCheckpoints(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 2, 1, 1)
	for step := kintsugi.Step(10); step <= 40; step += 10 {
		m := tr.mustSave(t, step, model(t, layout, kintsugi.RuleSGD, uint64(step)))
		if step >= 30 {
			if err := fsys.Edit(inDir(m.Shards[0].File), func(b []byte) []byte { return b[1:] }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := Compact(fsys, testDir, Retention{Newest: 1}); err != nil {
		t.Fatal(err)
	}
	m, _, err := Newest(fsys, testDir)
	if err != nil || m.Step != 20 {
		t.Fatalf("newest is %v, error %v", m, err)
	}
	if got, err := restoreAll(fsys, m, layout, kintsugi.RuleSGD); err != nil || !same(got, model(t, layout, kintsugi.RuleSGD, 20)) {
		t.Errorf("step 20 does not restore: %v", err)
	}
	if left, err := List(fsys, testDir); err != nil || len(left) != 3 {
		t.Errorf("run manifests left: %v, error %v", left, err)
	}
}

// restored restores each checkpoint that is left, compares it with the model of its step, and
// returns the steps, newest first.
func restored(t *testing.T, fsys vfs.FS, layout *kintsugi.Layout) (steps []kintsugi.Step) {
	t.Helper()
	left, err := List(fsys, testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		m, err := Read(fsys, testDir, name)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, m.Step)
		if got, err := restoreAll(fsys, m, layout, kintsugi.RuleSGD); err != nil || !same(got, model(t, layout, kintsugi.RuleSGD, uint64(m.Step))) {
			t.Errorf("step %d does not restore: %v", m.Step, err)
		}
	}
	return steps
}

// Of older checkpoints, the first of each so many steps stays, whether Compact runs after each save
// or once, and also on a line that begins in between.
func TestCompactKeepsOneCheckpointOfEachPeriod(t *testing.T) {
	layout := smallLayout(t)
	keep := Retention{Newest: 2, Every: 40}
	for _, each := range []bool{false, true} {
		fsys := vfs.NewMem()
		compactor := new(Compactor)
		for line, steps := range [][]kintsugi.Step{{10, 20, 30, 40, 50, 60}, {70, 80, 90, 170}, {180, 190, 200, 210, 220, 230}} {
			tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 2, kintsugi.Line(line+1), 1)
			for _, step := range steps {
				tr.mustSave(t, step, model(t, layout, kintsugi.RuleSGD, uint64(step)))
				if each {
					if _, err := compactor.Compact(fsys, testDir, keep); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		report, err := compactor.Compact(fsys, testDir, keep)
		if err != nil {
			t.Fatal(err)
		}
		left, err := List(fsys, testDir)
		if err != nil || !slices.Equal(left, report.Kept) {
			t.Errorf("%v are left, and %v are said to be kept (%v)", left, report.Kept, err)
		}
		if steps, want := restored(t, fsys, layout), []kintsugi.Step{230, 220, 200, 170, 80, 40}; !slices.Equal(steps, want) {
			t.Errorf("steps %v are left, want %v", steps, want)
		}
		if files := len(fsys.Walk(testDir)); files != 5*6 {
			t.Errorf("%d files are left of 6 checkpoints with 5 files each", files)
		}
		if again, err := Compact(fsys, testDir, keep); err != nil || len(again.Removed) > 0 {
			t.Errorf("the second time removes %v, error %v", again.Removed, err)
		}
		if report, err = Compact(fsys, testDir, Retention{}); err != nil || len(report.Kept) != DefaultKeep || len(fsys.Walk(testDir)) != 5*DefaultKeep {
			t.Errorf("the default keeps %v, error %v", report.Kept, err)
		}
	}
}

// What older checkpoints name is not read twice, and they are kept all the same.
func TestCompactorReadsOlderCheckpointsOnce(t *testing.T) {
	layout := smallLayout(t)
	fsys, compactor, keep := vfs.NewMem(), new(Compactor), Retention{Newest: 1, Every: 10}
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 2, 1, 1)
	save := func(step kintsugi.Step) CompactReport {
		t.Helper()
		tr.mustSave(t, step, model(t, layout, kintsugi.RuleSGD, uint64(step)))
		report, err := compactor.Compact(fsys, testDir, keep)
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	for step := kintsugi.Step(10); step <= 50; step += 10 {
		save(step)
	}
	names, err := List(fsys, testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names[1:] { // whoever reads them finds that they are damaged
		m, err := Read(fsys, testDir, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, ref := range append(m.Shards, ShardRef{File: name}) {
			if err := fsys.Edit(inDir(ref.File), func(b []byte) []byte { return b[:len(b)/2] }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if report := save(60); len(report.Kept) != 6 || len(report.Removed) > 0 {
		t.Errorf("%d of 6 checkpoints are kept, and %v removed", len(report.Kept), report.Removed)
	}
	if report, err := Compact(fsys, testDir, keep); err != nil || len(report.Kept) != 2 {
		t.Errorf("a new Compactor takes %d checkpoints for whole, error %v; want those that are", len(report.Kept), err)
	}
}

// An older checkpoint that is damaged, in its run manifest or in a shard's, is not the one that is
// kept for its steps, and can still be repaired.
func TestCompactLeavesADamagedOlderCheckpointToRepair(t *testing.T) {
	layout := smallLayout(t)
	for damaged, file := range map[string]func(m *RunManifest) string{
		"a run manifest": (*RunManifest).Name, "a shard's manifest": func(m *RunManifest) string { return m.Shards[0].File },
	} {
		t.Run(damaged, func(t *testing.T) { leavesToRepair(t, layout, file) })
	}
}

func leavesToRepair(t *testing.T, layout *kintsugi.Layout, file func(m *RunManifest) string) {
	fsys := vfs.NewMem()
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 2, 1, 1)
	for step := kintsugi.Step(40); step <= 100; step += 10 {
		m := tr.mustSave(t, step, model(t, layout, kintsugi.RuleSGD, uint64(step)))
		if step == 40 {
			if err := fsys.Edit(inDir(file(m)), func(b []byte) []byte { return b[:len(b)/2] }); err != nil {
				t.Fatal(err)
			}
		}
	}
	report, err := Compact(fsys, testDir, Retention{Newest: 1, Every: 40})
	if err != nil || len(report.Kept) != 3 {
		t.Fatalf("kept %v, error %v", report.Kept, err)
	}
	if _, err := Repair(context.Background(), fsys, testDir, RepairConfig{}); err != nil {
		t.Fatal(err)
	}
	if steps, want := restored(t, fsys, layout), []kintsugi.Step{100, 80, 50, 40}; !slices.Equal(steps, want) {
		t.Errorf("steps %v are left, want %v", steps, want)
	}
}

// Another process compacts at each moment of a save. The save must still succeed.
func TestCompactLeavesSavesInProgressAlone(t *testing.T) {
	layout := smallLayout(t)
	for n := 0; ; n++ {
		mem := vfs.NewMem()
		tr := mustTrainer(t, mem, layout, kintsugi.RuleSGD, 3, 1, 1)
		tr.mustSave(t, 10, model(t, layout, kintsugi.RuleSGD, 10))
		inj := vfs.NewInjector(mem, func(op vfs.Op) vfs.Fault {
			if op.N == n {
				if _, err := Compact(mem, testDir, Retention{Newest: 1}); err != nil {
					t.Fatalf("compact before %v: %v", op, err)
				}
			}
			return vfs.Fault{}
		})
		want := model(t, layout, kintsugi.RuleSGD, 20)
		var files []string
		for i, w := range tr.writers {
			w.fs = inj
			// The first shards are ahead: they save more while the last is still busy with step 20.
			r, err := w.Save(context.Background(), Snapshot{Step: 20, Load: want.Load})
			if err != nil {
				t.Fatalf("compact before operation %d: %v", n, err)
			}
			files = append(files, r.File)
			for step := kintsugi.Step(21); i == 0 && step < 25; step++ {
				s := Snapshot{Step: step, Chunks: []kintsugi.ChunkID{0}, Load: want.Load}
				if _, err := w.Save(context.Background(), s); err != nil {
					t.Fatal(err)
				}
			}
		}
		tr.fs = inj
		m, err := tr.publish(20, files)
		if err != nil {
			t.Fatalf("compact before operation %d: %v", n, err)
		}
		if got, err := restoreAll(mem, m, layout, kintsugi.RuleSGD); err != nil || !same(got, want) {
			t.Fatalf("compact before operation %d: the checkpoint does not restore: %v", n, err)
		}
		if r := mustVerify(t, mem); len(r.Damage) > 0 {
			t.Fatalf("compact before operation %d: %v", n, r.Damage)
		}
		if inj.Operations() <= n {
			return
		}
	}
}

func TestAnOldLineGoesWithItsLastFullCheckpoint(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 4, 1, 1)
	tr.mustSave(t, 10, model(t, layout, kintsugi.RuleSGD, 10))
	old := tr.mustSave(t, 20, model(t, layout, kintsugi.RuleSGD, 20))
	// Line 2 begins at step 10 with fewer shards.
	second := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 2, 2, 2)
	if _, err := second.writers[0].Save(context.Background(), Snapshot{Step: 11, Chunks: []kintsugi.ChunkID{0}, Load: model(t, layout, kintsugi.RuleSGD, 1).Load}); err != nil {
		t.Fatal(err)
	}
	if _, err := Compact(fsys, testDir, Retention{Newest: 1}); err != nil {
		t.Fatal(err)
	}
	if m, _, err := Newest(fsys, testDir); err != nil || m.Name() != old.Name() {
		t.Fatalf("line 2 has no full checkpoint yet, but the newest is %v, error %v", m, err)
	}
	second.mustSave(t, 12, model(t, layout, kintsugi.RuleSGD, 12))
	if _, err := Compact(fsys, testDir, Retention{Newest: 1}); err != nil {
		t.Fatal(err)
	}
	for _, name := range fsys.Walk(testDir) {
		n, ok := parseShardName(path.Base(name))
		if ok && n.Line == 1 {
			t.Errorf("%s of line 1 is left", name)
		}
	}
	if _, err := Read(fsys, testDir, old.Name()); !errors.Is(err, kintsugi.ErrCorrupt) {
		t.Errorf("the checkpoint of line 1 can still be read: %v", err)
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	fsys := twoSaves(t)
	foreign := []string{"manifest/README", "segment/backup.tar", "tmp/mine", "shard/1-2-3-4-5"}
	for _, name := range foreign {
		if _, err := fsys.Create(inDir(name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Compact(fsys, testDir, Retention{Newest: 1}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(foreign)
	r := mustVerify(t, fsys)
	if slices.Sort(r.Unpublished); !slices.Equal(r.Unpublished, foreign) || len(r.Damage) > 0 {
		t.Errorf("verify: %+v", r)
	}
}

// overtake saves parts of both shards of a run as a writer with a later fence, and compacts after
// each.
func overtake(t *testing.T, fsys vfs.FS, layout *kintsugi.Layout, models map[kintsugi.Step]*Flat) {
	t.Helper()
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 2, 1, 2)
	for _, step := range []kintsugi.Step{25, 30, 35} {
		for _, w := range tr.writers {
			s := Snapshot{Step: step, Chunks: []kintsugi.ChunkID{w.cfg.Range.Lo + kintsugi.ChunkID(step/5)%3}, Load: models[step].Load}
			if _, err := w.Save(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Compact(fsys, testDir, Retention{Newest: 1}); err != nil {
			t.Fatal(err)
		}
	}
}

// A writer may be slow, and be overtaken in the middle of a save by a writer with a later fence
// that compacts after its saves. Whenever that happens, the late save is complete or absent, and
// everything else is as it was.
func TestAnOvertakenSaveIsWholeOrNone(t *testing.T) {
	t.Parallel()
	layout := smallLayout(t)
	models := storyModels(t, layout)
	for n := 0; ; n += stride() {
		mem := vfs.NewMem()
		late := mustTrainer(t, mem, layout, kintsugi.RuleMomentum, 2, 1, 1)
		late.mustSave(t, 10, models[10])
		overtaken := false
		late.fs = vfs.NewInjector(mem, func(op vfs.Op) vfs.Fault {
			if op.N == n {
				overtaken = true
				overtake(t, mem, layout, models)
			}
			return vfs.Fault{}
		})
		for _, w := range late.writers {
			w.fs = late.fs
		}
		_, err := late.save(20, models[20])
		if !overtaken {
			if n < 30 {
				t.Fatalf("a save takes %d operations: the test tests too little", n)
			}
			return
		}
		if err != nil {
			t.Errorf("overtaken before operation %d: %v", n, err)
		}
		if r := mustVerify(t, mem); len(r.Damage) > 0 {
			t.Errorf("overtaken before operation %d: %v", n, r.Damage)
		}
		if s := stateOf(t, mem, layout, models); s.newest != 20 || slices.Min(s.running) < 20 {
			t.Errorf("overtaken before operation %d: the newest checkpoint is of step %d, chunks of %d", n, s.newest, s.running)
		}
	}
}
