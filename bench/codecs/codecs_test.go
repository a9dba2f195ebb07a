package codecs

import (
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/internal/live"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// small is a problem without data: gradients of ‖w − 1‖²/2 with noise that depends only on the
// push.
func small(t *testing.T, steps kintsugi.Step) Problem {
	t.Helper()
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{60, 70}}, {Name: "b", Shape: []int{70}}})
	if err != nil {
		t.Fatal(err)
	}
	gradient := func(_ context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		h := uint64(id.Slot)*0x9e3779b97f4a7c15 ^ uint64(id.Version)*0xbf58476d1ce4e5b9 ^ 1
		for i, p := range params {
			h ^= h << 13
			h ^= h >> 7
			h ^= h << 17
			grads[i] = p - 1 + (float32(h>>40)/(1<<23) - 1)
		}
		return 0, 8, nil
	}
	accuracy := func(_ context.Context, params []float32) (float64, error) {
		off := 0.0
		for _, p := range params {
			off += math.Abs(float64(p-1)) / float64(len(params))
		}
		return max(0, 1-off), nil
	}
	return Problem{Model: "small", Data: "noise", Layout: l,
		Schedule: conductor.Schedule{Rule: kintsugi.RuleMomentum, LearningRate: 0.05, Momentum: 0.5, Steps: steps},
		Open: func(uint64) (Trainee, error) {
			return Trainee{Init: func([]float32) error { return nil }, Gradient: gradient, Accuracy: accuracy, Close: func() error { return nil }}, nil
		}}
}

// The simulated workers behave as a cluster does: they end with its bits and push its bytes.
func TestSimulatedWorkersDoWhatAClusterDoes(t *testing.T) {
	const steps = 40
	for _, spec := range []string{"fp32", "int8:stochastic", "topk:0.05+s2", "powersgd:2"} {
		p := small(t, steps)
		codec, err := compress.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		trainee, _ := p.Open(3)
		trainer, err := simulate(&Config{Workers: 3}, &trial{problem: &p, codec: codec, schedule: p.Schedule, seed: 3}, trainee)
		if err != nil {
			t.Fatal(err)
		}
		for v := range kintsugi.Step(steps) {
			if err := trainer.step(t.Context(), v); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		live, err := live.Start(ctx, live.Config{
			Servers: 1, Workers: 3, Layout: p.Layout, Gradient: trainee.Gradient, Schedule: p.Schedule, Steps: steps, Seed: 3,
			Codec: func(kintsugi.Slot) compress.Codec { return codec },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer live.Close()
		pushed := uint64(0)
		_ = live.Watch(ctx, func(e kintsugi.RunEvent) bool {
			if s, ok := e.(kintsugi.StepEvent); ok {
				pushed += s.Pushed
			}
			_, done := e.(kintsugi.Done)
			return !done
		})
		if _, err := live.Wait(); err != nil {
			t.Fatal(err)
		}
		got, _ := live.Params()
		if !slices.EqualFunc(got, trainer.params, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			t.Errorf("%s: a cluster ends with other parameters", spec)
		}
		if pushed != trainer.bytes {
			t.Errorf("%s: %d bytes, a cluster pushes %d", spec, trainer.bytes, pushed)
		}
	}
}

// Rows compare runs with the same seed, and the files contain the rows.
func TestCodecsAreCompared(t *testing.T) {
	rows, err := Run(t.Context(), Config{
		Problems: []Problem{small(t, 80)}, Codecs: []string{"int8", "fp32", "topk:0.01-nofeedback"}, Seeds: 2, Steps: 80, Workers: 2, Threads: 2, Progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ least, most, points float64 }{{3, 4, 1}, {1, 1, 0}, {10, 100, 100}} {
		r := rows[i]
		smaller := float64(r.FP32Bytes) / float64(r.BytesPushed)
		last := r.Curve[len(r.Curve)-1]
		if smaller < want.least || smaller > want.most || math.Abs(float64(r.Points)) > want.points || len(r.Accuracy) != 2 || len(r.Curve) != moments ||
			last.Step != 80 || last.Accuracy != r.Mean {
			t.Errorf("%s: %.1f times smaller, %+v", r.Codec, smaller, r)
		}
	}
	if rows[2].Points > -10 {
		t.Errorf("without feedback %.1f points are lost: then nothing shows what it is for", -rows[2].Points)
	}
	dir := t.TempDir()
	page, err := Write(dir, page.Experiment{Command: "kintsugi reproduce codecs <b>", Time: time.Unix(0, 0)}, rows)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{page: {"small on noise", "topk:0.01-nofeedback", "&lt;b&gt;", `class="curve"`}, filepath.Join(dir, "table.json"): {`"codec": "int8"`, `"points_above_fp32"`}} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s lacks %q", file, w)
			}
		}
	}
}

func TestMoreAccurateIsHigherOnThePage(t *testing.T) {
	row := func(accuracy float64) Row {
		return Row{Model: "mlp", Data: "digits", Codec: "fp32", BytesPushed: 1, FP32Bytes: 1, Curve: []Moment{{Step: 1, Bytes: 1e6, Accuracy: accuracy}}}
	}
	p := newPanel([]Row{row(0.8), row(0.9)})
	if worse, better := p.Lines[0].Y, p.Lines[1].Y; !(better < worse) {
		t.Errorf("0.9 is drawn at y = %v, 0.8 at %v; y grows downwards", better, worse)
	}
}

// One run says nothing about how far apart runs are.
func TestOneRunHasNoDeviation(t *testing.T) {
	rows := []Row{{Codec: "fp32", Accuracy: []float64{0.5}}, {Codec: "int8", Accuracy: []float64{0.75}}, {Codec: "int8", Data: "other", Accuracy: []float64{0.5}}}
	compare(rows)
	if rows[0].Points != 0 || rows[1].Points != 25 || rows[1].PointsError.Known() || rows[2].Points.Known() {
		t.Errorf("of one seed, and without fp32 to compare with: %+v", rows)
	}
}
