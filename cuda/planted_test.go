//go:build gpu && cgo && linux

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// The emulation must find these mistakes, each of which would corrupt results on a GPU.
func TestPlantedMistakesAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the kernels once for each planted mistake; run it without -short")
	}
	for name, e := range map[string]emulate.Edit{
		"no barrier between a tile and its sums": {File: "step.cu", Old: "sync(); // the tile is full", New: ""},
		"a tile that is made too soon":           {File: "step.cu", Old: "sync(); // the tile before has been summed", New: ""},
		"one tile where two are needed":          {File: "norm.cu", Old: "turn ^= 1", New: "turn = 0"},
		"a count that misses lanes":              {File: "select.cu", Old: "for (int w = 16; w > 0; w /= 2) found", New: "for (int w = 8; w > 0; w /= 2) found"},
		"half of a histogram is not cleared":     {File: "select.cu", Old: "for (u32 b = THREAD; b < BINS; b += THREADS)\n#pragma unroll\n		for (int c = 0; c < N; c++) h.count", New: "for (u32 b = THREAD; b < BINS / 2; b += THREADS)\n#pragma unroll\n		for (int c = 0; c < N; c++) h.count"},
		"a payload before its index is whole":    {File: "select.cu", Old: "sync(); // the index and what is sent are whole", New: ""},
		"a fold that starts too low":             {File: "kdev.cuh", Old: "for (int w = 8; w > 0; w /= 2) lane", New: "for (int w = 4; w > 0; w /= 2) lane"},
		"a shuffle in half a warp":               {File: "encode.cu", Old: "	sum = fold(sum);", New: "	if (lane < 16) sum = fold(sum);"},
		"a barrier that some threads pass by":    {File: "norm.cu", Old: "		sync(); // the tile is full", New: "		if (i < p.n) sync(); // the tile is full"},
		"a maximum that misses lanes":            {File: "encode.cu", Old: "for (int w = 16; w > 0; w /= 2) {\n		const u32 other = shuffle_xor(most, w);", New: "for (int w = 8; w > 0; w /= 2) {\n		const u32 other = shuffle_xor(most, w);"},
		"a product that begins too soon":         {File: "gemm.cu", Old: "sync(); // the tile is full, and the one before it has been multiplied", New: ""},
		"a tile that is filled too soon":         {File: "gemm.cu", Old: "turn ^= 1", New: "turn = 0"},
		"a column before it is a unit vector":    {File: "lowrank.cu", Old: "sync(); // the column is a unit vector", New: ""},
		"lanes that are added in another order":  {File: "lowrank.cu", Old: "	lane = add(lane, shuffle_down(lane, 1));\n	return add(lane, shuffle_down(lane, 2));", New: "	lane = add(lane, shuffle_down(lane, 2));\n	return add(lane, shuffle_down(lane, 1));"},
		"a payload that is sent before its end":  {File: "named.cu", Old: "sync(); // the payload is whole", New: ""},
		"a load of four that are not aligned":    {File: "gemm.cu", Old: "whole(ld % 4 == 0 && (u64)x % 16 == 0)", New: "whole(true)"},
		"a product that is fused with a sum":     {File: "step.cu", Old: "m = add(mul(a.beta1, m), mul(a.rest1, h));", New: "m = fused(a.beta1, m, mul(a.rest1, h));"},
	} {
		t.Run(name, func(t *testing.T) {
			d := openTest(t, e)
			for _, schedule := range []string{"0", "1", "2", "3"} {
				t.Setenv(emulate.Schedule, schedule)
				if err := disagreement(d); err != nil {
					t.Logf("schedule %s: %v", schedule, err)
					d.lost = fmt.Errorf("a mistake was planted")
					return
				}
			}
			t.Error("the mistake was not found")
		})
	}
	t.Run("none", func(t *testing.T) {
		d := openTest(t)
		for _, schedule := range []string{"0", "1", "2", "3"} {
			t.Setenv(emulate.Schedule, schedule)
			if err := disagreement(d); err != nil {
				t.Errorf("schedule %s: %v", schedule, err)
			}
		}
	})
}

// Each barrier orders accesses that nothing else orders. So the emulation would find the race if
// one were missing, and no kernel waits for nothing.
func TestEveryBarrierIsNeeded(t *testing.T) {
	emulate.EveryBarrierIsNeeded(t, map[string]string{
		"encode":  "TheDeviceKeepsTheContract$/encoders",
		"gemm":    "RoundedFactors",
		"lowrank": "FactorsOfLowRank",
		"named":   "WhatIsNotZero",
		"norm":    "TheDeviceKeepsTheContract$/norms",
		"select":  "TheDeviceKeepsTheContract$/selection|TheLargestValues|ASelectionOfManyTiles",
		"sparse":  "TheDeviceKeepsTheContract$/(encoded|sparse)|ArraysOnTheDevice",
		"step":    "TheDeviceKeepsTheContract$/in_place|ArraysOnTheDevice",
	},
		"low_rank_encode:3", // a column that was read for its norm is not written before the block's barrier
		"low_rank_encode:4", // the first column's norm belongs to its warp, and the others' are behind other barriers
	)
}

// disagreement compares d with Host on arrays in which special values occur at every lane.
func disagreement(d *Device) error {
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 5*1024 + 77
	x, y, z := draw(rng, n), draw(rng, n), draw(rng, n)
	for g := 0; g*256+g%256 < n; g++ {
		x[g*256+(g*13+g/20)%256%min(256, n-g*256)] = 50
	}
	got, want := stepOf(x, y, z), stepOf(x, y, z)
	gotProducts, err := d.Step(got)
	if err != nil {
		return err
	}
	wantProducts, _ := kernels.Host.Step(want)
	if gotProducts != wantProducts || differ(got.Next, want.Next) || differ(got.NextState[0], want.NextState[0]) {
		return fmt.Errorf("a step has other bits")
	}
	gotNorm, err := d.SquaredDistance(x, y)
	if err != nil {
		return err
	}
	if wantNorm, _ := kernels.Host.SquaredDistance(x, y); gotNorm != wantNorm {
		return fmt.Errorf("a distance is %v, want %v", gotNorm, wantNorm)
	}
	if err := encodersDiffer(d, x, y); err != nil {
		return err
	}
	if err := selectionDiffers(d, append(draw(rng, 20000), x...)); err != nil { // before chunks, since with a wrong threshold they would end behind their memory
		return err
	}
	if err := sparseDiffers(d, kernels.Sparse16, 0.3, []int{1500, 2}, true); err != nil {
		return err
	}
	shapes := []shape{{40 * 51, 51}, {301, 1}}
	if err := codecDiffers(d, "powersgd:3", shapes, append(nearlyOfRankOne(rng, shapes[0]), draw(rng, 301)...), false); err != nil {
		return err
	}
	if err := codecDiffers(d, "sparse", shapes, mixture(rng, []int{40 * 51, 301}), false); err != nil {
		return err
	}
	return productsDiffer(d, rng)
}

// productsDiffer compares a product of several tiles with the plain one.
func productsDiffer(d *Device, rng *rand.Rand) error {
	q, err := d.NewQueue()
	if err != nil {
		return err
	}
	defer q.Close()
	p := drawBatched(rng, 60, 70, 150)
	got, err := p.run(q, "gemm_bf16")
	if err != nil {
		return err
	}
	want, size := p.plain(roundings["bf16"])
	for i, v := range got {
		if !(math.Abs(float64(v)-want[i]) <= 1e-4*size[i]) && size[i] > 0 {
			return fmt.Errorf("a product is %v, want %v", v, want[i])
		}
	}
	return nil
}

func draw(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func differ(x, y []float32) bool {
	return !slices.EqualFunc(x, y, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
}

func stepOf(x, y, z []float32) *kernels.Step {
	n := len(x)
	return &kernels.Step{
		Rule: kernels.Adam, Scale: 0.3, Operands: []kernels.Operand{{Weight: 1, Values: x}, {Weight: 0.7, Values: y}},
		Scalars: kernels.Scalars{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Correction1: 0.3, Correction2: 0.2},
		Params:  slices.Clone(z), Next: make([]float32, n), Saved: slices.Clone(x), WantSaved: true, WantDisplacement: true, WantDot: true, Previous: slices.Clone(y),
		State: [2][]float32{slices.Clone(y), squares(x)}, NextState: [2][]float32{make([]float32, n), make([]float32, n)},
	}
}

// squares returns numbers that are not negative, as second moments are.
func squares(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = v * v
	}
	return y
}

func encodersDiffer(d *Device, x, carry []float32) error {
	n := len(x) - 2 // so that a value past the end would belong to another array
	for name, e := range map[string]struct {
		size   int
		encode func(kernels.Device, []byte, []float32, []float32, []float32) error
	}{
		"int8": {kernels.Int8Bytes(n), kernels.Device.EncodeInt8},
		"sign": {kernels.SignBytes(n), kernels.Device.EncodeSign},
		"bf16": {2 * n, kernels.Device.EncodeBF16},
	} {
		for _, c := range [][]float32{nil, carry[:n]} {
			got, want := make([]byte, e.size), make([]byte, e.size)
			gotLoss, wantLoss := make([]float32, n), make([]float32, n)
			if err := e.encode(d, got, x[:n], c, gotLoss); err != nil {
				return err
			}
			e.encode(kernels.Host, want, x[:n], c, wantLoss)
			if !slices.Equal(got, want) || differ(gotLoss, wantLoss) {
				return fmt.Errorf("%s has other bits", name)
			}
		}
	}
	return nil
}

func selectionDiffers(d *Device, x []float32) error {
	const k = 700
	index, wantIndex := make([]int32, k), make([]int32, k)
	value, wantValue := make([]float32, k), make([]float32, k)
	if err := d.Select(index, value, x, nil, nil); err != nil {
		return err
	}
	kernels.Host.Select(wantIndex, wantValue, x, nil, nil)
	if !slices.Equal(index, wantIndex) || differ(value, wantValue) {
		return fmt.Errorf("other values were selected")
	}
	return nil
}
