package ckpt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// The benchmarks compare a save with a plain write and sync of the same bytes, and a restore with a
// plain read. Claim: a save runs at 0.8 of the plain write or better.

const benchValues = 16 << 20 // 64 MiB of parameters, and as much velocity

func benchModel(b *testing.B) (*kintsugi.Layout, *Flat) {
	layout := mustLayout(b, kintsugi.Tensor{Name: "w", Shape: []int{benchValues / 1024, 1024}})
	return layout, model(b, layout, kintsugi.RuleMomentum, 1)
}

func BenchmarkSave(b *testing.B) {
	layout, f := benchModel(b)
	dir := b.TempDir()
	w, err := OpenWriter(vfs.OS{}, dir, WriterConfig{Layout: layout, Rule: kintsugi.RuleMomentum, Range: f.Range, Line: 1, Fence: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(8 * benchValues)
	step := kintsugi.Step(0)
	for b.Loop() {
		step++
		r, err := w.Save(context.Background(), Snapshot{Step: step, Load: f.Load})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := os.Remove(filepath.Join(dir, segmentDir, filepath.Base(r.File))); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkPlainWrite(b *testing.B) {
	dir := b.TempDir()
	buffer := make([]byte, flushBytes)
	b.SetBytes(8 * benchValues)
	i := 0
	for b.Loop() {
		i++
		name := filepath.Join(dir, fmt.Sprint(i))
		f, err := os.Create(name)
		if err != nil {
			b.Fatal(err)
		}
		for range 8 * benchValues / flushBytes {
			if _, err := f.Write(buffer); err != nil {
				b.Fatal(err)
			}
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := os.Remove(name); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkRestore(b *testing.B) {
	layout, f := benchModel(b)
	dir := b.TempDir()
	m := benchCheckpoint(b, dir, layout, f)
	b.SetBytes(8 * benchValues)
	for b.Loop() {
		if err := Restore(context.Background(), vfs.OS{}, dir, m, layout, f.Range, f.Place); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	layout, f := benchModel(b)
	dir := b.TempDir()
	benchCheckpoint(b, dir, layout, f)
	b.SetBytes(8 * benchValues)
	for b.Loop() {
		if r, err := Verify(context.Background(), vfs.OS{}, dir, nil); err != nil || len(r.Damage) > 0 {
			b.Fatal(err, r.Damage)
		}
	}
}

func BenchmarkPlainRead(b *testing.B) {
	layout, f := benchModel(b)
	dir := b.TempDir()
	m := benchCheckpoint(b, dir, layout, f)
	file, err := os.Open(filepath.Join(dir, segmentDir, filepath.Base(m.Shards[0].File)))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	buffer := make([]byte, windowBytes)
	b.SetBytes(8 * benchValues)
	for b.Loop() {
		for i := range 8 * benchValues / windowBytes {
			if _, err := file.ReadAt(buffer, int64(i*windowBytes)); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func benchCheckpoint(b *testing.B, dir string, layout *kintsugi.Layout, f *Flat) *RunManifest {
	b.Helper()
	w, err := OpenWriter(vfs.OS{}, dir, WriterConfig{Layout: layout, Rule: kintsugi.RuleMomentum, Range: f.Range, Line: 1, Fence: 1})
	if err != nil {
		b.Fatal(err)
	}
	r, err := w.Save(context.Background(), Snapshot{Step: 1, Load: f.Load})
	if err != nil {
		b.Fatal(err)
	}
	m := &RunManifest{Line: 1, Step: 1, Fence: 1, Rule: kintsugi.RuleMomentum, Tensors: layout.Tensors}
	if err := PublishRun(vfs.OS{}, dir, m, []string{r.File}); err != nil {
		b.Fatal(err)
	}
	return m
}
