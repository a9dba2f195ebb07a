package ckpt

import (
	"context"
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

const testDir = "run"

func mustLayout(t testing.TB, tensors ...kintsugi.Tensor) *kintsugi.Layout {
	t.Helper()
	layout, err := kintsugi.NewLayout(tensors)
	if err != nil {
		t.Fatal(err)
	}
	return layout
}

// smallLayout has chunks of different sizes, one of them smaller than the alignment.
func smallLayout(t testing.TB) *kintsugi.Layout {
	return mustLayout(t,
		kintsugi.Tensor{Name: "fc1.weight", Shape: []int{6, 10}},
		kintsugi.Tensor{Name: "fc1.bias", Shape: []int{6}},
		kintsugi.Tensor{Name: "fc2.weight", Shape: []int{3, 6}},
	)
}

// model is a whole model whose values depend only on the seed, so that two versions differ
// everywhere.
func model(t testing.TB, layout *kintsugi.Layout, rule kintsugi.Rule, seed uint64) *Flat {
	t.Helper()
	f, err := NewFlat(layout, kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}, rule)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, a := range [][]float32{f.Params, f.State[0], f.State[1]} {
		for i := range a {
			a[i] = math.Float32frombits(rng.Uint32()) // including NaN and infinities
		}
	}
	for i := range f.Steps {
		f.Steps[i] = rng.Uint64()
	}
	return f
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// same reports whether two models are equal to the bit.
func same(a, b *Flat) bool {
	return sameBits(a.Params, b.Params) && sameBits(a.State[0], b.State[0]) && sameBits(a.State[1], b.State[1]) &&
		slices.Equal(a.Steps, b.Steps)
}

// trainer saves whole models from several shards.
type trainer struct {
	fs      vfs.FS
	layout  *kintsugi.Layout
	rule    kintsugi.Rule
	line    kintsugi.Line
	fence   kintsugi.Fence
	writers []*Writer
}

func openTrainer(fsys vfs.FS, layout *kintsugi.Layout, rule kintsugi.Rule, shards int, line kintsugi.Line, fence kintsugi.Fence) (*trainer, error) {
	tr := &trainer{fs: fsys, layout: layout, rule: rule, line: line, fence: fence}
	for i, r := range layout.Split(shards) {
		w, err := OpenWriter(fsys, testDir, WriterConfig{
			Layout: layout, Rule: rule, Shard: kintsugi.ShardID(i), Range: r, Line: line, Fence: fence,
		})
		if err != nil {
			return nil, err
		}
		tr.writers = append(tr.writers, w)
	}
	return tr, nil
}

func (tr *trainer) save(step kintsugi.Step, f *Flat) (*RunManifest, error) {
	var files []string
	for _, w := range tr.writers {
		r, err := w.Save(context.Background(), Snapshot{Step: step, Load: f.Load})
		if err != nil {
			return nil, err
		}
		files = append(files, r.File)
	}
	return tr.publish(step, files)
}

func (tr *trainer) publish(step kintsugi.Step, files []string) (*RunManifest, error) {
	m := &RunManifest{
		Line: tr.line, Step: step, Fence: tr.fence, Rule: tr.rule,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Model:   "small", Seed: 7, Tensors: tr.layout.Tensors,
	}
	return m, PublishRun(tr.fs, testDir, m, files)
}

func mustTrainer(t testing.TB, fsys vfs.FS, layout *kintsugi.Layout, rule kintsugi.Rule, shards int, line kintsugi.Line, fence kintsugi.Fence) *trainer {
	t.Helper()
	tr, err := openTrainer(fsys, layout, rule, shards, line, fence)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func (tr *trainer) mustSave(t testing.TB, step kintsugi.Step, f *Flat) *RunManifest {
	t.Helper()
	m, err := tr.save(step, f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// restoreAll restores a whole model.
func restoreAll(fsys vfs.FS, m *RunManifest, layout *kintsugi.Layout, rule kintsugi.Rule) (*Flat, error) {
	f, err := NewFlat(layout, kintsugi.ChunkRange{Hi: kintsugi.ChunkID(len(layout.Chunks))}, rule)
	if err != nil {
		return nil, err
	}
	return f, Restore(context.Background(), fsys, testDir, m, layout, f.Range, f.Place)
}

func mustVerify(t testing.TB, fsys vfs.FS) Report {
	t.Helper()
	r, err := Verify(context.Background(), fsys, testDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func inDir(file string) string { return path.Join(testDir, file) }
