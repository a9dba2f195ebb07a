package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object/objecttest"
)

// If two runs are given the same store at the same time, only one saves there, whether the store
// already has a checkpoint or not.
func TestOfTwoTrainingsWithOneStoreOneAloneSavesThere(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	t.Run("folder", func(t *testing.T) { checkOneStore(t, t.TempDir()) })
	t.Run("object store", func(t *testing.T) {
		checkOneStore(t, objecttest.New(t).Place("team"))
	})
}

func checkOneStore(t *testing.T, store string) {
	parent := t.TempDir()
	first, second, want := filepath.Join(parent, "a", "run"), filepath.Join(parent, "b", "run"), newDir(t)
	p := start(t, quadratic(1_000_000_000, "--decay", "constant", "--checkpoint-every", "1000000000", "--store", store, "--out", first)...)
	p.reaches(first, 10)

	// The first run has no checkpoint yet. Another run of the same name is refused all the same.
	if r := kin(t, quadratic(20, "--store", store, "--out", second)...); r.status != exitUsage || !strings.Contains(r.stderr, "another run") {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}

	// A run that continues in a copy of the folder takes the store over.
	if err := os.CopyFS(second, os.DirFS(first)); err != nil {
		t.Fatal(err)
	}
	must(t, "train", "--resume", second, "--steps", "60", "--checkpoint-every", "20")
	before := must(t, "checkpoint", "list", second)

	p.signal(syscall.SIGINT)
	if r := p.wait(); r.status == 0 || !strings.Contains(r.stderr, "taken by another run") {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
	if after := must(t, "checkpoint", "list", second); after != before {
		t.Errorf("before the first run tried to save there was\n%sand then\n%s", before, after)
	}
	must(t, "checkpoint", "verify", second)
	must(t, quadratic(60, "--decay", "constant", "--out", want)...)
	sameBits(t, second, want)
}
