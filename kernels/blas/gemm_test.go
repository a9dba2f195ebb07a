package blas

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// TestGemmIsTheProductOfItsLibrary: it is, and it may be called from many goroutines at once.
func TestGemmIsTheProductOfItsLibrary(t *testing.T) {
	const m, n, k = 19, 45, 33
	rng := rand.New(rand.NewPCG(9, 10))
	a, b := random(rng, m*k), random(rng, k*n)
	for _, impl := range opened(t) {
		g := GemmOf(impl)
		if g.String() != impl.String() {
			t.Errorf("the product of %s is called %s", impl, g)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for trial := range 40 {
					transA, transB := trial&1 != 0, trial&2 != 0
					lda, ldb := k, n
					if transA {
						lda = m
					}
					if transB {
						ldb = k
					}
					got, want := make([]float32, m*n), make([]float32, m*n)
					impl.Sgemm(flag(transA), flag(transB), m, n, k, 1, a, lda, b, ldb, 0, want, n)
					g.Sgemm(transA, transB, m, n, k, 1, a, lda, b, ldb, 0, got, n)
					if !slices.Equal(bits(got), bits(want)) {
						t.Errorf("%s: transA %v, transB %v: not the bits of the library", g, transA, transB)
					}
				}
			})
		}
		wg.Wait()
	}
}
