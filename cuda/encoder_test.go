//go:build gpu && cgo && linux

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// sparseLengths are lengths of chunks at the edges: one value, less than a vector, a block's round
// and one value more, gaps of three bytes.
var sparseLengths = []int{1, 3, 30, 1024, 1025, 700, 40000}

// The largest values of a chunk have the CPU's payload and the CPU's residual: with ties, with
// fewer non-zero values than are asked for, with gaps of one byte and of three, and with more
// entries than a block has threads.
func TestTheLargestValuesAreEncodedAsOnTheHost(t *testing.T) {
	lengths := sparseLengths
	if testing.Short() && !emulate.OnGPU() {
		lengths = []int{1, 3, 1025, 17000}
	}
	for i, density := range []float64{0.0005, 0.05, 1} {
		for _, e := range []kernels.Encoding{kernels.Sparse16, kernels.Sparse32} {
			t.Run(fmt.Sprintf("%v/%v", e, density), func(t *testing.T) {
				t.Setenv(emulate.Schedule, fmt.Sprint(i))
				for _, carried := range []bool{false, true} {
					if err := sparseDiffers(openTest(t), e, density, lengths, carried); err != nil {
						t.Errorf("carried %v: %v", carried, err)
					}
				}
			})
		}
	}
}

// mixture returns values of which many are equal and some are zeros of either sign. In every third
// chunk nearly all are zero.
func mixture(rng *rand.Rand, lengths []int) (x []float32) {
	for i, n := range lengths {
		for range n {
			v := float32(rng.NormFloat64())
			switch kind := rng.IntN(10); {
			case kind < 4:
				v = float32(math.Copysign(0.25, float64(v)))
			case kind == 4:
				v = float32(math.Copysign(0, float64(v)))
			case kind == 5:
				v *= 1e-42 // subnormal: in BF16 it may become zero
			}
			if i%3 == 2 && rng.IntN(100) > 0 {
				v *= 0
			}
			x = append(x, v)
		}
	}
	return x
}

// onHost encodes chunk i of x plus carry, which may be nil, and sets left to what the payload
// leaves out.
type onHost func(i int, x, carry, left []float32) []byte

// sparseDiffers encodes the largest values of chunks on d, and compares the results with the
// host's.
func sparseDiffers(d *Device, e kernels.Encoding, density float64, lengths []int, carried bool) error {
	largest := func(n int) int { return int(math.Ceil(density * float64(n))) }
	x := mixture(rand.New(rand.NewPCG(7, uint64(e))), lengths)
	return encoderDiffers(d, Coding{Encoding: e, Largest: largest}, lengths, x, nil, carried, func(_ int, x, carry, left []float32) []byte {
		p, _ := kernels.AppendSparse(kernels.Host, nil, e, largest(len(x)), x, carry, left)
		return p
	})
}

// shape is a chunk of n values of a tensor with rows of rowLen.
type shape struct{ n, rowLen int }

// codecDiffers encodes chunks on d as a codec does, and compares the results with those of the
// codec on the host.
func codecDiffers(d *Device, spec string, shapes []shape, x []float32, carried bool) error {
	c, err := compress.Parse(spec)
	if err != nil {
		return err
	}
	var lengths []int
	var seeds []uint64
	for i, s := range shapes {
		lengths, seeds = append(lengths, s.n), append(seeds, uint64(1000+i))
	}
	matrix := func(i int) (rows, cols, rank int) { return compress.Matrix(c, shapes[i].n, shapes[i].rowLen) }
	return encoderDiffers(d, Coding{Encoding: c.Encoding(), Matrix: matrix}, lengths, x, seeds, carried, func(i int, x, carry, left []float32) []byte {
		y := slices.Clone(x)
		for i, v := range carry {
			y[i] += v
		}
		return c.Encode(nil, y, left, shapes[i].rowLen, seeds[i])
	})
}

// encoderDiffers encodes the chunks of x on d, and compares payloads, residuals and norms with the
// host's.
func encoderDiffers(d *Device, coding Coding, lengths []int, x []float32, seeds []uint64, carried bool, host onHost) error {
	q, err := d.NewQueue()
	if err != nil {
		return err
	}
	defer q.Close()
	c, err := NewEncoder(q, coding, lengths)
	if err != nil {
		return err
	}
	rng, carry := rand.New(rand.NewPCG(8, uint64(coding.Encoding))), make([]float32, c.Size()/4)
	for i := range carry {
		carry[i] = float32(math.Round(rng.NormFloat64())) * 0.25
	}
	gradient, residual, from := put(q, x), q.Array(c.Size()), Ptr(0)
	if carried {
		from = put(q, carry)
	}
	c.Begin(gradient, from, residual, seeds)
	c.Start(q)
	c.Encode(q, gradient, 1, len(lengths)) // in two parts, as layers arrive
	c.Encode(q, gradient, 0, 1)
	c.Finish(q, gradient)
	left := q.Pinned(c.Size())
	q.Out(left, residual)
	if err := q.Wait(); err != nil {
		return err
	}
	for i, k := range c.chunks {
		var own []float32
		if carried {
			own = carry[k.at/4:][:k.n]
		}
		wantLeft := make([]float32, k.n)
		want := host(i, x[k.lo:][:k.n], own, wantLeft)
		got, norm := c.Payload(i)
		if !slices.Equal(got, want) {
			return fmt.Errorf("the payload of %d values has other bytes than the host's: %d of them, want %d", k.n, len(got), len(want))
		}
		if differ(kernels.Floats(left[k.at:][:4*k.n]), wantLeft) {
			return fmt.Errorf("of %d values other ones are left than on the host", k.n)
		}
		sent := make([]float32, k.n)
		if err := kernels.Host.Decode(sent, coding.Encoding, got); err != nil {
			return err
		}
		if want := kernels.SquaredNorm(sent); norm != want {
			return fmt.Errorf("the payload of %d values has squared norm %v, want %v", k.n, norm, want)
		}
	}
	if at := c.NotFinite(); at >= 0 {
		return fmt.Errorf("value %d is said not to be finite", at)
	}
	return nil
}

// matrixShapes are chunks that PowerSGD sees as a vector, as rows of their tensor, wide and tall,
// and as a square. Their rows and columns are not multiples of anything, and are fewer than a block
// has threads, and more. Each chunk begins at an odd place.
var matrixShapes = []shape{{1, 1}, {301, 1}, {91, 7}, {3000, 5}, {8000, 1000}, {2048, 2048}, {241, 400}, {40 * 51, 51}}

// matrixValues returns chunks of random values, one of zeros, one of equal values, one with values
// as large as possible, one of subnormal numbers, and one of nearly rank one.
func matrixValues(rng *rand.Rand, shapes []shape) (x []float32) {
	for i, s := range shapes {
		v := draw(rng, s.n)
		for j := range v {
			switch i % 8 {
			case 2:
				v[j] *= 0
			case 3:
				v[j] = 0.5
			case 4:
				v[j] = float32(math.Copysign(math.MaxFloat32, float64(v[j])))
			case 6:
				v[j] *= 1e-42
			}
		}
		if i%8 == 7 {
			v = nearlyOfRankOne(rng, s)
		}
		x = append(x, v...)
	}
	return x
}

// nearlyOfRankOne returns a matrix of rank one up to the rounding of its values. The other columns
// of a factor are what remains after nearly everything cancels, so the order in which float64 are
// added shows in float32.
func nearlyOfRankOne(rng *rand.Rand, s shape) []float32 {
	x, u, v := make([]float32, s.n), draw(rng, s.n/s.rowLen), draw(rng, s.rowLen)
	for i := range x {
		x[i] = u[i/s.rowLen] * v[i%s.rowLen]
	}
	return x
}

// A chunk is approximated by the factors that the CPU finds, and has the CPU's residual, for any
// shape: with fewer ranks than a thread sums at once and with more, with a lower rank than is asked
// for, and with truncated factors.
func TestFactorsOfLowRankAreThoseOfTheHost(t *testing.T) {
	for i, spec := range []string{"powersgd:1", "powersgd:4", "powersgd:11"} {
		t.Run(spec, func(t *testing.T) {
			t.Setenv(emulate.Schedule, fmt.Sprint(i))
			x := matrixValues(rand.New(rand.NewPCG(9, uint64(i))), matrixShapes)
			for _, carried := range []bool{false, true} {
				if err := codecDiffers(openTest(t), spec, matrixShapes, x, carried); err != nil {
					t.Errorf("carried %v: %v", carried, err)
				}
			}
		})
	}
}

// Values other than +0 are sent as the CPU sends them, and only the used part of the payload is:
// for chunks with many such values, with few, and with none.
func TestWhatIsNotZeroIsEncodedAsOnTheHost(t *testing.T) {
	var shapes []shape
	for _, n := range sparseLengths {
		shapes = append(shapes, shape{n, 1})
	}
	for i, kept := range []float64{0, 0.01, 1} {
		t.Run(fmt.Sprint(kept), func(t *testing.T) {
			t.Setenv(emulate.Schedule, fmt.Sprint(i))
			rng := rand.New(rand.NewPCG(10, uint64(i)))
			x := mixture(rng, sparseLengths)
			for j := range x {
				if rng.Float64() >= kept {
					x[j] = 0
				}
			}
			for _, carried := range []bool{false, true} {
				if err := codecDiffers(openTest(t), "sparse", shapes, x, carried); err != nil {
					t.Errorf("carried %v: %v", carried, err)
				}
			}
		})
	}
}

// More chunks than fit a grid are encoded by several launches.
func TestManyChunksAreEncodedAsOnTheHost(t *testing.T) {
	defer func(n int) { mostChunks = n }(mostChunks)
	mostChunks = 2
	shapes := []shape{{300, 1}, {1, 1}, {700, 1}, {30, 1}, {1025, 1}, {2, 1}}
	for _, spec := range []string{"bf16", "fp16", "int8", "sign"} {
		if err := codecDiffers(openTest(t), spec, shapes, draw(rand.New(rand.NewPCG(13, 14)), 2058), true); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

// A chunk that cannot have a given shape is refused before anything is queued.
func TestAShapeThatDoesNotFitIsRefused(t *testing.T) {
	d := openTest(t)
	for _, m := range [][3]int{{100, 99, 2}, {4, 2500, 5}, {100, 100, 0}, {100, 100, 65}} {
		q, err := d.NewQueue()
		if err != nil {
			t.Fatal(err)
		}
		_, err = NewEncoder(q, Coding{Encoding: kernels.LowRank, Matrix: func(int) (rows, cols, rank int) { return m[0], m[1], m[2] }}, []int{10000})
		if err == nil || !strings.Contains(err.Error(), "chunk 0") {
			t.Errorf("10000 values as %v: error %v; want one that names the chunk", m, err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// There are so many tiles that threads of the scan have tiles of several blocks, with ties in all
// of them.
func TestASelectionFromManyTiles(t *testing.T) {
	if testing.Short() {
		t.Skip("an emulation takes seconds for it; run it without -short")
	}
	x := make([]float32, 2057*selectTile+77)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(rng.IntN(4000))
	}
	k := len(x) / 3
	index, wantIndex := make([]int32, k), make([]int32, k)
	value, wantValue := make([]float32, k), make([]float32, k)
	if err := openTest(t).Select(index, value, x, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := kernels.Host.Select(wantIndex, wantValue, x, nil, nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(index, wantIndex) || differ(value, wantValue) {
		t.Error("other values were selected than on the host")
	}
}
