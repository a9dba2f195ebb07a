package train

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// What ends a run is a function of its evaluations.
func TestEvaluationsEndARun(t *testing.T) {
	type evaluation struct {
		step           kintsugi.Step
		loss, accuracy float64
	}
	nan := math.NaN()
	falling := []evaluation{{100, 3, 0.1}, {200, 2, 0.5}, {300, 1, 0.9}}
	for _, c := range []struct {
		name     string
		until    string
		patience int
		list     []evaluation
		ends     kintsugi.Step // the evaluation that ends the run; 0: none does
	}{
		{"no target", notUntil, 0, falling, 0},
		{"an accuracy that is just reached", "accuracy=0.5", 0, falling, 200},
		{"a loss that is just reached", "loss=1", 0, falling, 300},
		{"a loss of zero", "loss=0", 0, []evaluation{{100, 0.1, 1}, {200, 0, 1}}, 200},
		{"a loss below zero", "loss=-2", 0, []evaluation{{100, -1, nan}, {200, -2.5, nan}}, 200},
		{"an accuracy that there is not", "accuracy=0.5", 0, []evaluation{{100, 1, nan}, {200, 0, nan}}, 0},
		{"a loss that is no number", "loss=1", 0, []evaluation{{100, nan, 1}}, 0},
		{"a loss that falls", notUntil, 1, falling, 0},
		{"a loss that rises", notUntil, 2, []evaluation{{100, 1, 0}, {200, 2, 0}, {300, 1.5, 0}}, 300},
		{"as low as the best is not lower", notUntil, 2, []evaluation{{100, 1, 0}, {200, 1, 0}, {300, 1, 0}}, 300},
		{"a better one in between", notUntil, 2, []evaluation{{100, 2, 0}, {200, 3, 0}, {300, 1, 0}, {400, 3, 0}, {500, 1, 0}}, 500},
		{"losses that are no numbers", notUntil, 2, []evaluation{{100, nan, 0}, {200, nan, 0}}, 200},
		{"the steps that a failure took back are evaluated again", notUntil, 2, []evaluation{{100, 1, 0}, {200, 2, 0}, {120, 1.5, 0}, {200, 2, 0}, {210, 2, 0}, {299, 2, 0}, {300, 2, 0}}, 300},
		{"and one of them is better", notUntil, 1, []evaluation{{200, 2, 0}, {120, 1.5, 0}, {200, 2, 0}, {299, 2, 0}, {300, 2, 0}}, 300},
		{"versions that come late", notUntil, 2, []evaluation{{103, 1, 0}, {201, 2, 0}, {300, 2, 0}}, 300},
	} {
		until, err := parseTarget(c.until)
		if err != nil {
			t.Fatal(err)
		}
		j := judge{until: until, patience: c.patience, every: 100}
		ends := kintsugi.Step(0)
		for _, e := range c.list {
			if why := j.add(e.step, e.loss, e.accuracy); why != "" {
				ends = e.step
				break
			}
		}
		if ends != c.ends {
			t.Errorf("%s: it ends at step %d, want %d", c.name, ends, c.ends)
		}
	}
}

// The file holds the parameters of the lowest loss, whoever has written it before.
func TestTheBestParametersAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), bestFile)
	layout, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "a", Shape: []int{2}}, {Name: "b", Shape: []int{1, 3}}})
	if err != nil {
		t.Fatal(err)
	}
	step := uint64(0)
	add := func(b *best, loss float64) []byte {
		t.Helper()
		step++
		params := []float32{float32(step), 1, 2, 3, 4}
		if err := b.add(layout, record.Evaluation{Line: 1, Step: step, Loss: record.Number(loss), Accuracy: record.Number(math.NaN())}, params); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		return text[len(text)-4*len(params):]
	}
	of := func(step float32) []byte { return kernels.Bytes([]float32{step, 1, 2, 3, 4}) }
	b := openBest(path)
	for i, c := range []struct {
		loss float64
		best float32 // step of the file then; 0: there is none
	}{{math.NaN(), 0}, {3, 2}, {4, 2}, {math.NaN(), 2}, {2.5, 5}, {2.5, 5}} {
		if i == 4 {
			b = openBest(path) // as a run that goes on does
			if b.was != nil || b.loss != 3 || b.step != 2 {
				t.Fatalf("the file is of step %d, loss %v: %v", b.step, b.loss, b.was)
			}
		}
		if got := add(b, c.loss); (got == nil) != (c.best == 0) || got != nil && !slices.Equal(got, of(c.best)) {
			t.Errorf("after a loss of %v the file is not of step %v", c.loss, c.best)
		}
	}
	if err := os.WriteFile(path, []byte("cut"), 0o666); err != nil {
		t.Fatal(err)
	}
	b = openBest(path)
	if b.was == nil || !slices.Equal(add(b, 9), of(7)) {
		t.Errorf("a damaged file was not replaced: %v", b.was)
	}
	b.path = filepath.Join(path, "below-a-file")
	if err := b.add(layout, record.Evaluation{Step: 8, Loss: 1}, make([]float32, 5)); err == nil || b.loss != 9 {
		t.Errorf("a file that cannot be written: %v, and the best loss is %v", err, b.loss)
	}
}

func TestStepsThatAreEvaluated(t *testing.T) {
	for _, c := range []struct {
		step, steps, every uint64
		returned, last     bool
		want               bool
	}{
		{step: 10, steps: 30, every: 10, want: true},
		{step: 11, steps: 30, every: 10},
		{step: 11, steps: 30, every: 10, returned: true, want: true},
		{step: 11, steps: 30, every: 30, returned: true}, // evaluations after failures alone would say little
		{step: 30, steps: 30, every: 10},                 // train evaluates its last checkpoint
		{step: 30, steps: 30, every: 10, last: true, want: true},
		{step: 31, steps: 31, every: 10, last: true, want: true},
		{step: 10, steps: 30, every: 0, last: true}, // a monitor, by default
		{step: 30, steps: 30, every: 0, last: true},
	} {
		if got := dueAt(c.step, c.steps, c.every, c.returned, c.last); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
