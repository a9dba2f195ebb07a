package checkpoint

import (
	"path/filepath"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// Of two lines, what the older one has of later steps was taken back: it is not part of a mean, nor
// is what is damaged.
func TestAMeanIsOfCheckpointsThatGoBackToOneAnother(t *testing.T) {
	fsys := vfs.NewMem()
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "x", Shape: []int{3}}})
	if err != nil {
		t.Fatal(err)
	}
	at := job.Place{FS: fsys, Dir: "run", Name: "run"}
	save := func(line kintsugi.Line, step kintsugi.Step) {
		t.Helper()
		flat, err := ckpt.NewFlat(layout, layout.Split(1)[0], kintsugi.RuleSGD)
		if err != nil {
			t.Fatal(err)
		}
		flat.Params[0] = float32(step)
		w, err := ckpt.OpenWriter(fsys, "run", ckpt.WriterConfig{Layout: layout, Rule: kintsugi.RuleSGD, Range: flat.Range, Line: line, Fence: 1})
		if err != nil {
			t.Fatal(err)
		}
		r, err := w.Save(t.Context(), ckpt.Snapshot{Step: step, Load: flat.Load})
		if err != nil {
			t.Fatal(err)
		}
		if err := ckpt.PublishRun(fsys, "run", &ckpt.RunManifest{Line: line, Step: step, Fence: 1, Rule: kintsugi.RuleSGD, Tensors: layout.Tensors}, []string{r.File}); err != nil {
			t.Fatal(err)
		}
	}
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
		of, err := chosen(at, choice{step: c.step, average: c.average})
		if err != nil || stepsOf(of) != c.want {
			t.Errorf("step %d, average %d: steps %s, %v; want %s", c.step, c.average, stepsOf(of), err, c.want)
		}
	}
	damaged, err := chosenOne(at, 30)
	if err != nil {
		t.Fatal(err)
	}
	if err := fsys.Edit(filepath.Join("run", damaged.Name()), func(b []byte) []byte { b[5] ^= 1; return b }); err != nil {
		t.Fatal(err)
	}
	if of, err := chosen(at, choice{step: newestStep, average: 4}); err != nil || stepsOf(of) != "45, 35, 20, 10" {
		t.Errorf("with one that is damaged: steps %s, %v", stepsOf(of), err)
	}
}
