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

// sparseLengths are of chunks with what is special: one value, less than a vector, a block's round and one more, gaps of three bytes.
var sparseLengths = []int{1, 3, 30, 1024, 1025, 700, 40000}

// A chunk of the largest values has the CPU's payload, and leaves what the CPU leaves: with ties, with fewer values than are asked for that are not
// zero, with gaps of one byte and of three, and with more entries than a block has threads.
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

// mixture returns values of which many are equal, some are zeros of either sign, and, in every third chunk, hardly any is not.
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
				v *= 1e-42 // subnormal: as BF16 it may be zero
			}
			if i%3 == 2 && rng.IntN(100) > 0 {
				v *= 0
			}
			x = append(x, v)
		}
	}
	return x
}

// sparseDiffers encodes chunks on d, and compares what comes with the host's.
func sparseDiffers(d *Device, e kernels.Encoding, density float64, lengths []int, carried bool) error {
	q, err := d.NewQueue()
	if err != nil {
		return err
	}
	defer q.Close()
	largest := func(n int) int { return int(math.Ceil(density * float64(n))) }
	c, err := NewEncoder(q, Coding{Encoding: e, Largest: largest}, lengths)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(7, uint64(e)))
	x, carry := mixture(rng, lengths), make([]float32, c.Size()/4)
	for i := range carry {
		carry[i] = float32(math.Round(rng.NormFloat64())) * 0.25
	}
	gradient, residual, from := put(q, x), q.Array(c.Size()), Ptr(0)
	if carried {
		from = put(q, carry)
	}
	c.Begin(gradient, from, residual, nil)
	c.Start(q)
	c.Encode(q, gradient, 1, len(lengths)) // in two parts, as layers come
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
		want, _ := kernels.AppendSparse(kernels.Host, nil, e, largest(k.n), x[k.lo:][:k.n], own, wantLeft)
		got, norm := c.Payload(i)
		if !slices.Equal(got, want) {
			return fmt.Errorf("the payload of %d values has other bytes than the host's: %d of them, want %d", k.n, len(got), len(want))
		}
		if differ(kernels.Floats(left[k.at:][:4*k.n]), wantLeft) {
			return fmt.Errorf("of %d values other ones are left than on the host", k.n)
		}
		sent := make([]float32, k.n)
		if err := kernels.Host.Decode(sent, e, got); err != nil {
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
