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

// largestDiffer compares a selection of k values on d, alone and with each kind of feedback, with
// the host's.
func largestDiffer(d *Device, k int, x []float32) error {
	carry := make([]float32, len(x)) // chosen so that the sum is exactly x
	for i := range carry {
		if i%3 == 0 {
			carry[i] = x[i] / 2
		}
	}
	rest := slices.Clone(x)
	for i := range rest {
		rest[i] -= carry[i]
	}
	for _, c := range []struct {
		name                  string
		x, carry, left, right []float32
	}{
		{"alone", x, nil, nil, nil},
		{"with a residual", x, nil, make([]float32, len(x)), make([]float32, len(x))},
		{"with what is carried", rest, carry, nil, nil},
		{"with feedback", rest, carry, make([]float32, len(x)), make([]float32, len(x))},
	} {
		index, wantIndex := make([]int32, k), make([]int32, k)
		value, wantValue := make([]float32, k), make([]float32, k)
		if err := d.Select(index, value, c.x, c.carry, c.left); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err := kernels.Host.Select(wantIndex, wantValue, c.x, c.carry, c.right); err != nil {
			return err
		}
		if !slices.Equal(index, wantIndex) || differ(value, wantValue) {
			return fmt.Errorf("%s: other values were selected", c.name)
		}
		if differ(c.left, c.right) {
			return fmt.Errorf("%s: something else is left", c.name)
		}
	}
	return nil
}

// A list has room for a quarter of its tile. What does not fit is looked up in the tile, beside
// tiles whose lists fit. The same holds for ties.
func TestTheLargestValuesOfAnArray(t *testing.T) {
	const n = 9*selectTile + 1029
	gaussian := func(rng *rand.Rand, i int) float32 { return float32(rng.NormFloat64()) }
	for name, c := range map[string]struct {
		n, k  int
		value func(rng *rand.Rand, i int) float32
	}{
		"a tenth":                           {n, n / 10, gaussian},
		"a hundredth":                       {n, n / 100, gaussian},
		"one":                               {n, 1, gaussian},
		"half":                              {n, n / 2, gaussian},
		"all":                               {n, n, gaussian},
		"all but one":                       {n, n - 1, gaussian},
		"of one":                            {1, 1, gaussian},
		"a tile":                            {selectTile, 100, gaussian},
		"a tile and one":                    {selectTile + 1, 100, gaussian},
		"a tile less one":                   {selectTile - 1, 1, gaussian},
		"tiles of a block":                  {selectWarps * selectTile, 777, gaussian},
		"a step less one":                   {511, 60, gaussian},
		"lists that are full":               {n, selectRoom + 6, func(_ *rand.Rand, i int) float32 { return large(i%4 == 1) }},
		"a list that is full, and one more": {n, selectRoom + 6, func(_ *rand.Rand, i int) float32 { return large(i%4 == 1 || i == selectTile-1) }},
		"large tiles beside small ones": {n, n / 8, func(rng *rand.Rand, i int) float32 {
			return float32(rng.NormFloat64()) * large(i/selectTile%3 == 1)
		}},
		"equal ones, in a tile that overflows and in others": {n, n / 6, func(rng *rand.Rand, i int) float32 {
			return float32(1+rng.IntN(2)) * large(i/selectTile == 4 || i%9 == 0)
		}},
		"equal ones":            {n, 5000, func(*rand.Rand, int) float32 { return -2.5 }},
		"zeros":                 {n, 4500, func(_ *rand.Rand, i int) float32 { return float32(math.Copysign(0, float64(i%3-1))) }},
		"more than are not 0":   {n, n / 10, func(_ *rand.Rand, i int) float32 { return large(i%50 == 0) - 1 }},
		"the last ones":         {n, 2, func(_ *rand.Rand, i int) float32 { return large(i >= n-2) }},
		"in the highest bin":    {n, 300, func(rng *rand.Rand, i int) float32 { return math.MaxFloat32 * (1 - rng.Float32()/16) }},
		"in the lowest bin":     {n, 30000, func(rng *rand.Rand, i int) float32 { return math.Float32frombits(rng.Uint32() % (1 << 20)) }},
		"by the third digit":    {n, 3000, func(rng *rand.Rand, i int) float32 { return math.Float32frombits(0x3f800000 + rng.Uint32()%1000) }},
		"by the second digit":   {n, 3000, func(rng *rand.Rand, i int) float32 { return math.Float32frombits(0x3f800000 + rng.Uint32()%1000<<10) }},
		"sorted":                {n, n / 20, func(_ *rand.Rand, i int) float32 { return float32(i) }},
		"sorted the other way":  {n, n / 20, func(_ *rand.Rand, i int) float32 { return float32(-n + i) }},
		"a wrong sample":        {n, n / 20, func(rng *rand.Rand, i int) float32 { return float32(rng.NormFloat64()) * large(sampled(i)) }},
		"a wrong sample of few": {n, n/128 + 200, func(rng *rand.Rand, i int) float32 { return large(sampled(i)) }},
		"a wrong sample, and tiles that overflow": {n, n / 5, func(rng *rand.Rand, i int) float32 {
			return (1 + rng.Float32()) * large(sampled(i)) * float32(1+9*(i/selectTile%2))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(c.n), uint64(c.k)))
			x := make([]float32, c.n)
			for i := range x {
				x[i] = c.value(rng, i)
			}
			for _, schedule := range schedules() {
				t.Setenv(emulate.Schedule, schedule)
				if err := largestDiffer(openTest(t), c.k, x); err != nil {
					t.Errorf("schedule %s: %v", schedule, err)
				}
			}
		})
	}
}

// There are so many tiles that the scan over them needs more than one round. The emulation takes a
// minute for so large a selection.
func TestTheScanOfManyTiles(t *testing.T) {
	d := openTest(t)
	const blocks = 2*selectBins + 77
	above, ties := make([]uint32, blocks), make([]uint32, blocks)
	wantAbove, wantTies := make([]uint32, blocks), make([]uint32, blocks)
	var x, y uint32
	for i := range above {
		above[i], ties[i] = uint32(i%300), uint32(i*7%11)
		wantAbove[i], wantTies[i] = x, y
		x, y = x+above[i], y+ties[i]
	}
	if err := d.do("scan", func(o *op) {
		args := selectArgs{tiles: blocks*selectWarps - 3, above: changedOf(o, above), ties: changedOf(o, ties)}
		launch(o, "select", "select_scan", line(1), selectThreads, &args)
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(above, wantAbove) || !slices.Equal(ties, wantTies) {
		t.Error("other sums than those of the tiles before")
	}
}

// schedules are the schedules by which the emulation finds races.
func schedules() []string {
	if testing.Short() {
		return []string{"1"}
	}
	return []string{"0", "1", "2", "4"}
}

func large(is bool) float32 {
	if is {
		return 100
	}
	return 1
}

// sampled reports whether a value is in the sample that select_sample takes. The tests above that
// depend on it see no other difference.
func sampled(i int) bool {
	quarter := i / (selectTile / 4)
	return i%(selectTile/4)/8 == int(kernels.Noise(1, 2, uint32(quarter))%(selectTile/32))
}
