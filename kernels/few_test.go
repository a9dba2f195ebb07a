package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// fewNamed returns the payload of n values of which it names about one in every, in runs, some of
// them zeros of either sign.
func fewNamed(rng *rand.Rand, n, every int) []byte {
	x := values(rng, n, false)
	var runs []kernels.Run
	for lo := rng.IntN(every + 1); lo < n; {
		hi := min(n, lo+1+rng.IntN(40))
		for i := lo; i < hi; i++ {
			if rng.IntN(8) == 0 {
				x[i] = float32(math.Copysign(0, rng.Float64()-0.5))
			}
		}
		runs = append(runs, kernels.Run{Lo: int32(lo), Hi: int32(hi)})
		lo = hi + 1 + rng.IntN(40*every)
	}
	return kernels.AppendRuns(nil, x, runs)
}

// fewStep is a step that leaves alone what is not named.
func fewStep(rng *rand.Rand, rule kernels.Rule, n, operands, every int) *kernels.Step {
	s := newStep(rule, n, 0, rng, false)
	s.Scalars.WeightDecay, s.Scalars.Epsilon = 0, 1e-8
	s.Update, s.Previous, s.Saved, s.Broadcast = nil, nil, nil, nil
	s.WantDot, s.WantSaved, s.WantDisplacement = false, false, rng.IntN(2) == 0
	s.Scale, s.Scalars.LearningRate = rng.Float32(), rng.Float32()
	s.Copy = make([]float32, n)
	for i := range s.Params {
		if rng.IntN(8) == 0 {
			s.Params[i] = float32(math.Copysign(0, rng.Float64()-0.5))
		}
	}
	for _, state := range s.State {
		for i := range state {
			state[i] = float32(math.Abs(float64(state[i])))
		}
	}
	if rule == kernels.LazyAdam {
		s.Scalars.WeightDecay, s.Scalars.LearningRate = rng.Float32(), -rng.Float32()
	}
	for range operands {
		s.Operands = append(s.Operands, kernels.Operand{Weight: rng.Float32() - 0.25, Encoding: kernels.Sparse32, Data: fewNamed(rng, n, every)})
	}
	return s
}

// written are the arrays that a step writes.
func written(s *kernels.Step) [][]float32 {
	return append([][]float32{s.Next, s.Copy}, s.NextState[:s.Rule.States()]...)
}

// into returns s with other memory to write to, whose values are all guard.
func into(s *kernels.Step, guard float32) *kernels.Step {
	x := *s
	array := func() []float32 { return slices.Repeat([]float32{guard}, len(s.Params)) }
	x.Next, x.Copy = array(), array()
	for i := range s.Rule.States() {
		x.NextState[i] = array()
	}
	return &x
}

// What a step on few values computes has the bits of the whole step, and what it leaves out is what
// the whole step would have left alone.
func TestAStepOnFewValuesHasTheBitsOfTheWholeStep(t *testing.T) {
	const guard = 1234.5
	for _, d := range kernels.Devices() {
		rng := rand.New(rand.NewPCG(3, 5))
		var f kernels.Few
		made := map[kernels.Rule]int{}
		for i := range 600 {
			rule := []kernels.Rule{kernels.SGD, kernels.Adagrad, kernels.LazyAdam}[i%3]
			n := []int{0, 1, 15, 16, 17, 500, 2000, 5003, 16384}[rng.IntN(9)]
			s := fewStep(rng, rule, n, rng.IntN(4), 1+rng.IntN(60))
			few, whole := into(s, guard), into(s, guard)
			f.WantSum = i%4 > 0
			products, done, err := f.Step(d, few)
			if err != nil {
				t.Fatal(err)
			}
			if f.WantSum {
				whole.Update = make([]float32, n)
			}
			want, err := d.Step(whole)
			if err != nil {
				t.Fatal(err)
			}
			if f.WantSum && done {
				sum, data := slices.Repeat([]float32{guard}, n), f.AppendSum(nil)
				if _, err := kernels.Check(kernels.Sparse32, n, data); err != nil {
					t.Fatal(err)
				}
				if err := kernels.Host.Decode(sum, kernels.Sparse32, data); err != nil || !slices.EqualFunc(sum, whole.Update, sameBits) {
					t.Fatalf("%s: on %d values the sum is another one: %v", d.Name(), n, err)
				}
				if all := f.AppendSpots(nil, whole.Update); !slices.Equal(all, data) {
					t.Fatalf("%s: on %d values the same spots of the whole sum are another payload", d.Name(), n)
				}
				s.Operands, s.Scale = nil, 0
				few = into(s, guard)
				if products, done, err = f.StepFrom(d, few, data); !done || err != nil {
					t.Fatalf("%s: on %d values the step is not done from its sum: %v", d.Name(), n, err)
				}
			}
			chosen := make([]bool, n)
			for _, at := range f.Spots {
				for i := int(at) * kernels.Spot; done && i < min(n, (int(at)+1)*kernels.Spot); i++ {
					chosen[i] = true
				}
			}
			name := fmt.Sprintf("%s: %v on %d values, of %d operands, %d spots", d.Name(), rule, n, len(s.Operands), len(f.Spots))
			got, all, before := written(few), written(whole), append([][]float32{s.Params, s.Params}, s.State[:rule.States()]...)
			for k := range got {
				for j, is := range chosen {
					if w := all[k][j]; is && !sameBits(got[k][j], w) || !is && (got[k][j] != guard || done && !sameBits(w, before[k][j])) {
						t.Fatalf("%s: value %d of array %d is %v, the whole step has %v, chosen %v", name, j, k, got[k][j], w, is)
					}
				}
			}
			if !done {
				continue
			}
			made[rule]++
			if products != want {
				t.Fatalf("%s: by-products %v, the whole step has %v", name, products, want)
			}
		}
		for rule, n := range made {
			if n < 30 {
				t.Errorf("%s: only %d of 200 steps of %v were done on few values", d.Name(), n, rule)
			}
		}
		if len(made) != 3 {
			t.Errorf("%s: only steps of %v were done on few values", d.Name(), made)
		}
	}
}

// Where a step changes more than what is named, or wants more than what is named contributes to, it
// is left to the device.
func TestAStepThatNeedsAllValuesIsNotDoneOnFew(t *testing.T) {
	const n = 2000
	others := slices.Repeat([]float32{1}, n)
	for name, change := range map[string]func(*kernels.Step){
		"momentum":            func(s *kernels.Step) { s.Rule = kernels.Momentum },
		"weight decay":        func(s *kernels.Step) { s.Scalars.WeightDecay = 0.1 },
		"no epsilon":          func(s *kernels.Step) { s.Scalars.Epsilon = 0 },
		"a negative scale":    func(s *kernels.Step) { s.Scale = -1 },
		"a scale that is NaN": func(s *kernels.Step) { s.Scale = float32(math.NaN()) },
		"an infinite rate":    func(s *kernels.Step) { s.Scalars.LearningRate = float32(math.Inf(1)) },
		"a negative rate":     func(s *kernels.Step) { s.Scalars.LearningRate = -1 },
		"the sum is wanted":   func(s *kernels.Step) { s.Update = make([]float32, n) },
		"halves are wanted":   func(s *kernels.Step) { s.Broadcast = make([]byte, 2*n) },
		"a distance":          func(s *kernels.Step) { s.WantSaved, s.Saved = true, others },
		"a dot product":       func(s *kernels.Step) { s.WantDot, s.Previous = true, others },
		"a given sum":         func(s *kernels.Step) { s.Operands, s.From = nil, others },
		"a dense gradient":    func(s *kernels.Step) { s.Operands[0] = kernels.Operand{Weight: 1, Values: others} },
		"every value named":   func(s *kernels.Step) { s.Operands[0].Data = kernels.AppendRuns(nil, others, []kernels.Run{{Hi: n}}) },
		"a value in each spot": func(s *kernels.Step) {
			var runs []kernels.Run
			for i := int32(0); i < n; i += kernels.Spot {
				runs = append(runs, kernels.Run{Lo: i, Hi: i + 1})
			}
			s.Operands[0].Data = kernels.AppendRuns(nil, others, runs)
		},
	} {
		rng := rand.New(rand.NewPCG(1, 1))
		var f kernels.Few
		s := fewStep(rng, kernels.Adagrad, n, 1, 100)
		if _, done, err := f.Step(kernels.Host, into(s, 7)); !done || err != nil {
			t.Fatalf("%s: the step is not done even without it: %v", name, err)
		}
		change(s)
		x := into(s, 7)
		if _, done, err := f.Step(kernels.Host, x); done || err != nil {
			t.Errorf("%s: done %v, %v", name, done, err)
		}
		for _, a := range written(x) {
			if slices.ContainsFunc(a, func(v float32) bool { return v != 7 }) {
				t.Errorf("%s: something is written", name)
			}
		}
	}
}
