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

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// Of two lines, what the older one has of later steps was taken back: it is not part of a mean, nor
// is what is damaged.
func TestAMeanIsOfCheckpointsThatGoBackToOneAnother(t *testing.T) {
	fsys := vfs.NewMem()
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "x", Shape: []int{3}}})
	if err != nil {
		t.Fatal(err)
	}
	at := place{fs: fsys, dir: "run", name: "run"}
	save := func(line kintsugi.Line, step kintsugi.Step) {
		t.Helper()
		flat, err := ckpt.NewFlat(layout, layout.Split(1)[0], kintsugi.RuleSGD)
		if err != nil {
			t.Fatal(err)
		}
		flat.Params[0] = float32(step)
		w, err := ckpt.OpenWriter(fsys, "run", ckpt.WriterConfig{Layout: layout, Rule: kintsugi.RuleSGD, Range: flat.Range, Line: line, Fence: 1})
		if err != nil {
			t.Fatal(err)
		}
		r, err := w.Save(t.Context(), ckpt.Snapshot{Step: step, Load: flat.Load})
		if err != nil {
			t.Fatal(err)
		}
		if err := ckpt.PublishRun(fsys, "run", &ckpt.RunManifest{Line: line, Step: step, Fence: 1, Rule: kintsugi.RuleSGD, Tensors: layout.Tensors}, []string{r.File}); err != nil {
			t.Fatal(err)
		}
	}
	for step := range kintsugi.Step(5) {
		save(1, 10+10*step) // 10 to 50
	}
	save(2, 35) // line 2 began at 30
	save(2, 45)
	for _, c := range []struct {
		step    int64
		average int
		want    string
	}{
		{newestStep, 1, "45"},
		{newestStep, 4, "45, 35, 30, 20"},
		{30, 3, "30, 20, 10"},
		{50, 2, "50, 40"}, // asked for by name, it has a history of its own
	} {
		of, err := chosen(at, choice{step: c.step, average: c.average})
		if err != nil || stepsOf(of) != c.want {
			t.Errorf("step %d, average %d: steps %s, %v; want %s", c.step, c.average, stepsOf(of), err, c.want)
		}
	}
	damaged, err := chosenOne(at, 30)
	if err != nil {
		t.Fatal(err)
	}
	if err := fsys.Edit(filepath.Join("run", damaged.Name()), func(b []byte) []byte { b[5] ^= 1; return b }); err != nil {
		t.Fatal(err)
	}
	if of, err := chosen(at, choice{step: newestStep, average: 4}); err != nil || stepsOf(of) != "45, 35, 20, 10" {
		t.Errorf("with one that is damaged: steps %s, %v", stepsOf(of), err)
	}
}

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
	if said := must(t, "checkpoint", "evaluate", filepath.Join(dir, checkpointsDir), "--config", filepath.Join(dir, configFile), "--device", "cpu"); said != want {
		t.Errorf("the place itself, with settings: %s, want %s", said, want)
	}
	at, err := openCheckpoints(t.Context(), dir, "")
	if err != nil {
		t.Fatal(err)
	}
	names, err := ckpt.List(at.fs, at.dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []*ckpt.RunManifest // a store that is slow has fewer of them, and not of each tenth step
	var said []string
	for _, name := range names { // newest first
		m, err := ckpt.Read(at.fs, at.dir, name)
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
		{[]string{"evaluate", filepath.Join(dir, checkpointsDir)}, "say with --config which settings it has"},
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
