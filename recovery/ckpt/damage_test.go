package ckpt

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// twoSaves is a small directory with all kinds of files: a checkpoint, and a save of one chunk
// after it. So one segment has a record that the newest manifest no longer names.
func twoSaves(t testing.TB) *vfs.Mem {
	layout := mustLayout(t, kintsugi.Tensor{Name: "a", Shape: []int{20}}, kintsugi.Tensor{Name: "b", Shape: []int{3}})
	fsys := vfs.NewMem()
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleMomentum, 2, 1, 1)
	f := model(t, layout, kintsugi.RuleMomentum, 1)
	tr.mustSave(t, 10, f)
	if _, err := tr.writers[0].Save(context.Background(), Snapshot{Step: 11, Chunks: []kintsugi.ChunkID{0}, Load: f.Load}); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func TestVerifyNoticesEveryWrongByteAndNamesTheFile(t *testing.T) {
	race.Skip(t)
	t.Parallel()
	fsys := twoSaves(t)
	if r := mustVerify(t, fsys); len(r.Damage) > 0 || len(r.Unpublished) > 0 || r.Files != len(fsys.Walk(testDir)) {
		t.Fatalf("undamaged: %+v", r)
	}
	masks := []byte{1, 0x20, 0xff} // 0x20 changes the case of a letter
	if testing.Short() {
		masks = masks[1:2]
	}
	total := 0
	for _, name := range fsys.Walk(testDir) {
		info, err := fsys.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		total += int(info.Size)
		for i := range int(info.Size) {
			for _, mask := range masks {
				flip := func(b []byte) []byte { b[i] ^= mask; return b }
				if err := fsys.Edit(name, flip); err != nil {
					t.Fatal(err)
				}
				checkNoticed(t, fsys, name, i, mask)
				if err := fsys.Edit(name, flip); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	t.Logf("flipped each of %d bytes", total)
}

func checkNoticed(t *testing.T, fsys *vfs.Mem, name string, i int, mask byte) {
	t.Helper()
	r, err := Verify(context.Background(), fsys, testDir, nil)
	if errors.Is(err, kintsugi.ErrOtherModel) {
		t.Fatalf("%s byte %d ^ %#x: taken for a newer format: %v", name, i, mask, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	file := strings.TrimPrefix(name, testDir+"/")
	named := slices.ContainsFunc(r.Damage, func(err error) bool {
		d, ok := errors.AsType[*Damage](err)
		return ok && d.File == file && errors.Is(err, kintsugi.ErrCorrupt)
	})
	if !named {
		t.Fatalf("%s byte %d ^ %#x: damage is %v", name, i, mask, r.Damage)
	}
}

func TestVerifyNoticesFilesThatGrewShrankOrWent(t *testing.T) {
	for _, name := range twoSaves(t).Walk(testDir) {
		for what, edit := range map[string]func([]byte) []byte{
			"grew by a zero":       func(b []byte) []byte { return append(b, 0) },
			"grew by a newline":    func(b []byte) []byte { return append(b, '\n') },
			"grew by a record":     func(b []byte) []byte { return append(b, b[max(0, len(b)-128):]...) },
			"lost its last byte":   func(b []byte) []byte { return b[:len(b)-1] },
			"lost its second half": func(b []byte) []byte { return b[:len(b)/2] },
			"is empty":             func([]byte) []byte { return nil },
			"begins with a space":  func(b []byte) []byte { return append([]byte(" "), b...) },
		} {
			fsys := twoSaves(t)
			if err := fsys.Edit(name, edit); err != nil {
				t.Fatal(err)
			}
			r := mustVerify(t, fsys)
			if len(r.Damage) == 0 {
				t.Errorf("%s %s: not noticed", name, what)
			}
			sameFromAfar(t, fsys, r)
		}
		if strings.Contains(name, "/"+runDir+"/") || strings.Contains(name, "0011-") && strings.Contains(name, "/"+shardDir+"/") {
			continue // nothing names it: without it the checkpoint would never have been published
		}
		fsys := twoSaves(t)
		if err := fsys.Remove(name); err != nil {
			t.Fatal(err)
		}
		r := mustVerify(t, fsys)
		if len(r.Damage) == 0 {
			t.Errorf("%s is gone: not noticed", name)
		}
		sameFromAfar(t, fsys, r)
	}
}

// A record that is intact but belongs elsewhere must not pass: disks do misplace blocks.
func TestRecordsThatWereSwappedAreNoticed(t *testing.T) {
	layout := mustLayout(t, kintsugi.Tensor{Name: "w", Shape: []int{64}})
	fsys := vfs.NewMem()
	m := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 1, 1, 1).mustSave(t, 1, model(t, layout, kintsugi.RuleSGD, 1))
	s, _, err := ReadShard(fsys, testDir, m.Shards[0].File)
	if err != nil {
		t.Fatal(err)
	}
	a, b := s.Chunks[0], s.Chunks[1]
	err = fsys.Edit(inDir(s.Segments[0].File), func(bytes []byte) []byte {
		was := slices.Clone(bytes)
		copy(bytes[a.Offset:], was[b.Offset:b.Offset+b.Bytes])
		copy(bytes[b.Offset:], was[a.Offset:a.Offset+a.Bytes])
		return bytes
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := mustVerify(t, fsys); len(r.Damage) != 2 {
		t.Errorf("verify: %v", r.Damage)
	}
	if _, err := restoreAll(fsys, m, layout, kintsugi.RuleSGD); !errors.Is(err, kintsugi.ErrCorrupt) {
		t.Errorf("restore: error %v", err)
	}
}

func TestVerifyFindsAllDamageOfASegmentAndBlamesItsCheckpointsOnly(t *testing.T) {
	layout := smallLayout(t)
	fsys := vfs.NewMem()
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 1, 1, 1)
	old := tr.mustSave(t, 1, model(t, layout, kintsugi.RuleSGD, 1))
	young := tr.mustSave(t, 2, model(t, layout, kintsugi.RuleSGD, 2))
	s, _, err := ReadShard(fsys, testDir, young.Shards[0].File)
	if err != nil {
		t.Fatal(err)
	}
	header, values := s.Chunks[0], s.Chunks[3]
	err = fsys.Edit(inDir(s.Segments[0].File), func(b []byte) []byte {
		b[header.Offset+44] ^= 1 // the length, without which what follows cannot be found
		b[values.Offset+headerBytes+1] ^= 1
		return b
	})
	if err != nil {
		t.Fatal(err)
	}
	r := mustVerify(t, fsys)
	var chunks []int64
	for _, err := range r.Damage {
		d, _ := errors.AsType[*Damage](err)
		chunks = append(chunks, d.Chunk)
	}
	if !slices.Equal(chunks, []int64{int64(header.Chunk), int64(values.Chunk)}) {
		t.Errorf("damage in chunks %v: %v", chunks, r.Damage)
	}
	if c := r.Checkpoints[0]; c.Name != young.Name() || len(c.Damage) != 2 {
		t.Errorf("the damaged checkpoint: %+v", c)
	}
	if c := r.Checkpoints[1]; c.Name != old.Name() || len(c.Damage) != 0 {
		t.Errorf("the whole checkpoint: %+v", c)
	}
}

func TestVerifyShowsProgressUpToTheEnd(t *testing.T) {
	fsys := twoSaves(t)
	last, total := int64(0), int64(0)
	_, err := Verify(context.Background(), fsys, testDir, func(done, all int64) {
		if done < last || done > all {
			t.Errorf("progress went from %d to %d of %d", last, done, all)
		}
		last, total = done, all
	})
	if err != nil || last != total || total == 0 {
		t.Errorf("progress ended at %d of %d, error %v", last, total, err)
	}
}

// A manifest of a few hundred bytes cannot make a reader lay out a model of terabytes: its files
// must be able to hold the model.
func TestAManifestThatPromisesTooMuchIsDamaged(t *testing.T) {
	for name, change := range map[string]func(*RunManifest){
		"more values than its chunks can have": func(m *RunManifest) {
			m.Tensors = []kintsugi.Tensor{{Name: "x", Shape: []int{1 << 47, 2}}}
		},
		"more chunks than its shard manifests can name": func(m *RunManifest) {
			m.Tensors = []kintsugi.Tensor{{Name: "x", Shape: []int{1 << 47, 2}}}
			m.Shards = m.Shards[:1]
			m.Shards[0].Hi = 1<<32 - 1
		},
		"a shard manifest that is too long": func(m *RunManifest) {
			m.Tensors = []kintsugi.Tensor{{Name: "x", Shape: []int{1 << 47, 2}}}
			m.Shards = m.Shards[:1]
			m.Shards[0].Hi, m.Shards[0].Bytes = 1<<32-1, 1<<60
		},
	} {
		fsys := twoSaves(t)
		m, _, err := Newest(fsys, testDir)
		if err != nil {
			t.Fatal(err)
		}
		change(m)
		m.Fingerprint = fingerprint(m.Tensors)
		content, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeRun(m.Name(), content); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
