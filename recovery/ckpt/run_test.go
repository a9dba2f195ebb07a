package ckpt

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// Its checksum is right each time: only what it says is wrong.
func TestARunManifestThatContradictsItselfIsDamaged(t *testing.T) {
	for want, change := range map[string]func(m *RunManifest){
		"rule 99":              func(m *RunManifest) { m.Rule = 99 },
		"no tensors":           func(m *RunManifest) { m.Tensors = nil },
		"the tensors have":     func(m *RunManifest) { m.Tensors[0].Name = "other" },
		"no name of a shard":   func(m *RunManifest) { m.Shards[1].File = "segment/" + path.Base(m.Shards[1].File) },
		"in place of shard 0":  func(m *RunManifest) { m.Shards[0], m.Shards[1] = m.Shards[1], m.Shards[0] },
		"in place of shard 1":  func(m *RunManifest) { m.Shards[1].Shard = 2 },
		") in place of shard":  func(m *RunManifest) { m.Shards[1].File = m.Shards[0].File },
		"another line":         func(m *RunManifest) { m.Line++ },
		"or step":              func(m *RunManifest) { m.Step++ },
		"want [4,":             func(m *RunManifest) { m.Shards[1].Lo++ },
		"[4, 2), want":         func(m *RunManifest) { m.Shards[1].Hi = 2 },
		"-1 bytes":             func(m *RunManifest) { m.Shards[1].Hi, m.Shards[1].Bytes = 4, -1 },
		"268435457 bytes":      func(m *RunManifest) { m.Shards[1].Bytes = maxManifest + 1 },
		"manifest of 64 bytes": func(m *RunManifest) { m.Shards[1].Bytes = entryBytes },
		"no chunks":            func(m *RunManifest) { m.Shards = nil },
		"values in":            func(m *RunManifest) { m.Tensors = []kintsugi.Tensor{{Name: "x", Shape: []int{1 << 30}}} },
	} {
		layout := smallLayout(t)
		m := mustTrainer(t, vfs.NewMem(), layout, kintsugi.RuleSGD, 2, 1, 1).mustSave(t, 10, model(t, layout, kintsugi.RuleSGD, 1))
		if m.Shards[1].Lo != 4 {
			t.Fatalf("the second shard begins with chunk %d", m.Shards[1].Lo)
		}
		change(m)
		if want != "the tensors have" { // the one change that the fingerprint is to notice
			m.Fingerprint = fingerprint(m.Tensors)
		}
		content, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeRun(m.Name(), content); !errors.Is(err, kintsugi.ErrCorrupt) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}

// Sizes are checked before they are multiplied.
func TestTensorsThatNoModelHasAreDamage(t *testing.T) {
	half := kintsugi.Tensor{Name: "half", Shape: []int{maxValues / 4, 2}}
	for want, tensors := range map[string][]kintsugi.Tensor{
		`tensor 1 has name ""`:                 {half, {Shape: []int{1}}},
		`tensor 0 has name "\xff"`:             {{Name: "\xff", Shape: []int{1}}},
		`tensor 0 has name "x" and shape []`:   {{Name: "x"}},
		"tensor x has shape [3 0 3]":           {{Name: "x", Shape: []int{3, 0, 3}}},
		"tensor x has shape [-1]":              {{Name: "x", Shape: []int{-1}}},
		"tensor x has shape [-2 -2]":           {{Name: "x", Shape: []int{-2, -2}}},
		"tensor x has shape [4294967296 65537": {{Name: "x", Shape: []int{1 << 32, 1<<16 + 1, 1 << 62}}},
		"more than 281474976710656 values":     {half, half, {Name: "one", Shape: []int{1}}},
	} {
		if _, err := checkTensors(tensors); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	if n, err := checkTensors([]kintsugi.Tensor{half, half}); n != maxValues || err != nil {
		t.Errorf("%d values, %v", n, err)
	}
}

// A server that died between link and sync has left a shard manifest that is visible but not
// durable. A checkpoint that names it is durable all the same once it is published.
func TestAPublishedCheckpointIsDurable(t *testing.T) {
	layout := smallLayout(t)
	f := model(t, layout, kintsugi.RuleMomentum, 1)
	for n := 0; ; n++ {
		mem := vfs.NewMem()
		tr := mustTrainer(t, mem, layout, kintsugi.RuleMomentum, 2, 1, 1)
		process := vfs.NewInjector(mem, vfs.CrashAfter(n)) // only the process dies
		var files []string
		var died error
		for _, w := range tr.writers {
			w.fs = process
			if _, err := w.Save(t.Context(), Snapshot{Step: 10, Load: f.Load}); err != nil {
				died = err
			}
		}
		for _, file := range mem.Walk(inDir(shardDir)) {
			files = append(files, path.Join(shardDir, path.Base(file)))
		}
		if m, err := tr.publish(10, files); err == nil {
			disk := mem.Crash(nil)
			if got, err := restoreAll(disk, m, layout, kintsugi.RuleMomentum); err != nil || !same(got, f) {
				t.Errorf("the process died after operation %d: %v", n, err)
			}
		} else if died == nil {
			t.Fatal(err)
		}
		if died == nil {
			return
		}
	}
}

// Each part of a model comes back as it does with all of the model.
func TestAnyRangeOfChunksIsRestored(t *testing.T) {
	layout := smallLayout(t)
	mem := vfs.NewMem()
	tr := mustTrainer(t, mem, layout, kintsugi.RuleAdam, 3, 1, 1)
	models := [2]*Flat{model(t, layout, kintsugi.RuleAdam, 1), model(t, layout, kintsugi.RuleAdam, 2)}
	m := tr.mustSave(t, 10, models[0])
	for i, w := range tr.writers[1:] {
		if _, err := w.Save(t.Context(), Snapshot{Step: 11 + kintsugi.Step(i), Chunks: []kintsugi.ChunkID{w.cfg.Range.Lo}, Load: models[1].Load}); err != nil {
			t.Fatal(err)
		}
	}
	hi := kintsugi.ChunkID(len(layout.Chunks))
	for want := (kintsugi.ChunkRange{}); want.Lo <= hi; want.Lo++ {
		for want.Hi = want.Lo; want.Hi <= hi; want.Hi++ {
			whole, err := NewFlat(layout, want, kintsugi.RuleAdam)
			if err != nil {
				t.Fatal(err)
			}
			running, err := NewFlat(layout, want, kintsugi.RuleAdam)
			if err != nil {
				t.Fatal(err)
			}
			if err := Restore(t.Context(), mem, testDir, m, layout, want, whole.Place); err != nil {
				t.Fatalf("chunks %v: %v", want, err)
			}
			report, err := RestoreRunning(t.Context(), mem, testDir, Lines{First: 1, Last: 1}, layout, want, running.Place)
			if err != nil || len(report.Missing)+len(report.Skipped) > 0 {
				t.Fatalf("running chunks %v: %+v, %v", want, report, err)
			}
			for id := want.Lo; id < want.Hi; id++ {
				if !sameChunk(whole.Chunk(id), models[0].Chunk(id)) {
					t.Errorf("chunk %d of %v comes back with other values", id, want)
				}
				newest := 0
				if id == tr.writers[1].cfg.Range.Lo || id == tr.writers[2].cfg.Range.Lo {
					newest = 1
				}
				if !sameChunk(running.Chunk(id), models[newest].Chunk(id)) {
					t.Errorf("running chunk %d of %v comes back with other values", id, want)
				}
			}
		}
	}
}

func sameChunk(a, b Arrays) bool {
	return sameBits(a.Params, b.Params) && sameBits(a.State[0], b.State[0]) && sameBits(a.State[1], b.State[1])
}

// No values are placed where the caller's ideas of the model are wrong.
func TestChunksThatAreNotInTheModelAreNotRestored(t *testing.T) {
	layout := smallLayout(t)
	other := mustLayout(t, kintsugi.Tensor{Name: "other", Shape: []int{6, 10}}, layout.Tensors[1], layout.Tensors[2])
	mem := vfs.NewMem()
	m := mustTrainer(t, mem, layout, kintsugi.RuleSGD, 2, 1, 1).mustSave(t, 10, model(t, layout, kintsugi.RuleSGD, 1))
	place := func(i ChunkInfo) (Arrays, error) {
		t.Errorf("chunk %d is placed", i.Chunk)
		return Arrays{}, nil
	}
	hi := kintsugi.ChunkID(len(layout.Chunks))
	for _, want := range []kintsugi.ChunkRange{{Lo: 2, Hi: 1}, {Hi: hi + 1}, {Lo: 1, Hi: hi + 9}} {
		if err := Restore(t.Context(), mem, testDir, m, layout, want, place); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("chunks %v: %v", want, err)
		}
		if _, err := RestoreRunning(t.Context(), mem, testDir, Lines{First: 1, Last: 1}, layout, want, place); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("running chunks %v: %v", want, err)
		}
	}
	if _, err := RestoreRunning(t.Context(), mem, testDir, Lines{First: 1, Last: 1}, other, kintsugi.ChunkRange{Hi: hi}, place); !errors.Is(err, kintsugi.ErrOtherModel) {
		t.Errorf("of another model: %v", err)
	}
	if _, err := RestoreRunning(t.Context(), mem, testDir, Lines{First: 2, Last: 9}, other, kintsugi.ChunkRange{}, place); err != nil {
		t.Errorf("of no line: %v", err)
	}
}
