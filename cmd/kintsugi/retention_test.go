package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

func TestARetentionIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]ckpt.Retention{"1": {Newest: 1}, "1000": {Newest: 1000}, "2,every=1000": {Newest: 2, Every: 1000}} {
		var r, again retention
		if err := r.Set(text); err != nil || r.Retention != want || r.String() != text {
			t.Errorf("%s is read as %+v, %v, and written as %s", text, r, err, r.String())
		}
		if err := again.Set(r.String()); err != nil || again != r {
			t.Errorf("%s is read again as %+v, %v", r.String(), again, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "1001", "two", "2,", "2,every=", "2,every=0", "2,every=-1", "2,every=1e3", "2,1000", "2, every=5"} {
		r := retention{ckpt.Retention{Newest: 7}}
		if err := r.Set(text); !errors.Is(err, kintsugi.ErrUsage) || r.Newest != 7 {
			t.Errorf("%q is read as %+v, %v", text, r, err)
		}
	}
}

// Checkpoints that a run keeps are there when it has ended, also if a server was killed, and can be
// exported.
func TestARunKeepsTheCheckpointsThatItWasToldTo(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	must(t, quadratic(100, "--gradient-time", "4ms", "--checkpoint-every", "4", "--checkpoint-keep", "1,every=20", "--fault", "kill server/0 at step 50", "--out", dir)...)
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
