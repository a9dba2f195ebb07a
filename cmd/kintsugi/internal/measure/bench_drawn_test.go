package measure

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/drawn"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// A run that train refuses shows nothing.
func TestTrainTakesWhateverIsDrawn(t *testing.T) {
	inputs := make(map[string]string) // by model; with one, Describe need not open the data
	for n := range 3000 {
		d := drawn.Space{Seed: 1, Exact: n >= 2000}.Draw(n)
		x := &train.Training{}
		err := taken(x, d.Args(), func() { x.Input = inputs[x.Model] })
		if inputs[x.Model] = x.Input; err != nil {
			t.Errorf("run %d: %v: train %s", n, err, d)
		}
		if len(d.Resumed) == 0 {
			continue
		}
		x = &train.Training{}
		if err := taken(x, slices.Concat(d.Settings, d.Resumed), func() { x.Input = inputs[x.Model] }); err != nil {
			t.Errorf("run %d, resumed: %v: train %s", n, err, d)
		}
	}
}

// So it is with a program, also if what it suggests allows less than what built-in models do.
func TestTrainTakesAProgramWithWhateverIsDrawn(t *testing.T) {
	about := program.Description{
		Name: "net", Tensors: []kintsugi.Tensor{{Name: "w", Shape: []int{3, 40}}, {Name: "b", Shape: []int{3}}},
		Optimizer: "adam", Codec: "powersgd:2", Warmup: 20, Decay: "drop:0.1@25", Rates: map[string]float32{"b": 2}, ClipNorm: 1,
	}
	var content strings.Builder
	if err := program.Write(&content, &about, make([]float32, about.Values())); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), job.DescribedFile)
	if err := os.WriteFile(path, []byte(content.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range 3000 {
		d := drawn.Space{Seed: 1, Exact: n >= 2000, Program: []string{"python3", "train.py", "--model", "lenet"}}.Draw(n)
		x := &train.Training{}
		known := func() { x.Described, x.Program = path, d.Program }
		if err := taken(x, d.Args(), known); err != nil {
			t.Errorf("run %d: %v: train %s", n, err, d)
		}
		x = &train.Training{}
		if err := taken(x, slices.Concat(d.Settings, d.Resumed), known); err != nil {
			t.Errorf("run %d, resumed: %v: train %s", n, err, d)
		}
	}
}

// taken returns why train refuses arguments, if it does. Known is called before the model is
// described.
func taken(x *train.Training, args []string, known func()) error {
	f := job.NewFlagSet("train")
	x.Register(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := x.Check(); err != nil {
		return err
	}
	known()
	if _, err := job.Describe(&x.Settings); err != nil {
		return err
	}
	_, err := x.Counting()
	return err
}
