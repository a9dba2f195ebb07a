package ckpt

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// The mean of one checkpoint is what it holds, to the bit. The mean of several, however they were
// split into shards, is that of their values.
func TestParametersAreThoseOfACheckpointOrTheMeanOfSeveral(t *testing.T) {
	fsys, layout := vfs.NewMem(), smallLayout(t)
	strange := mustTrainer(t, fsys, layout, kintsugi.RuleAdam, 2, 1, 1).mustSave(t, 10, model(t, layout, kintsugi.RuleAdam, 1))
	got, err := Params(t.Context(), fsys, testDir, layout, strange)
	if err != nil || !sameBits(got, model(t, layout, kintsugi.RuleAdam, 1).Params) {
		t.Errorf("one checkpoint: %v, or other parameters than were saved", err)
	}
	rng := rand.New(rand.NewPCG(3, 1))
	var saved []*RunManifest
	want := make([]float32, layout.Values)
	sums := make([]float64, layout.Values)
	for i := range 5 {
		f := model(t, layout, kintsugi.RuleAdam, 1)
		for j := range f.Params {
			f.Params[j] = float32(rng.NormFloat64())
			sums[j] += float64(f.Params[j])
			want[j] = float32(sums[j] / float64(i+1))
		}
		line := kintsugi.Line(2 + i)
		saved = append(saved, mustTrainer(t, fsys, layout, kintsugi.RuleAdam, 1+i%3, line, 1).mustSave(t, kintsugi.Step(20+i), f))
		if got, err := Params(t.Context(), fsys, testDir, layout, saved...); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d checkpoints: %v, or another mean than that of their values", len(saved), err)
		}
	}
}

func TestParametersThatCannotBeRead(t *testing.T) {
	fsys, layout := vfs.NewMem(), smallLayout(t)
	tr := mustTrainer(t, fsys, layout, kintsugi.RuleSGD, 2, 1, 1)
	a := tr.mustSave(t, 10, model(t, layout, kintsugi.RuleSGD, 1))
	b := tr.mustSave(t, 20, model(t, layout, kintsugi.RuleSGD, 2))
	if _, err := Params(t.Context(), fsys, testDir, layout); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("no checkpoint: %v", err)
	}
	other := mustLayout(t, kintsugi.Tensor{Name: "x", Shape: []int{84}})
	if _, err := Params(t.Context(), fsys, testDir, other, a, b); !errors.Is(err, kintsugi.ErrOtherModel) {
		t.Errorf("another model: %v", err)
	}
	shard, _, err := ReadShard(fsys, testDir, b.Shards[1].File)
	if err != nil {
		t.Fatal(err)
	}
	last := shard.Chunks[len(shard.Chunks)-1]
	if err := fsys.Edit(inDir(shard.Segments[last.Segment].File), func(c []byte) []byte { c[last.Offset+last.Bytes-1] ^= 1; return c }); err != nil {
		t.Fatal(err)
	}
	if _, err := Params(t.Context(), fsys, testDir, layout, a, b); !errors.Is(err, kintsugi.ErrCorrupt) {
		t.Errorf("a damaged checkpoint: %v", err)
	}
}
