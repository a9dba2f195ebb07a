package ckpt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

var update = flag.Bool("update", false, "write testdata again; only for a new FormatVersion: git must show no other change")

// sample is the checkpoint in testdata: two shards, momentum, a full checkpoint at step 3 and a
// save of one chunk at step 4. Value i is i/4, its velocity −i. Chunk c has taken 100+c optimizer
// steps.
func sample(t *testing.T) (*kintsugi.Layout, *Flat) {
	layout := mustLayout(t,
		kintsugi.Tensor{Name: "weight", Shape: []int{4, 9}},
		kintsugi.Tensor{Name: "bias", Shape: []int{3}},
	)
	f, err := NewFlat(layout, kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}, kintsugi.RuleMomentum)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Params {
		f.Params[i], f.State[0][i] = float32(i)/4, -float32(i)
	}
	for c := range f.Steps {
		f.Steps[c] = 100 + uint64(c)
	}
	return layout, f
}

func writeSample(t *testing.T, fsys vfs.FS, dir string) {
	t.Helper()
	layout, f := sample(t)
	m := &RunManifest{
		Line: 2, Step: 3, Fence: 4, Rule: kintsugi.RuleMomentum, Model: "sample", Seed: math.MaxUint64,
		Created: time.Date(2026, 2, 3, 4, 5, 6, 700, time.FixedZone("", 3600)),
		Tensors: layout.Tensors, Notes: map[string]string{"data": "none", "a<b": "\"quoted\""},
	}
	var files []string
	var first *Writer
	for i, r := range layout.Split(2) {
		w, err := OpenWriter(fsys, dir, WriterConfig{
			Layout: layout, Rule: m.Rule, Shard: kintsugi.ShardID(i), Range: r, Line: m.Line, Fence: m.Fence,
		})
		if err != nil {
			t.Fatal(err)
		}
		report, err := w.Save(context.Background(), Snapshot{Step: m.Step, Load: f.Load})
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, report.File)
		if i == 0 {
			first = w
		}
	}
	if err := PublishRun(fsys, dir, m, files); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Save(context.Background(), Snapshot{Step: 4, Chunks: []kintsugi.ChunkID{1}, Load: f.Load}); err != nil {
		t.Fatal(err)
	}
}

var sampleClaim = Claim{
	Format: claimFormat, Version: plainVersion, Line: 3, Run: "JPYCHV2CKXHIN7DWV42BDME4DJ", Name: "default, of process 12 on a<b",
	Since: time.Date(2026, 2, 3, 4, 5, 6, 700, time.UTC), After: "manifest/00000000000000000002-00000000000000000003-00000000000000000004",
}

// Claims were added to version 1 later: a place may be without one.
func TestSampleOfAClaimIsReadAndWrittenAgain(t *testing.T) {
	dir := filepath.Join("testdata", "claim1")
	content, err := sampleClaim.encode()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, sampleClaim.File())
	if *update {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := Holder(vfs.OS{}, dir); err != nil || *c != sampleClaim {
		t.Errorf("it says %+v, %v", c, err)
	}
	if b, err := os.ReadFile(name); err != nil || !bytes.Equal(b, content) {
		t.Errorf("it is written as\n%s", content)
	}
}

// Version 1 must stay readable, and this program must write exactly these files as long as the
// version is 1.
func TestSampleOfVersion1IsReadAndWrittenAgain(t *testing.T) {
	dir := filepath.Join("testdata", fmt.Sprintf("v%d", plainVersion))
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		writeSample(t, vfs.OS{}, dir)
	}
	mem := vfs.NewMem()
	writeSample(t, mem, "run")
	writtenAsBefore(t, mem, "run", dir)

	layout, want := sample(t)
	m, skipped, err := Newest(vfs.OS{}, dir)
	if err != nil || len(skipped) > 0 {
		t.Fatalf("newest: %v, skipped %v", err, skipped)
	}
	if m.Line != 2 || m.Step != 3 || m.Seed != math.MaxUint64 || m.Notes["a<b"] != "\"quoted\"" {
		t.Errorf("run manifest: %+v", m)
	}
	got, _ := NewFlat(layout, want.Range, kintsugi.RuleMomentum)
	if err := Restore(context.Background(), vfs.OS{}, dir, m, layout, got.Range, got.Place); err != nil || !same(got, want) {
		t.Errorf("restore: %v, or other values", err)
	}
	report, err := RestoreRunning(context.Background(), vfs.OS{}, dir, Lines{First: 2, Last: 2}, layout, got.Range, got.Place)
	if err != nil || len(report.Missing)+len(report.Skipped) > 0 || got.Saved[1] != 4 || got.Saved[0] != 3 {
		t.Errorf("running checkpoint: %+v, error %v, from steps %v", report, err, got.Saved)
	}
	if r, err := Verify(context.Background(), vfs.OS{}, dir, nil); err != nil || len(r.Damage) > 0 {
		t.Errorf("verify: %v, error %v", r.Damage, err)
	}
}

// writtenAsBefore compares all files under a folder of mem with those of a sample.
func writtenAsBefore(t *testing.T, mem *vfs.Mem, folder, sample string) {
	t.Helper()
	for _, name := range mem.Walk(folder) {
		want, err := readAll(mem, ".", name, maxManifest)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(sample, name[len(folder)+1:]))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is written differently now (read: %v): the format has drifted, it needs a new version", name, err)
		}
	}
}

// The same holds for the versions with increments: a chunk that was saved whole and then got an
// increment, in an encoding of that version.
func TestSamplesWithIncrementsAreReadAndWrittenAgain(t *testing.T) {
	for version, c := range map[uint16]Increments{
		incrementVersion: {Encoding: kernels.Int8},
		FormatVersion:    {Encoding: kernels.Int4, Coasts: 4},
	} {
		dir := filepath.Join("testdata", fmt.Sprintf("v%d", version))
		x, mem, e := oneIncrement(t, kintsugi.RuleSGD, c)
		record, err := readAll(mem, testDir, x.w.newest.Segments[e.Segment].File, maxManifest)
		if err != nil || binary.LittleEndian.Uint16(record[e.Offset+4:]) != version {
			t.Errorf("the record of version %d says something else (%v)", version, err)
		}
		if *update {
			for _, name := range mem.Walk(testDir) {
				b, err := readAll(mem, ".", name, maxManifest)
				file := filepath.Join(dir, name[len(testDir)+1:])
				if err := errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, b, 0o644)); err != nil {
					t.Fatal(err)
				}
			}
		}
		writtenAsBefore(t, mem, testDir, dir)
		got, err := NewFlat(x.Layout, x.Range, kintsugi.RuleSGD)
		if err != nil {
			t.Fatal(err)
		}
		report, err := RestoreRunning(context.Background(), vfs.OS{}, dir, Lines{First: 1, Last: 1}, x.Layout, x.Range, got.Place)
		if err != nil || len(report.Missing)+len(report.Skipped) > 0 || !slices.Equal(got.Saved, x.at) {
			t.Errorf("version %d: %+v, error %v, from steps %v", version, report, err, got.Saved)
		}
		for id, saved := range x.saved {
			if !sameBits(got.Chunk(kintsugi.ChunkID(id)).Params, saved.Params) {
				t.Errorf("version %d: chunk %d comes back with other values", version, id)
			}
		}
		if r, err := Verify(context.Background(), vfs.OS{}, dir, nil); err != nil || len(r.Damage) > 0 {
			t.Errorf("version %d: verify: %v, error %v", version, r.Damage, err)
		}
	}
}
