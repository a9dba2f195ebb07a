package main

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
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

// A checkpoint is listed with the newest evaluation of what it goes back to, and not with that of a
// step that was taken back.
func TestACheckpointIsListedWithTheEvaluationOfItsHistory(t *testing.T) {
	evaluation := func(line, step uint64) *record.Evaluation { return &record.Evaluation{Line: line, Step: step} }
	run := record.NewRun([]record.Event{
		&record.View{Number: 1, Line: 1},
		evaluation(1, 10), evaluation(1, 20), evaluation(1, 30),
		&record.View{Number: 2, Line: 2, RestoredStep: 25}, // step 30 is taken back
		evaluation(2, 40),
		&record.View{Number: 3, Line: 3, Keeps: 2}, // nothing is taken back
		evaluation(3, 50),
	}, nil)
	for _, c := range []struct{ line, step, want, on uint64 }{
		{1, 9, 0, 0}, {1, 10, 10, 1}, {1, 35, 30, 1}, {2, 26, 20, 1}, {2, 39, 20, 1}, {2, 45, 40, 2}, {3, 45, 40, 2}, {3, 99, 50, 3}, {1, 99, 30, 1},
	} {
		e := evaluatedBefore(run, kintsugi.Line(c.line), kintsugi.Step(c.step))
		if (e == nil) != (c.want == 0) || e != nil && (e.Step != c.want || e.Line != c.on) {
			t.Errorf("step %d on line %d has the evaluation %+v, want that of step %d on line %d", c.step, c.line, e, c.want, c.on)
		}
	}
}

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
