package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

func TestVerifyFindsAFlippedByteAnywhereAndListNamesTheSteps(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
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
	files := tree(t, filepath.Join(dir, record.Checkpoints))
	positions := 40
	if testing.Short() {
		positions = len(files)
	}
	paths := slices.Sorted(maps.Keys(files))
	for i := range positions {
		path := paths[i%len(paths)]
		whole := files[path]
		damaged := []byte(whole)
		at := (len(whole) - 1) * (i / len(paths)) / max(1, (positions-1)/len(paths)) // places from the first byte to the last
		damaged[at] ^= 1 << (i % 8)
		writeFile(t, path, damaged)
		name, err := filepath.Rel(filepath.Join(dir, record.Checkpoints), path)
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
	t.Parallel()
	onlyLong(t)
	dir, want := newDir(t), newDir(t)
	must(t, quadratic(100, "--decay", "constant", "--out", dir)...)
	must(t, "train", "--resume", dir, "--steps", "120")
	damage(t, dir, 1) // damages that of step 120, on line 2; that of step 100, on line 1, stays whole
	if r := kin(t, "train", "--resume", dir); r.status != exitDone || !strings.Contains(r.stderr, "-00000000000000000120-") || !strings.Contains(r.stderr, "is damaged: going on from ") {
		t.Errorf("exit status %d; want 0, and a word on what is passed over:\n%s", r.status, r.stderr)
	}
	r := readRun(t, dir)
	if last := r.Views[len(r.Views)-1]; last.RestoredStep != 100 || last.Line != 3 {
		t.Errorf("it went on from step %d on line %d; want 100, on line 3: line 2 is used up", last.RestoredStep, last.Line)
	}
	must(t, quadratic(120, "--decay", "constant", "--out", want)...)
	sameBits(t, dir, want)
}

func TestARunWhoseCheckpointsAreAllDamagedIsNotStartedOver(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
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
	if r := kin(t, "checkpoint", "repair", dir); r.status != exitFailed || !strings.Contains(r.stderr, "of no step every chunk is whole") {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
}

func TestARunWhoseManifestsAreGoneIsNotStartedOverAndIsRepaired(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	must(t, quadratic(60, "--checkpoint-every", "20", "--out", dir)...)
	if err := os.RemoveAll(filepath.Join(dir, record.Checkpoints, "manifest")); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	if r := kin(t, "train", "--resume", dir, "--steps", "80"); r.status != exitFailed || !strings.Contains(r.stderr, "it had a checkpoint of step 60") {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
	if !maps.Equal(tree(t, dir), before) {
		t.Error("the run has been changed")
	}
	elsewhere := newDir(t) // nothing there says which model it is
	if err := os.CopyFS(elsewhere, os.DirFS(filepath.Join(dir, record.Checkpoints))); err != nil {
		t.Fatal(err)
	}
	if r := kin(t, "checkpoint", "repair", elsewhere); r.status != exitFailed || !strings.Contains(r.stderr, "60] is whole") || !strings.Contains(r.stderr, "repair the folder of the run") {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
	if r := kin(t, "checkpoint", "verify", dir); r.status != exitFailed || !strings.Contains(r.stderr, "no checkpoint") {
		t.Errorf("verify ends with status %d:\n%s%s", r.status, r.stdout, r.stderr)
	}
	must(t, "checkpoint", "repair", dir)
	must(t, "train", "--resume", dir, "--steps", "80")
	if last := readRun(t, dir).Views; last[len(last)-1].RestoredStep != 60 {
		t.Errorf("it went on from step %d, want 60", last[len(last)-1].RestoredStep)
	}
}

// damage changes a byte among the values of every shard in the newest n checkpoints. Their
// manifests stay intact.
func damage(t *testing.T, dir string, n int) {
	t.Helper()
	dir = filepath.Join(dir, record.Checkpoints)
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
	t.Parallel()
	notUnderRace(t)
	for _, codec := range []string{"fp32", "sparse", "int8"} { // each looks for it elsewhere
		t.Run(codec, func(t *testing.T) {
			dir := newDir(t)
			r := kin(t, quadratic(300, "--model", "qp:dimension=100", "--learning-rate", "1e5", "--checkpoint-every", "5", "--codec", codec, "--out", dir)...)
			if r.status != exitFailed || !strings.Contains(r.stderr, "not finite: gradient of worker/") ||
				!strings.Contains(r.stderr, "tensor x holds") || !strings.Contains(r.stderr, "lower the learning rate") {
				t.Errorf("exit status %d:\n%s", r.status, r.stderr)
			}
			noOrphans(t, dir)
			must(t, "checkpoint", "verify", dir)
			if step, _ := lastParams(t, dir); step == 0 || step >= 300 {
				t.Errorf("the newest checkpoint is of step %d; want one before the end", step)
			}
			if s := readRun(t, dir).Summary; !strings.Contains(s.Reason, "not finite") || strings.Contains(s.Reason, "| not finite") { // the latter: it is said twice
				t.Errorf("summary.json says %q", s.Reason)
			}
		})
	}
}

// The servers are healthy, so the run saves a last checkpoint, from which it can go on with another
// learning rate.
func TestARunWhoseGradientsAreNotFiniteEndsWithALastCheckpoint(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	r := kin(t, quadratic(300, "--model", "qp:dimension=100", "--learning-rate", "1e5", "--checkpoint-every", "300", "--out", dir)...)
	if r.status != exitFailed || !strings.Contains(r.stdout, "is not finite; go on with: kintsugi train --resume "+dir) {
		t.Errorf("exit status %d:\n%s%s", r.status, r.stdout, r.stderr)
	}
	step, _ := lastParams(t, dir)
	if s := readRun(t, dir).Summary; step == 0 || uint64(step) != s.Steps || !strings.Contains(s.Reason, "not finite") {
		t.Errorf("the newest checkpoint is of step %d, the run of %d, which ended with %q", step, s.Steps, s.Reason)
	}
	noOrphans(t, dir)
}

func TestACheckpointIsExportedRestoredAndShown(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir, again := newDir(t), newDir(t)
	must(t, quadratic(60, "--decay", "constant", "--recovery", "scar", "--checkpoint-every", "20", "--optimizer", "adam", "--fault", "kill server/0 at step 59", "--out", dir)...)
	for _, ext := range []string{".safetensors", ".npz"} {
		out := filepath.Join(t.TempDir(), "x"+ext)
		if said := must(t, "checkpoint", "export", dir, "--out", out, "--state"); !strings.Contains(said, "3 tensors of step 60") {
			t.Errorf("export says %s", said)
		}
		text := tree(t, out)[out]
		_, params := lastParams(t, dir)
		if !strings.Contains(text, string(kernels.Bytes(params))) || !strings.Contains(text, `"step":"60"`) || !strings.Contains(text, "optimizer.1.x") {
			t.Errorf("%s lacks the parameters, the step or the optimizer's state", out)
		}
		if r := kin(t, "checkpoint", "export", dir, "--out", out); r.status != exitUsage {
			t.Errorf("a file that exists: exit status %d", r.status)
		}
	}
	if out := must(t, "checkpoint", "show", dir); !strings.Contains(out, "age in steps") || !strings.Contains(out, "  x |") || strings.Contains(out, "\x1b") {
		t.Errorf("show says\n%s", out)
	}
	if r := kin(t, "checkpoint", "restore", dir, "--out", again, "--step", "61"); r.status != exitUsage || !strings.Contains(r.stderr, "of steps 60") {
		t.Errorf("a step that is not there: exit status %d:\n%s", r.status, r.stderr)
	}
	before := tree(t, dir)
	torn, store := newDir(t), t.TempDir()
	if err := os.Mkdir(filepath.Join(store, filepath.Base(torn)), 0o777); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(store, filepath.Base(torn), "tmp"), nil) // blocks the creation of a folder
	if r := kin(t, "checkpoint", "restore", dir, "--out", torn, "--store", store); r.status != exitFailed || !strings.Contains(r.stderr, "remove it") {
		t.Errorf("a store that cannot be written: exit status %d:\n%s", r.status, r.stderr)
	}
	if r := kin(t, "train", "--resume", torn); r.status != exitFailed || !strings.Contains(r.stderr, "restore again") {
		t.Errorf("the resume of what was not restored: exit status %d:\n%s", r.status, r.stderr)
	}
	must(t, "checkpoint", "restore", dir, "--out", again)
	if !maps.Equal(tree(t, dir), before) {
		t.Error("the run that was restored from has been changed")
	}
	sameBits(t, again, dir)
	must(t, "train", "--resume", again, "--steps", "100")
	must(t, "train", "--resume", dir, "--steps", "100")
	sameBits(t, again, dir) // the optimizer's state was copied, and the faults were not
	if r := readRun(t, again); len(r.Summary.Failures) > 0 {
		t.Errorf("failures: %+v", r.Summary.Failures)
	}
}

func TestARepairedRunGoesOn(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	must(t, quadratic(60, "--checkpoint-every", "20", "--out", dir)...)
	damage(t, dir, 1)
	// Every run manifest is damaged too. The model is then known from the settings.
	manifests, err := filepath.Glob(filepath.Join(dir, record.Checkpoints, "manifest", "*"))
	if err != nil || len(manifests) < 2 {
		t.Fatal(manifests, err)
	}
	for _, path := range manifests {
		writeFile(t, path, []byte("not what it was"))
	}
	files := tree(t, filepath.Join(dir, record.Checkpoints))
	before, err := strconv.Atoi(strings.Split(filepath.Base(manifests[len(manifests)-2]), "-")[1])
	if err != nil {
		t.Fatal(err)
	}
	out := must(t, "checkpoint", "repair", filepath.Join(dir, record.Checkpoints))
	if !strings.Contains(out, "2 lost") || !strings.HasSuffix(out, fmt.Sprintf("the newest whole checkpoint is of step %d\n", before)) {
		t.Errorf("repair says\n%s", out)
	}
	kept := map[string]bool{}
	for _, text := range tree(t, filepath.Join(dir, record.Checkpoints)) {
		kept[text] = true
	}
	for path, text := range files {
		if !kept[text] {
			t.Errorf("%s is gone", path)
		}
	}
	must(t, "checkpoint", "verify", dir)
	must(t, "train", "--resume", dir)
	if step, _ := lastParams(t, dir); step != 60 {
		t.Errorf("the resumed run ended at step %d", step)
	}
}
