package main

import (
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
)

// A run keeps its checkpoints in the memory of another process, and restores them from there.
func TestARunKeepsItsCheckpointsInTheMemoryOfAnotherProcess(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	address := freeAddress(t)
	keeper := start(t, "memory", "--listen", address)
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
	if said := must(t, "checkpoint", "list", store+"/"+filepath.Base(dir)); !strings.Contains(said, "00000000000000000300") {
		t.Errorf("what is kept there: %s", said)
	}
	if said := must(t, "bench", "checkpoint", "--store", store, "--sizes", "1", "--rounds", "1"); !strings.Contains(said, "restore") {
		t.Errorf("bench checkpoint: %s", said)
	}
	keeper.signal(syscall.SIGTERM)
	if r := keeper.wait(); r.status != exitDone {
		t.Errorf("the memory ended with status %d: %s", r.status, r.stderr)
	}
}

// A measurement of a store that is interrupted leaves nothing there.
func TestAnInterruptedMeasurementLeavesNothingInTheStore(t *testing.T) {
	t.Parallel()
	keeper := object.NewKeeper(1 << 30)
	server := httptest.NewServer(keeper)
	defer server.Close()
	store := object.MemoryScheme + server.Listener.Addr().String() + "/runs"
	p := start(t, "bench", "checkpoint", "--store", store, "--sizes", "8", "--rounds", "65536")
	for objects := 0; objects < 4 && p.patience.Err() == nil; _, objects = keeper.Used() {
		runtime.Gosched() // it has begun to measure once there is more than the checkpoint to restore
	}
	p.signal(syscall.SIGINT)
	r := p.wait()
	if _, left := keeper.Used(); r.status != exitFailed || left > 0 {
		t.Errorf("it ends with status %d and leaves %d objects: %s", r.status, left, r.stderr)
	}
}
