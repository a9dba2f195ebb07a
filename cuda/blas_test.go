//go:build gpu && cgo && linux

package cuda

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// upload copies x to an array of the queue.
func upload(q *Queue, x []float32) Ptr {
	at, pinned := q.Array(4*len(x)), q.Pinned(4*len(x))
	copy(pinned, kernels.Bytes(x))
	q.In(at, pinned)
	return at
}

// plain computes p in float64, and for each result the sum of absolute values by which its error is
// measured; 0 for values that p does not change. The slices have the contents of the arrays.
func plain(p Product, a, b, c []float32) (want, size []float64) {
	want, size = make([]float64, len(c)), make([]float64, len(c))
	for i, v := range c {
		want[i] = float64(v)
	}
	at := func(x []float32, z, stride, i, j, ld int, transposed bool) float64 {
		if transposed {
			i, j = j, i
		}
		return float64(x[z*stride+i*ld+j])
	}
	for z := range p.Batch {
		for i := range p.M {
			for j := range p.N {
				place := z*p.StrideC + i*p.LDC + j
				if !p.Accumulate {
					want[place] = 0
				}
				size[place] = math.Abs(want[place])
				for k := range p.K {
					v := at(a, z, p.StrideA, i, k, p.LDA, p.ATransposed) * at(b, z, p.StrideB, k, j, p.LDB, p.BTransposed)
					want[place], size[place] = want[place]+v, size[place]+math.Abs(v)
				}
			}
		}
	}
	return want, size
}

// The matrices have any shape, gaps between rows and between matrices, are transposed, and one may
// be shared by a batch. Only the rows of C change. A factor may be off by half of its last bit, or
// by all of it on GPUs that truncate: NVIDIA does not document which.
func TestCuBLASComputesProductsOfRows(t *testing.T) {
	d := openTest(t)
	for precision, most := range map[Precision]float64{FP32: 0x1p-20, TF32: 0x1.1p-10, BF16: 0x1.1p-7} {
		t.Run(precision.String(), func(t *testing.T) {
			q, err := d.NewQueue()
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			library, err := q.OpenBLAS(emulate.Library(t), precision)
			if errors.Is(err, ErrNoBLAS) && emulate.OnGPU() {
				t.Logf("nothing is asked of cuBLAS: %v", err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if emulate.OnGPU() && precision != FP32 {
				most *= 2
			}
			multiplyRows(t, q, library, most)
		})
	}
}

// multiplyRows checks that the errors of products are at most a given part of the size of their
// sums.
func multiplyRows(t *testing.T, q *Queue, library *BLAS, most float64) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		p := Product{M: 1 + rng.IntN(9), N: 1 + rng.IntN(9), K: 1 + rng.IntN(9), Batch: 1 + rng.IntN(3), ATransposed: rng.IntN(2) == 0, BTransposed: rng.IntN(2) == 0, Accumulate: rng.IntN(2) == 0}
		factor := func(rows, columns int, transposed, shared bool) (ld, stride int, x []float32) {
			if transposed {
				rows, columns = columns, rows
			}
			ld = columns + rng.IntN(3)
			stride = rows*ld + rng.IntN(5)
			x = make([]float32, stride*p.Batch)
			for i := range x {
				x[i] = float32(rng.NormFloat64())
			}
			if shared && rng.IntN(3) == 0 {
				stride = 0
			}
			return ld, stride, x
		}
		var a, b, c []float32
		p.LDA, p.StrideA, a = factor(p.M, p.K, p.ATransposed, true)
		p.LDB, p.StrideB, b = factor(p.K, p.N, p.BTransposed, true)
		p.LDC, p.StrideC, c = factor(p.M, p.N, false, false)
		p.A, p.B, p.C = upload(q, a), upload(q, b), upload(q, c)
		library.Multiply(&p)
		got := q.Pinned(4 * len(c))
		q.Out(got, p.C)
		if err := q.Wait(); err != nil {
			t.Fatal(err)
		}
		want, size := plain(p, a, b, c)
		for i := range want {
			if v := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); !(math.Abs(float64(v)-want[i]) <= most*size[i]) {
				t.Fatalf("%+v: value %d of C is %v, want %v", p, i, v, want[i])
			}
		}
	}
}
