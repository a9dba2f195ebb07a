package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

func TestVerifyFindsAFlippedByteAnywhereAndListNamesTheSteps(t *testing.T) {
	dir := newDir(t)
	must(t, quadratic(60, "--model", "qp:dimension=300", "--checkpoint-every", "20", "--out", dir)...)
	if out := must(t, "checkpoint", "verify", dir); !strings.HasSuffix(out, "0 damaged places\n") {
		t.Errorf("verify of a whole run says\n%s", out)
	}
	newest, _ := lastParams(t, dir)
	lines := strings.Split(must(t, "checkpoint", "list", dir), "\n")
	if len(lines) < 3 || !strings.HasPrefix(lines[0], "STEP") || !strings.HasPrefix(lines[1], fmt.Sprintf("%d ", newest)) || newest != 60 {
		t.Errorf("list says\n%s\nwant the newest step, 60, first", strings.Join(lines, "\n"))
	}
	files := tree(t, filepath.Join(dir, checkpointsDir))
	positions := 40
	if testing.Short() {
		positions = len(files)
	}
	paths := slices.Sorted(maps.Keys(files))
	for i := range positions {
		path := paths[i%len(paths)]
		whole := files[path]
		damaged := []byte(whole)
		at := (len(whole) - 1) * (i / len(paths)) / max(1, (positions-1)/len(paths)) // from the first byte to the last
		damaged[at] ^= 1 << (i % 8)
		writeFile(t, path, damaged)
		name, err := filepath.Rel(filepath.Join(dir, checkpointsDir), path)
		if err != nil {
			t.Fatal(err)
		}
		if r := kin(t, "checkpoint", "verify", dir); r.status != exitFailed || !strings.Contains(r.stderr, name) || !strings.Contains(r.stdout, "damaged") {
			t.Errorf("byte %d of %d in %s is wrong, and verify ends with status %d:\n%s%s", at, len(whole), name, r.status, r.stdout, r.stderr)
		}
		writeFile(t, path, []byte(whole))
	}
	must(t, "checkpoint", "verify", dir)
}

func TestAResumedRunPassesOverADamagedCheckpoint(t *testing.T) {
	onlyLong(t)
	dir, want := newDir(t), newDir(t)
	must(t, quadratic(100, "--decay", "constant", "--out", dir)...)
	must(t, "train", "--resume", dir, "--steps", "120")
	damage(t, dir, 1) // that of step 120, on line 2; step 100, on line 1, is whole
	must(t, "train", "--resume", dir)
	r := readRun(t, dir)
	if last := r.Views[len(r.Views)-1]; last.RestoredStep != 100 || last.Line != 3 {
		t.Errorf("it went on from step %d on line %d; want 100, on line 3: line 2 is used up", last.RestoredStep, last.Line)
	}
	must(t, quadratic(120, "--decay", "constant", "--out", want)...)
	sameBits(t, dir, want)
}

func TestARunWhoseCheckpointsAreAllDamagedIsNotStartedOver(t *testing.T) {
	dir := newDir(t)
	must(t, quadratic(60, "--checkpoint-every", "20", "--out", dir)...)
	damage(t, dir, 99)
	before := tree(t, dir)
	if r := kin(t, "train", "--resume", dir); r.status != exitFailed || !strings.Contains(r.stderr, "is damaged") {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
	if !maps.Equal(tree(t, dir), before) {
		t.Error("the run has been changed")
	}
}

// damage changes a byte among the values of every shard in the newest n checkpoints; manifests stay right.
func damage(t *testing.T, dir string, n int) {
	t.Helper()
	dir = filepath.Join(dir, checkpointsDir)
	names, err := ckpt.List(vfs.OS{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names[:min(n, len(names))] {
		step := strings.Join(strings.Split(filepath.Base(name), "-")[:2], "-")
		segments, err := filepath.Glob(filepath.Join(dir, "segment", step+"-*"))
		if err != nil || len(segments) == 0 {
			t.Fatal(segments, err)
		}
		for _, segment := range segments {
			damaged := []byte(tree(t, segment)[segment])
			damaged[len(damaged)/2] ^= 1
			writeFile(t, segment, damaged)
		}
	}
}

func TestAGradientThatIsNotFiniteEndsTheRunAndIsNamed(t *testing.T) {
	dir := newDir(t)
	r := kin(t, quadratic(300, "--model", "qp:dimension=100", "--learning-rate", "1e5", "--checkpoint-every", "5", "--out", dir)...)
	if r.status != exitFailed || !strings.Contains(r.stderr, "not finite: gradient of worker/") ||
		!strings.Contains(r.stderr, "tensor x holds") || !strings.Contains(r.stderr, "lower the learning rate") {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
	noOrphans(t, dir)
	must(t, "checkpoint", "verify", dir)
	if step, _ := lastParams(t, dir); step == 0 || step >= 300 {
		t.Errorf("the newest checkpoint is of step %d; want one before the end", step)
	}
	if s := readRun(t, dir).Summary; !strings.Contains(s.Reason, "not finite") {
		t.Errorf("summary.json says %q", s.Reason)
	}
}
