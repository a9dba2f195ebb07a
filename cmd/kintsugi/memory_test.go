package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// A run keeps its checkpoints in the memory of another process, and restores them from there.
func TestARunKeepsItsCheckpointsInTheMemoryOfAnotherProcess(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	start(t, "memory", "--listen", address)
	waitListening(t, address)
	dir := newDir(t)
	store := object.MemoryScheme + address + "/runs"
	must(t, quadratic(300, "--store", store, "--out", dir, "--recovery", "scar", "--fault", "kill server/1 at step 150")...)
	if s := readRun(t, dir).Summary; len(s.Failures) != 1 || s.Steps != 300 {
		t.Errorf("%+v", s)
	}
	if r := kin(t, "checkpoint", "verify", dir); r.status != exitDone {
		t.Errorf("exit status %d:\n%s", r.status, r.stderr)
	}
	if said := must(t, "checkpoint", "list", store+"/"+filepath.Base(dir)); !strings.Contains(said, "300") {
		t.Errorf("what is kept there: %s", said)
	}
}

func TestPlacesInMemoryAreRead(t *testing.T) {
	for _, text := range []string{"memory://", "memory://host", "memory://host/x", "memory://:9400/x", "memory://me:pw@host:1/x", "memory://host:1/x?a=b"} {
		if _, err := memoryPlace(text); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSizesOfMemoryAreRead(t *testing.T) {
	for text, want := range map[string]int64{"1B": 1, "500MB": 5e8, "8GB": 8e9} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "8", "8GB/s", "-1MB", "0B", "xGB"} {
		if _, err := parseBytes(text); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%q is a size", text)
		}
	}
}
