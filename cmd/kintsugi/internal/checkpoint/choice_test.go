package checkpoint

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// saved is a place where checkpoints of a small model are saved.
type saved struct {
	job.Place
	fsys   *vfs.Mem
	layout *kintsugi.Layout
}

func newSaved(t *testing.T) *saved {
	t.Helper()
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "x", Shape: []int{3}}})
	if err != nil {
		t.Fatal(err)
	}
	fsys := vfs.NewMem()
	return &saved{job.Place{FS: fsys, Dir: "run", Name: "run"}, fsys, layout}
}

// save saves a checkpoint whose first value is its step.
func (s *saved) save(t *testing.T, line kintsugi.Line, step kintsugi.Step) {
	t.Helper()
	flat, err := ckpt.NewFlat(s.layout, s.layout.Split(1)[0], kintsugi.RuleSGD)
	if err != nil {
		t.Fatal(err)
	}
	flat.Params[0] = float32(step)
	w, err := ckpt.OpenWriter(s.fsys, "run", ckpt.WriterConfig{Layout: s.layout, Rule: kintsugi.RuleSGD, Range: flat.Range, Line: line, Fence: 1})
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.Save(t.Context(), ckpt.Snapshot{Step: step, Load: flat.Load})
	if err != nil {
		t.Fatal(err)
	}
	if err := ckpt.PublishRun(s.fsys, "run", &ckpt.RunManifest{Line: line, Step: step, Fence: 1, Rule: kintsugi.RuleSGD, Tensors: s.layout.Tensors}, []string{r.File}); err != nil {
		t.Fatal(err)
	}
}

// Of two lines, what the older one has of later steps was taken back: it is not part of a mean, nor
// is what is damaged.
func TestAMeanIsOfCheckpointsThatGoBackToOneAnother(t *testing.T) {
	at := newSaved(t)
	save := func(line kintsugi.Line, step kintsugi.Step) { at.save(t, line, step) }
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
		of, err := chosen(at.Place, choice{step: c.step, average: c.average})
		if err != nil || stepsOf(of) != c.want {
			t.Errorf("step %d, average %d: steps %s, %v; want %s", c.step, c.average, stepsOf(of), err, c.want)
		}
	}
	damaged, err := chosen(at.Place, choice{step: 30, average: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := at.fsys.Edit(filepath.Join("run", damaged[0].Name()), func(b []byte) []byte { b[5] ^= 1; return b }); err != nil {
		t.Fatal(err)
	}
	if of, err := chosen(at.Place, choice{step: newestStep, average: 4}); err != nil || stepsOf(of) != "45, 35, 20, 10" {
		t.Errorf("with one that is damaged: steps %s, %v", stepsOf(of), err)
	}
}

// A run that is under way removes checkpoints while they are read. Others are read then, unless a
// step was asked for that is gone. What cannot be read for another reason is not read again.
func TestCheckpointsThatAreRemovedAreChosenAgain(t *testing.T) {
	for _, c := range []struct {
		choice
		want  string // steps that were read
		reads int
		fails bool
	}{
		{choice{newestStep, 1}, "40", 2, false},
		{choice{newestStep, 2}, "40, 30", 2, false},
		{choice{20, 1}, "", 1, true},
		{choice{30, 1}, "30", 1, false},
	} {
		at := newSaved(t)
		at.save(t, 1, 10)
		at.save(t, 1, 20)
		if c.step == 30 {
			at.save(t, 1, 30)
		}
		of, err := chosen(at.Place, c.choice)
		if err != nil {
			t.Fatal(err)
		}
		reads := 0
		of, err = reading(at.Place, c.choice, of, func(of []*ckpt.RunManifest) error {
			if reads++; reads == 1 && c.step != 30 {
				at.save(t, 1, 30)
				at.save(t, 1, 40)
				if _, err := ckpt.Compact(at.fsys, "run", ckpt.Retention{Newest: 2}); err != nil {
					t.Fatal(err)
				}
			}
			_, _, err := readParams(t.Context(), at.Place, of)
			return err
		})
		if stepsOf(of) != c.want || (err != nil) != c.fails || reads != c.reads {
			t.Errorf("step %d, average %d: %d reads of steps %q, %v; want %d of %q", c.step, c.average, reads, stepsOf(of), err, c.reads, c.want)
		}
	}
	at := newSaved(t)
	at.save(t, 1, 10)
	one := choice{newestStep, 1}
	of, err := chosen(at.Place, one)
	if err != nil {
		t.Fatal(err)
	}
	reads, broken := 0, errors.New("the disk is broken")
	if _, err := reading(at.Place, one, of, func([]*ckpt.RunManifest) error { reads++; return broken }); err != broken || reads != 1 {
		t.Errorf("%d reads: %v", reads, err)
	}
}
