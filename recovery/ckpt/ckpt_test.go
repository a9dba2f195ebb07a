package ckpt

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

func TestWhatWasSavedIsRestoredToTheBit(t *testing.T) {
	layout := mustLayout(t,
		kintsugi.Tensor{Name: "embedding", Shape: []int{700, 33}},
		kintsugi.Tensor{Name: "wide", Shape: []int{2, 90000}},
		kintsugi.Tensor{Name: "bias", Shape: []int{5}},
	)
	for _, rule := range []kintsugi.Rule{kintsugi.RuleSGD, kintsugi.RuleNesterov, kintsugi.RuleAdamW, kintsugi.RuleAdagrad, kintsugi.RuleLazyAdam} {
		for _, shards := range []int{1, 3} {
			fsys := vfs.NewMem()
			want := model(t, layout, rule, 1)
			saved := mustTrainer(t, fsys, layout, rule, shards, 1, 1).mustSave(t, 10, want)
			m, skipped, err := Newest(fsys, testDir)
			if err != nil || len(skipped) > 0 || m.Name() != saved.Name() {
				t.Fatalf("rule %d, %d shards: newest is %v, skipped %v, error %v", rule, shards, m, skipped, err)
			}
			got, err := restoreAll(fsys, m, layout, rule)
			if err != nil {
				t.Fatal(err)
			}
			if !same(got, want) {
				t.Errorf("rule %d, %d shards: the restored model differs", rule, shards)
			}
			if r := mustVerify(t, fsys); len(r.Damage) > 0 || len(r.Unpublished) > 0 || len(r.Checkpoints) != 1 {
				t.Errorf("rule %d, %d shards: verify says %+v", rule, shards, r)
			}
		}
	}
}

func TestCheckpointRestoresOnAnyNumberOfShards(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	want := model(t, layout, kintsugi.RuleMomentum, 1)
	m := mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 2, 1, 1).mustSave(t, 10, want)
	for _, shards := range []int{1, 3, 5, len(layout.Chunks) + 3} { // with more shards than chunks, some are empty
		for i, r := range layout.Split(shards) {
			got, err := NewFlat(layout, r, kintsugi.RuleMomentum)
			if err != nil {
				t.Fatal(err)
			}
			if err := Restore(context.Background(), fsys, testDir, m, layout, r, got.Place); err != nil {
				t.Fatal(err)
			}
			for id := r.Lo; id < r.Hi; id++ {
				g, w := got.Chunk(id), want.Chunk(id)
				if !sameBits(g.Params, w.Params) || !sameBits(g.State[0], w.State[0]) || got.Steps[id-r.Lo] != want.Steps[id] {
					t.Errorf("shard %d of %d: chunk %d differs", i, shards, id)
				}
			}
		}
	}
	fsys = vfs.NewMem()
	m = mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, len(layout.Chunks)+3, 1, 1).mustSave(t, 10, want)
	if got, err := restoreAll(fsys, m, layout, kintsugi.RuleMomentum); err != nil || !same(got, want) {
		t.Errorf("saved with empty shards: error %v, or the model differs", err)
	}
}

func TestParametersCanBeRestoredWithoutState(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	want := model(t, layout, kintsugi.RuleAdam, 1)
	m := mustTrainer(t, fsys, layout, kintsugi.RuleAdam, 2, 1, 1).mustSave(t, 10, want)
	got, err := restoreAll(fsys, m, layout, kintsugi.RuleSGD)
	if err != nil || !sameBits(got.Params, want.Params) {
		t.Errorf("parameters of an adam checkpoint: error %v, or they differ", err)
	}

	fsys = vfs.NewMem()
	m = mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 2, 1, 1).mustSave(t, 10, want)
	if _, err := restoreAll(fsys, m, layout, kintsugi.RuleAdam); !errors.Is(err, kintsugi.ErrOtherModel) {
		t.Errorf("an sgd checkpoint gave adam its moments: error %v", err)
	}
}

func TestNewestIsTheGreatestLineThenStepThenFence(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	if _, _, err := Newest(fsys, testDir); !errors.Is(err, ErrNoCheckpoint) {
		t.Fatalf("an empty directory: error %v", err)
	}
	var want []string
	for _, at := range []struct {
		line  kintsugi.Line
		step  kintsugi.Step
		fence kintsugi.Fence
	}{{1, 9, 1}, {1, 10, 1}, {1, 10, 2}, {1, 100, 2}, {2, 50, 3}} {
		tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 1, at.line, at.fence)
		want = append(want, tr.mustSave(t, at.step, model(t, layout, kintsugi.RuleSGD, uint64(at.step))).Name())
		m, _, err := Newest(fsys, testDir)
		if err != nil || m.Name() != want[len(want)-1] {
			t.Fatalf("after line %d step %d fence %d the newest is %v, error %v", at.line, at.step, at.fence, m, err)
		}
	}
	slices.Reverse(want)
	if got, err := List(fsys, testDir); err != nil || !slices.Equal(got, want) {
		t.Errorf("list: %v, error %v, want %v", got, err, want)
	}
}

func TestDamagedNewestFallsBackAndSaysSo(t *testing.T) {
	layout := smallLayout(t)
	rule := kintsugi.RuleSGD
	damage := map[string]func(m *RunManifest, fsys *vfs.Mem) (file string, err error){
		"run manifest": func(m *RunManifest, fsys *vfs.Mem) (string, error) {
			return m.Name(), fsys.Edit(inDir(m.Name()), func(b []byte) []byte { b[20] ^= 1; return b })
		},
		"shard manifest": func(m *RunManifest, fsys *vfs.Mem) (string, error) {
			f := m.Shards[1].File
			return f, fsys.Edit(inDir(f), func(b []byte) []byte { b[20] ^= 1; return b })
		},
		"missing shard manifest": func(m *RunManifest, fsys *vfs.Mem) (string, error) {
			f := m.Shards[1].File
			return f, fsys.Remove(inDir(f))
		},
		"short segment": func(m *RunManifest, fsys *vfs.Mem) (string, error) {
			f := strings.Replace(m.Shards[0].File, shardDir, segmentDir, 1)
			return f, fsys.Edit(inDir(f), func(b []byte) []byte { return b[:len(b)-1] })
		},
		"missing segment": func(m *RunManifest, fsys *vfs.Mem) (string, error) {
			f := strings.Replace(m.Shards[0].File, shardDir, segmentDir, 1)
			return f, fsys.Remove(inDir(f))
		},
		"empty run manifest": func(m *RunManifest, fsys *vfs.Mem) (string, error) {
			return m.Name(), fsys.Edit(inDir(m.Name()), func(b []byte) []byte { return nil })
		},
	}
	for name, spoil := range damage {
		fsys := vfs.NewMem()
		tr := mustTrainer(t, fsys, layout, rule, 2, 1, 1)
		want := model(t, layout, rule, 1)
		old := tr.mustSave(t, 10, want)
		file, err := spoil(tr.mustSave(t, 20, model(t, layout, rule, 2)), fsys)
		if err != nil {
			t.Fatal(err)
		}
		m, skipped, err := Newest(fsys, testDir)
		if err != nil || m.Name() != old.Name() {
			t.Errorf("%s: newest is %v, error %v; want the one before", name, m, err)
			continue
		}
		if len(skipped) != 1 || !errors.Is(skipped[0], kintsugi.ErrCorrupt) || !strings.Contains(skipped[0].Error(), file) {
			t.Errorf("%s: skipped %v, want damage in %s", name, skipped, file)
		}
		if got, err := restoreAll(fsys, m, layout, rule); err != nil || !same(got, want) {
			t.Errorf("%s: the checkpoint before does not restore: %v", name, err)
		}
		// A writer that opens now saves again, beside what is intact.
		mustTrainer(t, fsys, layout, rule, 2, 1, 2).mustSave(t, 20, want)
	}
}

// If a run went on from an older checkpoint because a disk was away for a moment, it would silently
// lose work.
func TestTransientErrorsDoNotFallBack(t *testing.T) {
	layout := smallLayout(t)
	mem := vfs.NewMem()
	tr := mustTrainer(t, mem, layout, kintsugi.RuleSGD, 2, 1, 1)
	tr.mustSave(t, 10, model(t, layout, kintsugi.RuleSGD, 1))
	newest := tr.mustSave(t, 20, model(t, layout, kintsugi.RuleSGD, 2))
	failing := func(err error) vfs.FS {
		return vfs.NewInjector(mem, func(op vfs.Op) vfs.Fault {
			if op.Kind == vfs.OpRead && op.Name == inDir(newest.Name()) {
				return vfs.Fault{Err: err}
			}
			return vfs.Fault{}
		})
	}
	if m, _, err := Newest(failing(syscall.EACCES), testDir); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("no permission: got %v, error %v", m, err)
	}
	// A sector that cannot be read stays unreadable, so older checkpoints are tried.
	if m, skipped, err := Newest(failing(syscall.EIO), testDir); err != nil || m.Step != 10 || len(skipped) != 1 {
		t.Errorf("unreadable sector: got %v, skipped %v, error %v", m, skipped, err)
	}
}

func TestAnotherModelIsRefusedByItsFirstTensorThatDiffers(t *testing.T) {
	fsys := vfs.NewMem()
	layout := smallLayout(t)
	m := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 1, 1, 1).mustSave(t, 10, model(t, layout, kintsugi.RuleSGD, 1))
	for _, c := range []struct {
		want    string
		tensors []kintsugi.Tensor
	}{
		{"tensor 1 as fc1.bias [6], the model has fc1.bias [7]", []kintsugi.Tensor{layout.Tensors[0], {Name: "fc1.bias", Shape: []int{7}}, layout.Tensors[2]}},
		{"tensor 0 as fc1.weight [6 10], the model has conv [6 10]", []kintsugi.Tensor{{Name: "conv", Shape: []int{6, 10}}}},
		{"holds tensor fc2.weight [3 6], which the model does not have", layout.Tensors[:2]},
		{"lacks tensor fc3 [2] of the model", append(slices.Clone(layout.Tensors), kintsugi.Tensor{Name: "fc3", Shape: []int{2}})},
	} {
		_, err := restoreAll(fsys, m, mustLayout(t, c.tensors...), kintsugi.RuleSGD)
		if !errors.Is(err, kintsugi.ErrOtherModel) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func TestNewerFormatIsRefusedAndNotSkipped(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 1, 1, 1)
	tr.mustSave(t, 10, model(t, layout, kintsugi.RuleSGD, 1))
	m := tr.mustSave(t, 20, model(t, layout, kintsugi.RuleSGD, 2))
	m.Version = FormatVersion + 1
	content, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := fsys.Edit(inDir(m.Name()), func([]byte) []byte { return content }); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Newest(fsys, testDir); !errors.Is(err, kintsugi.ErrOtherModel) || !strings.Contains(err.Error(), "use a newer kintsugi") {
		t.Errorf("error %v", err)
	}
}

func TestSecondPublishOfANameNeedsTheSameBytes(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 2, 1, 1)
	m := tr.mustSave(t, 10, model(t, layout, kintsugi.RuleSGD, 1))
	files := []string{m.Shards[1].File, m.Shards[0].File}
	if _, err := tr.publish(10, files); err != nil {
		t.Errorf("the same again: %v", err)
	}
	again := *m
	again.Seed++
	if err := PublishRun(fsys, testDir, &again, files); !errors.Is(err, ErrPublished) {
		t.Errorf("other content under the same name: error %v", err)
	}
	if got, err := Read(fsys, testDir, m.Name()); err != nil || got.Seed != m.Seed {
		t.Errorf("the first one has changed: %v, error %v", got, err)
	}
}

func TestOnlyWholeCheckpointsArePublished(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	f := model(t, layout, kintsugi.RuleSGD, 1)
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 2, 1, 1)
	m := tr.mustSave(t, 10, f)
	a, b := m.Shards[0].File, m.Shards[1].File
	part, err := tr.writers[0].Save(context.Background(), Snapshot{Step: 11, Chunks: []kintsugi.ChunkID{1}, Load: f.Load})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := tr.writers[1].Save(context.Background(), Snapshot{Step: 11, Load: f.Load})
	if err != nil {
		t.Fatal(err)
	}
	if part.Complete || !whole.Complete {
		t.Errorf("a part says complete: %t; a whole: %t", part.Complete, whole.Complete)
	}
	for name, c := range map[string]struct {
		step  kintsugi.Step
		files []string
	}{
		"no shards":                {10, nil},
		"a shard missing":          {10, []string{a}},
		"the other":                {10, []string{b}},
		"a shard twice":            {10, []string{a, a, b}},
		"another step":             {11, []string{a, whole.File}},
		"only a part":              {11, []string{part.File, whole.File}},
		"a file that is not there": {10, []string{a, strings.Replace(b, "0000010-", "0000099-", 1)}},
		"not a name":               {10, []string{a, "shard/../" + b}},
	} {
		if _, err := tr.publish(c.step, c.files); err == nil || errors.Is(err, ErrPublished) {
			t.Errorf("%s: published, error %v", name, err)
		}
	}
	if err := fsys.Remove(inDir(path.Join(segmentDir, path.Base(b)))); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.publish(10, []string{a, b}); !errors.Is(err, kintsugi.ErrCorrupt) {
		t.Errorf("without a segment: published, error %v", err)
	}
}

func TestPartialSavesKeepTheNewestValueOfEachChunk(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 1, 1, 1)
	n := kintsugi.ChunkID(len(layout.Chunks))
	newest := make([]kintsugi.Step, n)
	models := map[kintsugi.Step]*Flat{}
	for step := kintsugi.Step(1); step <= 12; step++ {
		models[step] = model(t, layout, kintsugi.RuleMomentum, uint64(step))
		chunks := []kintsugi.ChunkID{kintsugi.ChunkID(step) % n}
		if step == 5 {
			tr = mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 1, 1, 2) // another process goes on
		}
		if _, err := tr.writers[0].Save(context.Background(), Snapshot{Step: step, Chunks: chunks, Load: models[step].Load}); err != nil {
			t.Fatal(err)
		}
		newest[chunks[0]] = step
		if step%4 == 0 {
			if _, err := Compact(fsys, testDir, Retention{Newest: 1}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := NewFlat(layout, kintsugi.ChunkRange{Hi: n}, kintsugi.RuleMomentum)
		if err != nil {
			t.Fatal(err)
		}
		report, err := RestoreRunning(context.Background(), fsys, testDir, Lines{First: 1, Last: 1}, layout, got.Range, got.Place)
		if err != nil || len(report.Skipped) > 0 {
			t.Fatalf("step %d: %+v, error %v", step, report, err)
		}
		if !slices.Equal(got.Saved, newest) {
			t.Fatalf("step %d: chunks come from steps %v, want %v", step, got.Saved, newest)
		}
		for id, s := range newest {
			id := kintsugi.ChunkID(id)
			if s == 0 != slices.Contains(report.Missing, id) {
				t.Errorf("step %d: chunk %d of step %d, missing are %v", step, id, s, report.Missing)
			}
			if s > 0 && !sameBits(got.Chunk(id).Params, models[s].Chunk(id).Params) {
				t.Errorf("step %d: chunk %d is not that of step %d", step, id, s)
			}
		}
	}
	if r := mustVerify(t, fsys); len(r.Damage) > 0 || len(r.Unpublished) > 0 {
		t.Errorf("verify: %+v", r)
	}
}

func TestDamagedChunkFallsBackToItsValueBefore(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 1, 1, 1)
	old, young := model(t, layout, kintsugi.RuleSGD, 1), model(t, layout, kintsugi.RuleSGD, 2)
	tr.mustSave(t, 10, old)
	m := tr.mustSave(t, 20, young)
	s, _, err := ReadShard(fsys, testDir, m.Shards[0].File)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.writers[0].Save(t.Context(), Snapshot{Step: 21, Chunks: []kintsugi.ChunkID{0}, Load: young.Load}); err != nil {
		t.Fatal(err) // its manifest names the other values again
	}
	e := s.Chunks[2]
	if err := fsys.Edit(inDir(s.Segments[e.Segment].File), func(b []byte) []byte { b[e.Offset+headerBytes] ^= 1; return b }); err != nil {
		t.Fatal(err)
	}
	got, _ := NewFlat(layout, old.Range, kintsugi.RuleSGD)
	report, err := RestoreRunning(context.Background(), fsys, testDir, Lines{First: 1, Last: 1}, layout, got.Range, got.Place)
	if err != nil || len(report.Missing) > 0 || len(report.Skipped) != 1 {
		t.Fatalf("%+v, error %v", report, err)
	}
	for id := range got.Range.Hi {
		want, step := young, kintsugi.Step(20)
		switch id {
		case 0:
			step = 21
		case e.Chunk:
			want, step = old, 10
		}
		if got.Saved[id] != step || !sameBits(got.Chunk(id).Params, want.Chunk(id).Params) {
			t.Errorf("chunk %d comes from step %d, want %d", id, got.Saved[id], step)
		}
	}
	// For a full restore there is no older value of that step. Its error says which chunk of which
	// tensor is damaged.
	_, err = restoreAll(fsys, m, layout, kintsugi.RuleSGD)
	d, ok := errors.AsType[*Damage](err)
	if !ok || d.Chunk != int64(e.Chunk) || d.Offset != e.Offset || d.File != s.Segments[0].File || d.Tensor != "fc1.weight" {
		t.Errorf("full restore: %v", err)
	}
}

func TestCorruptValuesAreNeverPlaced(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	m := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 1, 1, 1).mustSave(t, 10, model(t, layout, kintsugi.RuleSGD, 1))
	s, _, err := ReadShard(fsys, testDir, m.Shards[0].File)
	if err != nil {
		t.Fatal(err)
	}
	if err := fsys.Edit(inDir(s.Segments[0].File), func(b []byte) []byte { b[s.Chunks[1].Offset+headerBytes] ^= 1; return b }); err != nil {
		t.Fatal(err)
	}
	err = Restore(context.Background(), fsys, testDir, m, layout, kintsugi.ChunkRange{Lo: 1, Hi: 2}, func(c ChunkInfo) (Arrays, error) {
		t.Errorf("chunk %d was placed", c.Chunk)
		return Arrays{}, nil
	})
	if !errors.Is(err, kintsugi.ErrCorrupt) {
		t.Errorf("error %v", err)
	}
}

func TestWriterOfAnOldFenceIsRefused(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 1, 1, 5).mustSave(t, 10, model(t, layout, kintsugi.RuleSGD, 1))
	if _, err := openTrainer(fsys, layout, kintsugi.RuleSGD, 1, 1, 4); !errors.Is(err, kintsugi.ErrFenced) {
		t.Errorf("fence 4 after fence 5: error %v", err)
	}
}

func TestSaveCanBeTriedAgainAfterAnError(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS} {
		t.Run(fault.Error(), func(t *testing.T) { checkSecondTry(t, fault) })
	}
}

func checkSecondTry(t *testing.T, fault error) {
	layout := smallLayout(t)
	want := model(t, layout, kintsugi.RuleAdam, 2)
	for n := 0; ; n++ {
		mem := vfs.NewMem()
		mustTrainer(t, mem, layout, kintsugi.RuleAdam, 1, 1, 1).mustSave(t, 10, model(t, layout, kintsugi.RuleAdam, 1))
		first := 0 // first failing operation of the save
		inj := vfs.NewInjector(mem, func(op vfs.Op) vfs.Fault { return vfs.FailAt(first+n, fault)(op) })
		tr, err := openTrainer(inj, layout, kintsugi.RuleAdam, 1, 1, 1)
		if err == nil {
			_, err = tr.save(20, want)
		}
		if inj.Operations() <= n {
			if n < 20 {
				t.Fatalf("a save takes %d operations: the test tests nothing", n)
			}
			return
		}
		if err != nil && !errors.Is(err, fault) {
			t.Fatalf("operation %d fails: the error is %v", n, err)
		}
		if tr == nil {
			tr = mustTrainer(t, inj, layout, kintsugi.RuleAdam, 1, 1, 1)
		}
		if _, err := tr.save(20, want); err != nil && !errors.Is(err, ErrPublished) {
			t.Fatalf("operation %d failed, and so does the second try: %v", n, err)
		}
		m, _, err := Newest(mem, testDir)
		if err != nil || m.Step != 20 {
			t.Fatalf("operation %d failed: newest is %v, error %v", n, m, err)
		}
		if got, err := restoreAll(mem, m, layout, kintsugi.RuleAdam); err != nil || !same(got, want) {
			t.Fatalf("operation %d failed: the second try does not restore: %v", n, err)
		}
		if r := mustVerify(t, mem); len(r.Damage) > 0 {
			t.Fatalf("operation %d failed: %v", n, r.Damage)
		}
	}
}

func TestCancelledSavePublishesNothing(t *testing.T) {
	layout := mustLayout(t, kintsugi.Tensor{Name: "w", Shape: []int{40, 50000}})
	fsys := vfs.NewMem()
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 1, 1, 1)
	ctx, cancel := context.WithCancel(context.Background())
	f := model(t, layout, kintsugi.RuleSGD, 1)
	_, err := tr.writers[0].Save(ctx, Snapshot{Step: 1, Load: func(id kintsugi.ChunkID) (Arrays, uint64) {
		cancel()
		return f.Load(id)
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left := fsys.Walk("."); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestColdChunksBoundTheDisk(t *testing.T) {
	layout := mustLayout(t, kintsugi.Tensor{Name: "w", Shape: []int{64, 16}})
	fsys := vfs.NewMem()
	w := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 1, 1, 1).writers[0]
	f := model(t, layout, kintsugi.RuleSGD, 1)
	first, err := w.Save(context.Background(), Snapshot{Step: 1, Load: f.Load})
	if err != nil {
		t.Fatal(err)
	}
	limit := 2 * first.Live
	for step := kintsugi.Step(2); step < 200; step++ {
		// The same half of the chunks moves all the time. Of the others, one moves once, and leaves a
		// segment that stays because of it until Cold asks for that chunk.
		chunks := append(w.Cold(limit), 32+kintsugi.ChunkID(step)%32)
		for id := kintsugi.ChunkID(0); id < 32; id++ {
			chunks = append(chunks, id)
		}
		slices.Sort(chunks)
		r, err := w.Save(context.Background(), Snapshot{Step: step, Chunks: slices.Compact(chunks), Load: f.Load})
		if err != nil {
			t.Fatal(err)
		}
		if r.Stored > limit+r.Written {
			t.Fatalf("step %d: the running checkpoint needs %d bytes for %d", step, r.Stored, r.Live)
		}
	}
}

func TestOnARealDisk(t *testing.T) {
	layout := smallLayout(t)
	dir := path.Join(t.TempDir(), "runs", "demo")
	want := model(t, layout, kintsugi.RuleAdam, 1)
	w, err := OpenWriter(vfs.OS{}, dir, WriterConfig{
		Layout: layout, Rule: kintsugi.RuleAdam, Range: want.Range, Line: 1, Fence: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for step := kintsugi.Step(1); step <= 4; step++ {
		r, err := w.Save(context.Background(), Snapshot{Step: step, Load: want.Load})
		if err != nil {
			t.Fatal(err)
		}
		m := &RunManifest{Line: 1, Step: step, Fence: 1, Rule: kintsugi.RuleAdam, Tensors: layout.Tensors}
		if err := PublishRun(vfs.OS{}, dir, m, []string{r.File}); err != nil {
			t.Fatal(err)
		}
		if _, err := Compact(vfs.OS{}, dir, Retention{}); err != nil {
			t.Fatal(err)
		}
	}
	for folder, files := range map[string]int{runDir: 2, shardDir: 2, segmentDir: 2, tmpDir: 0} {
		names, err := os.ReadDir(path.Join(dir, folder))
		if err != nil || len(names) != files {
			t.Errorf("%s holds %v, error %v; want %d files", folder, names, err, files)
		}
	}
	report, err := Verify(context.Background(), vfs.OS{}, dir, nil)
	if err != nil || len(report.Damage) > 0 || len(report.Checkpoints) != 2 {
		t.Errorf("verify: %+v, error %v", report, err)
	}
	m, _, err := Newest(vfs.OS{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := NewFlat(layout, want.Range, kintsugi.RuleAdam)
	if err := Restore(context.Background(), vfs.OS{}, dir, m, layout, got.Range, got.Place); err != nil || !same(got, want) {
		t.Errorf("restore: %v, or the model differs", err)
	}
}
