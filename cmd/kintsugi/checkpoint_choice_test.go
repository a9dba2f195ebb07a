package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// tensorsIn returns the values of all tensors of an exported file.
func tensorsIn(t *testing.T, file string) []float32 {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	header := 8 + binary.LittleEndian.Uint64(b)
	if !json.Valid(b[8:header]) {
		t.Fatalf("the header of %s is %s", file, b[8:header])
	}
	values := make([]float32, (uint64(len(b))-header)/4)
	copy(kernels.Bytes(values), b[header:])
	return values
}

// What a checkpoint is worth is what the run said of it. A mean of several is written and evaluated
// like one.
func TestCheckpointsAndTheirMeanAreEvaluated(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir, out := newDir(t), t.TempDir()
	must(t, "train", "--model", "mlr", "--workers", "2", "--steps", "40", "--decay", "constant", "--checkpoint-every", "10", "--checkpoint-keep", "4", "--gradient-time", "10ms", "--out", dir)
	s := readRun(t, dir).Summary
	want := fmt.Sprintf("mlr on digits, step 40, test loss %.5g, test accuracy %.4f, 2000 examples\n", s.FinalTestLoss, s.FinalAccuracy)
	if said := must(t, "checkpoint", "evaluate", dir); said != want {
		t.Errorf("the last checkpoint: %s, want %s", said, want)
	}
	if said := must(t, "checkpoint", "evaluate", filepath.Join(dir, record.Checkpoints), "--config", filepath.Join(dir, train.ConfigFile), "--device", "cpu"); said != want {
		t.Errorf("the place itself, with settings: %s, want %s", said, want)
	}
	at, err := train.OpenCheckpoints(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	names, err := ckpt.List(at.FS, at.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []*ckpt.RunManifest // a store that is slow has fewer of them, and not of each tenth step
	var said []string
	for _, name := range names { // newest first
		m, err := ckpt.Read(at.FS, at.Dir, name)
		if err != nil {
			t.Fatal(err)
		}
		all, said = append(all, m), append(said, fmt.Sprint(m.Step))
	}
	if len(all) < 2 {
		t.Fatalf("%d checkpoints", len(all))
	}
	steps := strings.Join(said, ", ")
	before := must(t, "checkpoint", "evaluate", dir, "--step", fmt.Sprint(all[1].Step))
	if _, figures, _ := strings.Cut(before, fmt.Sprintf("mlr on digits, step %d", all[1].Step)); figures == "" || strings.HasSuffix(want, figures) {
		t.Errorf("an earlier checkpoint: %s", before)
	}
	n := fmt.Sprint(len(all))
	if said := must(t, "checkpoint", "evaluate", dir, "--average", n); !strings.Contains(said, "the mean of steps "+steps+", test loss") {
		t.Errorf("a mean: %s", said)
	}

	var mean []float32
	var sums []float64
	for _, m := range all {
		file := filepath.Join(out, fmt.Sprint(m.Step, ".safetensors"))
		must(t, "checkpoint", "export", dir, "--step", fmt.Sprint(m.Step), "--out", file)
		values := tensorsIn(t, file)
		if sums == nil {
			sums, mean = make([]float64, len(values)), make([]float32, len(values))
		}
		for i, x := range values {
			sums[i] += float64(x)
			mean[i] = float32(sums[i] / float64(len(all)))
		}
	}
	file := filepath.Join(out, "mean.safetensors")
	exported := must(t, "checkpoint", "export", dir, "--average", n, "--out", file)
	if !strings.Contains(exported, "2 tensors of the mean of steps "+steps) || !strings.Contains(tree(t, file)[file], `"mean_of_steps":"`+steps+`"`) || !slices.Equal(tensorsIn(t, file), mean) {
		t.Errorf("the exported mean says %q, or is not the mean of what is exported", exported)
	}
	for _, m := range []struct {
		args []string
		want string
	}{
		{[]string{"evaluate", dir, "--average", "5"}, fmt.Sprintf("has %s whole checkpoints up to step 40: %s; train --checkpoint-keep", n, steps)},
		{[]string{"evaluate", filepath.Join(dir, record.Checkpoints)}, "say with --config which settings it has"},
		{[]string{"export", dir, "--average", "2", "--state", "--out", filepath.Join(out, "no.npz")}, "no mean of the optimizer's state"},
	} {
		if r := kin(t, append([]string{"checkpoint"}, m.args...)...); r.status != exitUsage || !strings.Contains(r.stderr, m.want) {
			t.Errorf("%q: exit status %d, %s; want %q", m.args, r.status, r.stderr, m.want)
		}
	}
}

// A program evaluates its own model, and counts have no mean.
func TestProgramsEvaluateCheckpointsAndCountsHaveNoMean(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	own, counts := newDir(t), newDir(t)
	must(t, append([]string{"train", "--workers", "2", "--steps", "20", "--checkpoint-every", "10", "--out", own}, ownProgram...)...)
	s := readRun(t, own).Summary
	want := fmt.Sprintf("pulled on own, step 20, test loss %.5g, test accuracy %.4f,", s.FinalTestLoss, s.FinalAccuracy)
	if said := must(t, "checkpoint", "evaluate", own); !strings.HasPrefix(said, want) {
		t.Errorf("a program: %s, want %s", said, want)
	}
	must(t, "train", "--model", "lda", "--workers", "2", "--steps", "4", "--checkpoint-every", "2", "--out", counts)
	if said := must(t, "checkpoint", "evaluate", counts); !strings.Contains(said, "lda on topics, step 4, perplexity") {
		t.Errorf("lda: %s", said)
	}
	if r := kin(t, "checkpoint", "evaluate", counts, "--average", "2"); r.status != exitUsage || !strings.Contains(r.stderr, "no mean of them is a model") {
		t.Errorf("a mean of counts: exit status %d, %s", r.status, r.stderr)
	}
}
