package blas

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/kernels/blas/internal/vector"
)

// BenchmarkSgemm measures how fast one thread computes the products of our models. The
// implementations take turns within an iteration, so that a busy machine slows all of them. It
// reports the median rate of each and, if there is an OpenBLAS, the median ratio to it.
func BenchmarkSgemm(b *testing.B) {
	for _, s := range []struct {
		what           string
		transA, transB bool
		m, n, k        int
	}{
		{"lenet-conv1", false, false, 6, 784, 25},
		{"lenet-conv1-dw", false, true, 6, 25, 784},
		{"lenet-conv2", false, false, 16, 100, 150},
		{"lenet-conv2-dw", false, true, 16, 150, 100},
		{"lenet-conv2-dx", true, false, 150, 100, 16},
		{"cnn-conv2", false, false, 64, 196, 288},
		{"dense", false, false, 64, 120, 400},
		{"dense-dx", false, true, 64, 400, 120},
		{"dense-dw", true, false, 400, 120, 64},
		{"logits", false, false, 64, 10, 84},
		{"mlp", false, false, 64, 512, 784},
		{"charlm", false, false, 256, 128, 512},
		{"square", false, false, 1024, 1024, 1024},
	} {
		b.Run(fmt.Sprintf("%s/%dx%dx%d", s.what, s.m, s.n, s.k), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			x, y, z := random(rng, s.m*s.k), random(rng, s.k*s.n), make([]float32, s.m*s.n)
			lda, ldb := s.k, s.n
			if s.transA {
				lda = s.m
			}
			if s.transB {
				ldb = s.k
			}
			flops := 2 * float64(s.m*s.n*s.k)
			repeat := max(1, int(2e6/flops))
			rates := map[string][]float64{}
			names := []string{"builtin", "avx2", "plain", "gonum", "openblas", "mkl"}
			libs := map[string]Gemm{"plain": GemmOf(&builtin{level: plainGo, threads: 1})}
			if slices.Contains(vector.Sets(), vector.AVX2) && slices.Contains(vector.Sets(), vector.AVX512) {
				libs["avx2"] = GemmOf(&builtin{level: vector.AVX2, threads: 1}) // what builtin is on older processors
			}
			for _, name := range names {
				if impl, err := Open(name, 1); err == nil {
					libs[name] = GemmOf(impl)
				}
			}
			for b.Loop() {
				for _, name := range names {
					if libs[name] == nil {
						continue
					}
					begin := time.Now()
					for range repeat {
						libs[name].Sgemm(s.transA, s.transB, s.m, s.n, s.k, 1, x, lda, y, ldb, 0, z, s.n)
					}
					rates[name] = append(rates[name], float64(repeat)*flops/float64(time.Since(begin).Nanoseconds()))
				}
			}
			for name, r := range rates {
				if other := rates["openblas"]; other != nil && (name == "builtin" || name == "avx2") {
					ratio := make([]float64, len(r))
					for i := range r {
						ratio[i] = r[i] / other[i]
					}
					b.ReportMetric(median(ratio), name+"/openblas")
				}
				b.ReportMetric(median(r), name+"-GFLOP/s")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(s []float64) float64 {
	s = slices.Clone(s)
	slices.Sort(s)
	return s[len(s)/2]
}
