//go:build gpu && cgo && linux

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
)

// withGPU makes the processes that the test starts find a GPU, or the emulation of one.
func withGPU(t *testing.T) {
	t.Helper()
	library := emulate.Library(t)
	if library == "" {
		return // the machine's own
	}
	dir := t.TempDir()
	if err := os.Symlink(library, filepath.Join(dir, "libcuda.so.1")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", dir)
}

// small are the flags of a run that the emulation does in seconds: all of it on the GPU.
func small(more ...string) []string {
	args := []string{"train", "--model", "mlp", "--workers", "1", "--servers", "2", "--device", "cuda", "--server-device", "cuda", "--codec", "int8-nofeedback", "--checkpoint-every", "10"}
	if !emulate.OnGPU() {
		args = append(args, "--batch", "2")
	}
	return append(args, more...)
}

// Gradients and steps are computed on the GPU from end to end, and a server that is killed there takes nothing with it: the parameters
// have the bits of a run that was left in peace, with servers that step on the host.
func TestATrainingOnTheGPUOutlivesAServer(t *testing.T) {
	withGPU(t)
	steps := "50"
	if testing.Short() && !emulate.OnGPU() {
		steps = "20"
	}
	host, killed := newDir(t), newDir(t)
	must(t, small("--steps", steps, "--out", killed, "--fault", "kill server/0 at step 15")...)
	must(t, small("--steps", steps, "--out", host, "--server-device", "cpu")...)
	sameBits(t, killed, host)
	if n := len(readRun(t, killed).Summary.Failures); n != 1 {
		t.Errorf("the summary has %d failures, want 1", n)
	}
}
