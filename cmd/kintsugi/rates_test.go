package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// The first pattern that fits the name of a tensor counts, as in a program's rates, and what no
// pattern fits keeps the program's rate. A pattern that fits nothing or comes too late to count, and
// a factor that is no positive number, are refused by name.
func TestRatesAreGivenByPatterns(t *testing.T) {
	plain, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "embed", Shape: []int{4}}, {Name: "block/0/w", Shape: []int{4}}, {Name: "head.w", Shape: []int{4}}, {Name: "head.b", Shape: []int{2}}})
	if err != nil {
		t.Fatal(err)
	}
	program, err := plain.WithRates(map[string]float32{"embed": 0.1, "head.b": 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rates  []string
		layout *kintsugi.Layout
		want   []float32
		err    string
	}{
		{nil, program, []float32{0.1, 1, 1, 5}, ""},
		{[]string{"head.*=10"}, plain, []float32{1, 1, 10, 10}, ""},
		{[]string{"head.w=2", "head.*=10", "*=0.5"}, program, []float32{0.5, 0.5, 2, 10}, ""},
		{[]string{"block*=3"}, program, []float32{0.1, 3, 1, 5}, ""},
		{[]string{"block/?/[vw]=3"}, plain, []float32{1, 3, 1, 1}, ""},
		{[]string{"*=1"}, program, []float32{1, 1, 1, 1}, ""},
		{[]string{"head=2"}, plain, nil, `fits "head"; it has embed, block/0/w, head.w, head.b`},
		{[]string{"*=0.5", "head.*=10"}, plain, nil, `--rate head.*=10: every tensor that fits "head.*", such as head.b, fits an earlier --rate`},
		{[]string{"head.w=2", "head.b=2", "head.*=10"}, plain, nil, "put this one before it"},
		{[]string{"*=0"}, plain, nil, "must be a positive number"},
		{[]string{"*=NaN"}, plain, nil, "must be a positive number"},
		{[]string{"*=1e99"}, plain, nil, "must be a positive number"},
		{[]string{"*"}, plain, nil, "PATTERN=FACTOR"},
		{[]string{"=2"}, plain, nil, "PATTERN=FACTOR"},
		{[]string{"[=2"}, plain, nil, "no pattern"},
	} {
		got, err := (&settings{Rates: c.rates}).rated(c.layout)
		if c.err != "" {
			if !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v; want %q", c.rates, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.rates, err)
			continue
		}
		var rates []float32
		for i := range got.Tensors {
			rates = append(rates, got.Rate(i))
		}
		if !slices.Equal(rates, c.want) || got.Uneven() != slices.ContainsFunc(c.want, func(r float32) bool { return r != 1 }) {
			t.Errorf("%q: rates %v, uneven %t; want %v", c.rates, rates, got.Uneven(), c.want)
		}
	}
}

// Rates on the command line reach every process of a run, and its next lives: a run whose server is
// killed ends with the bits of a calm one, which are not those of a run with one rate.
func TestRatesReachEveryProcess(t *testing.T) {
	t.Parallel()
	onlyLong(t)
	train := func(more ...string) string {
		dir := newDir(t)
		must(t, append([]string{"train", "--model", "mlr", "--data", "digits", "--workers", "2", "--servers", "2", "--steps", "40", "--eval-every", "0", "--out", dir}, more...)...)
		return dir
	}
	rates := []string{"--rate", "*w=0.5", "--rate", "*=3"}
	calm := train(rates...)
	sameBits(t, train(append(rates, "--fault", "kill server/0 at step 15")...), calm)
	_, uneven := lastParams(t, calm)
	if _, even := lastParams(t, train()); slices.Equal(uneven, even) {
		t.Error("rates make no difference")
	}
}

// The loop that bench train compares a cluster with does the same work: it ends with the bits of
// train, with rates and clipping, through a killed server. So does the loop over a program that
// gives them, and lets only matrices decay.
func TestTheLoopOfBenchTrainMakesTheStepsOfTrain(t *testing.T) {
	onlyLong(t)
	t.Setenv("OMP_NUM_THREADS", "1") // else it would be set for the tests that follow
	const steps = 30
	for name, c := range map[string]struct {
		b      benchTrain
		differ []string // flags of train with which it makes other steps
	}{
		"a model":   {benchTrain{models: []string{"mlp"}, rates: []string{"fc3/*=4", "*/b=0.5"}, clipNorm: 0.5}, []string{"--clip-norm", "0"}},
		"a program": {benchTrain{models: []string{"a program"}, program: slices.Concat(ownProgram[1:], []string{"recipe", "rated"}), clipNorm: suggested}, []string{"--rate", "*=1"}},
	} {
		b := c.b
		b.workers, b.servers, b.steps, b.rounds, b.blas, b.wire, b.device, b.serverDevice = 3, 2, steps, 1, "auto", "auto", "auto", "cpu"
		cfg, end, err := b.config(t.Context(), b.models[0])
		if err != nil {
			t.Fatal(name, err)
		}
		want, perSecond, err := cfg.Loop(t.Context(), steps)
		end()
		if err != nil || !(perSecond > 0) {
			t.Fatalf("%s: %v steps/s, %v", name, perSecond, err)
		}
		train := func(more ...string) []float32 {
			dir := newDir(t)
			args := slices.Concat([]string{"train", "--model", cfg.Model, "--workers", "3", "--servers", "2", "--steps", fmt.Sprint(steps), "--eval-every", "0", "--out", dir}, b.flags(), more)
			must(t, args...)
			_, params := lastParams(t, dir)
			return params
		}
		same := func(got []float32) bool {
			return slices.EqualFunc(got, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
		}
		if !same(train("--fault", "kill server/0 at step 12")) {
			t.Errorf("%s: the loop makes other steps than train", name)
		}
		if same(train(c.differ...)) {
			t.Errorf("%s: %q makes no difference: nothing is shown", name, c.differ)
		}
	}
}
