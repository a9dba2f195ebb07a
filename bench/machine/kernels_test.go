package machine

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// The rows are those that were asked for, and bytes are those of the arrays: what an operation
// needs does not depend on the machine.
func TestKernelsCountTheBytesThatMustMove(t *testing.T) {
	rows, err := Kernels(t.Context(), KernelsConfig{
		Device: kernels.Best(), Sizes: []int{1 << 20}, K: []int{4}, Threads: []int{2}, Pairs: 1, Progress: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	perValue := map[string]float64{ // bytes of each value
		"copy//bytes": 8, "triad//bytes": 12, "read//bytes": 16,
		"sgd/fused/fp32": 24, "sgd/in order of arrival/fp32": 56, "momentum/fused/fp32": 32,
		"adam/fused/fp32": 40, "adam/fused/bf16": 32, "adam/fused/fp16": 32, "adam/fused/int8": 28 + 4*4/256.0, "adam/fused/sign": 24.5 + 4*4/256.0,
		"squared norm/scan/fp32": 4, "finite/scan/fp32": 4, "squared distance/scan/fp32": 8,
	}
	seen := map[string]bool{}
	for _, r := range rows {
		variant := r.Variant
		if r.Device == "memory" {
			variant = ""
		}
		name := strings.Join([]string{r.Name, variant, r.DType}, "/")
		seen[name] = true
		if want := perValue[name]; want > 0 && float64(r.Bytes) != want*float64(r.Elements) {
			t.Errorf("%s moves %d bytes for %d values, want %v each", name, r.Bytes, r.Elements, want)
		}
		if r.Seconds <= 0 || r.GBPerS <= 0 || r.Threads != 2 || r.Elements < 1<<14 {
			t.Errorf("%s: %+v", name, r)
		}
		if variant == "fused" && (r.BoundGBPerS <= 0 || r.Fraction <= 0) {
			t.Errorf("%s has no bound: %+v", name, r)
		}
		if versus := name == "sgd/fused/fp32" || strings.HasPrefix(name, "adam/fused/") && r.DType != "fp32"; versus != (r.Ratio > 0) {
			t.Errorf("%s is compared with %q: ratio %v", name, r.Versus, r.Ratio)
		}
	}
	for name := range perValue {
		if !seen[name] {
			t.Errorf("there is no row %s", name)
		}
	}
}

// If everything were slow, a run of the goals alone would miss as many goals as a run of
// everything, in the cache and outside.
func TestNoGoalIsLeftOutOfWhatHasGoals(t *testing.T) {
	race.Skip(t)
	var codecs []compress.Codec
	for _, spec := range []string{"bf16", "int8", "topk:0.1"} {
		c, err := compress.Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		codecs = append(codecs, c)
	}
	missed := func(goals bool) (lines []string, measured int) {
		cfg := KernelsConfig{Device: kernels.Best(), Sizes: []int{1 << 20, 5 << 20}, K: []int{2, 4}, Threads: []int{1}, Pairs: 1, Goals: goals, Progress: io.Discard}
		steps, err := Kernels(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Sizes = []int{1 << 20, 17 << 20} // a gradient is a fourth of that
		coded, err := CodecSpeed(t.Context(), cfg, codecs)
		if err != nil {
			t.Fatal(err)
		}
		for i := range steps {
			steps[i].Fraction, steps[i].Ratio = 0, 1/float64(steps[i].K)
		}
		for i := range coded {
			coded[i].Fraction, coded[i].Ratio = 0, 0
		}
		return strings.Split(fmt.Sprint(errors.Join(CheckKernels(steps), CheckCodecs(coded))), "\n"), len(steps) + len(coded)
	}
	want, all := missed(false)
	got, some := missed(true)
	if !slices.Equal(got, want) || len(want) < 10 {
		t.Errorf("missed:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if some > all/2 {
		t.Errorf("%d of %d operations are measured", some, all)
	}
}

func TestMissedGoalsAreNamed(t *testing.T) {
	row := func(name, dtype string, bytes int64, fraction, ratio float64) bench.Row {
		return bench.Row{Name: name, Variant: "fused", DType: dtype, K: 4, Bytes: bytes, Fraction: fraction, Ratio: ratio}
	}
	good := []bench.Row{
		row("sgd", "fp32", 1<<30, 0.69, 1.05), row("sgd", "fp32", 1<<20, 0.1, 1.61), row("sgd", "fp32", 1<<20, 0.75, 1.59), row("adam", "int8", 1<<30, 0.61, 0.81),
		row("adam", "fp32", 1<<30, 0.1, 0), row("adam", "topk:0.1", 1<<30, 0.1, 0.1), {Name: "sgd", Variant: "in order of arrival", K: 4, Bytes: 1 << 30},
	}
	if err := CheckKernels(good); err != nil {
		t.Errorf("rows that keep the goals: %v", err)
	}
	for _, bad := range []bench.Row{
		row("sgd", "fp32", 1<<30, 0.67, 1.05), row("sgd", "fp32", 1<<30, 0.9, 1.03), row("sgd", "fp32", 1<<20, 0.74, 1.59),
		row("adam", "bf16", 1<<30, 0.59, 1), row("adam", "int8", 1<<30, 0.9, 0.79),
	} {
		if err := CheckKernels(append(good, bad)); err == nil || !strings.Contains(err.Error(), bad.Name) {
			t.Errorf("%+v misses a goal; error %v", bad, err)
		}
	}
}

func TestMissedGoalsOfAGPUAreNamed(t *testing.T) {
	row := func(fraction, goal float64) bench.Row {
		return bench.Row{Name: "adam", DType: "bf16", Fraction: fraction, Goal: goal}
	}
	if err := CheckGPUKernels([]bench.Row{row(0.69, 0.85), row(0.01, 0)}); err != nil {
		t.Errorf("rows that keep the goals: %v", err)
	}
	if err := CheckGPUKernels([]bench.Row{row(0.9, 0.85), row(0.67, 0.85)}); err == nil || !strings.Contains(err.Error(), "0.67; the goal is 0.85") {
		t.Errorf("a missed goal: %v", err)
	}
}

func TestConfigurationsThatAskForNothingAreRefused(t *testing.T) {
	good := KernelsConfig{Sizes: []int{1 << 20}, K: []int{1}, Threads: []int{1}, Pairs: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for i, spoil := range []func(*KernelsConfig){
		func(c *KernelsConfig) { c.Sizes = nil }, func(c *KernelsConfig) { c.Sizes = []int{100} }, func(c *KernelsConfig) { c.K = []int{0} },
		func(c *KernelsConfig) { c.K = []int{65} }, func(c *KernelsConfig) { c.Threads = []int{0} }, func(c *KernelsConfig) { c.Pairs = 0 },
	} {
		c := good
		spoil(&c)
		if err := c.Check(); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("spoiled in way %d: %v", i, err)
		}
	}
}
