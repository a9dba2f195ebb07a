package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// The benchmarks measure a fused step beside the speed at which this machine copies memory.
//
// A model is stepped chunk by chunk, as a shard does it: a model of a single chunk, which stays in
// the cache, and one of 2²² values (k = 64: 2¹⁹), whose operands come from memory. Bytes are those
// that must move: each operand and each array of the rule is read once, and each result written
// once. BenchmarkCopy is the bound, with about as many bytes.

const (
	modelValues = 1 << 22
	chunkValues = 1 << 16
)

func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{chunkValues, modelValues} {
		b.Run(fmt.Sprintf("values=%d", n), func(b *testing.B) {
			x, y := make([]float32, 3*n), make([]float32, 3*n)
			for i := range x {
				x[i] = float32(i)
			}
			copy(y, x)
			b.SetBytes(2 * 4 * 3 * int64(n))
			for b.Loop() {
				copy(y, x)
			}
		})
	}
}

func BenchmarkStep(b *testing.B) {
	for _, rule := range []kernels.Rule{kernels.SGD, kernels.Adam} {
		for _, k := range []int{4, 8, 64} {
			for _, n := range []int{chunkValues, modelValues} {
				n := min(n, 8*modelValues/k)
				for _, d := range kernels.Devices() {
					b.Run(fmt.Sprintf("rule=%v/k=%d/values=%d/device=%s", rule, k, n, d.Name()), func(b *testing.B) {
						benchmarkStep(b, d, rule, k, n)
					})
				}
			}
		}
	}
}

func benchmarkStep(b *testing.B, d kernels.Device, rule kernels.Rule, k, n int) {
	model := newStep(rule, n, k, rand.New(rand.NewPCG(1, 2)), false)
	for j := range rule.States() {
		clear(model.State[j])
	}
	steps := make([]kernels.Step, n/chunkValues)
	for c := range steps {
		s := *model
		cut := func(x []float32) []float32 { return x[c*chunkValues:][:chunkValues] }
		s.WantDot, s.WantDisplacement, s.Update, s.Previous = false, false, nil, nil
		s.Params = cut(s.Params)
		s.Next = s.Params
		for j := range rule.States() {
			s.State[j] = cut(s.State[j])
			s.NextState[j] = s.State[j]
		}
		s.Operands = append([]kernels.Operand(nil), s.Operands...)
		for j := range s.Operands {
			s.Operands[j].Values = cut(s.Operands[j].Values)
		}
		steps[c] = s
	}
	b.SetBytes(int64(n) * 4 * int64(k+2+2*rule.States()))
	for b.Loop() {
		for c := range steps {
			d.Step(&steps[c])
		}
	}
}

func BenchmarkSquaredNorm(b *testing.B) {
	x := values(rand.New(rand.NewPCG(1, 2)), chunkValues, false)
	for _, d := range kernels.Devices() {
		b.Run("device="+d.Name(), func(b *testing.B) {
			b.SetBytes(4 * chunkValues)
			for b.Loop() {
				d.SquaredNorm(x)
			}
		})
	}
}

func BenchmarkFinite(b *testing.B) {
	x := values(rand.New(rand.NewPCG(1, 2)), chunkValues, false)
	for _, d := range kernels.Devices() {
		b.Run("device="+d.Name(), func(b *testing.B) {
			b.SetBytes(4 * chunkValues)
			for b.Loop() {
				d.Finite(x)
			}
		})
	}
}

// BenchmarkSmallStep measures a small chunk: the call into C and the checks.
func BenchmarkSmallStep(b *testing.B) {
	for _, d := range kernels.Devices() {
		b.Run("device="+d.Name(), func(b *testing.B) {
			s := newStep(kernels.SGD, 240, 4, rand.New(rand.NewPCG(1, 2)), false)
			s.WantDot, s.WantDisplacement = false, false
			for b.Loop() {
				d.Step(s)
			}
		})
	}
}

// BenchmarkFew measures steps whose gradients name a share of the spots, drawn at random, computed
// as a whole and by Few.
func BenchmarkFew(b *testing.B) {
	for _, share := range []int{256, 64, 32, 20} {
		rng := rand.New(rand.NewPCG(1, 2))
		steps := make([]kernels.Step, modelValues/chunkValues)
		for c := range steps {
			s := fewStep(rng, kernels.Adagrad, chunkValues, 0, 1)
			for range 2 {
				var runs []kernels.Run
				for lo := int32(0); lo < chunkValues; lo += kernels.Spot {
					if rng.IntN(2*share) == 0 {
						runs = append(runs, kernels.Run{Lo: lo, Hi: lo + kernels.Spot})
					}
				}
				x := values(rng, chunkValues, false)
				s.Operands = append(s.Operands, kernels.Operand{Weight: 1, Encoding: kernels.Sparse32, Data: kernels.AppendRuns(nil, x, runs)})
			}
			steps[c] = *s
		}
		d := kernels.Best()
		b.Run(fmt.Sprintf("share=%d/whole", share), func(b *testing.B) {
			for b.Loop() {
				for c := range steps {
					steps[c].Streaming = true
					d.Step(&steps[c])
				}
			}
		})
		b.Run(fmt.Sprintf("share=%d/few", share), func(b *testing.B) {
			var f kernels.Few
			for b.Loop() {
				for c := range steps {
					if _, done, err := f.Step(d, &steps[c]); !done || err != nil {
						b.Fatalf("not done: %v", err)
					}
				}
			}
		})
	}
}
