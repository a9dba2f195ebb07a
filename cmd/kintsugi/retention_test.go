package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// Checkpoints that a run keeps are there when it has ended, also if a server was killed, and can be
// exported.
func TestARunKeepsTheCheckpointsThatItWasToldTo(t *testing.T) {
	t.Parallel()
	notUnderRace(t)
	dir := newDir(t)
	must(t, quadratic(100, "--model", "mlr", "--gradient-time", "4ms", "--checkpoint-every", "4", "--checkpoint-keep", "1,every=20", "--eval-every", "50", "--fault", "kill server/0 at step 50", "--out", dir)...)
	if list := must(t, "checkpoint", "list", dir); !regexp.MustCompile(`(?m)^100 .* 100 +0\.\d+ +0\.\d+ +manifest`).MatchString(list) {
		t.Errorf("the list of checkpoints has not the evaluation of the last step:\n%s", list)
	}
	folder := filepath.Join(dir, "checkpoints")
	names, err := ckpt.List(vfs.OS{}, folder)
	if err != nil {
		t.Fatal(err)
	}
	var periods []kintsugi.Step
	for _, name := range names {
		m, err := ckpt.Read(vfs.OS{}, folder, name)
		if err != nil {
			t.Fatal(err)
		}
		periods = append(periods, m.Step/20)
		if m.Step < 20 {
			t.Errorf("step %d is kept", m.Step)
		}
		must(t, "checkpoint", "export", dir, "--step", strconv.FormatUint(uint64(m.Step), 10), "--out", filepath.Join(t.TempDir(), "model.npz"))
	}
	// On a slow disk, there may be twenty steps without a save.
	if once := slices.Compact(slices.Clone(periods)); len(periods) < 2 || len(once) < len(periods) || periods[0] != 5 {
		t.Errorf("checkpoints of these twenties of steps are kept: %v, want one of each", periods)
	}
}
