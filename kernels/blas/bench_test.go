package blas

import (
	"fmt"
	"math/rand/v2"
	"testing"

	gonumblas "gonum.org/v1/gonum/blas"
)

// BenchmarkSgemm asks how fast the products of our models are: a large square, a dense layer at batch 32,
// and the second convolution of LeNet on one image.
func BenchmarkSgemm(b *testing.B) {
	for _, name := range []string{"gonum", "openblas", "mkl"} {
		for _, size := range [][3]int{{512, 512, 512}, {32, 512, 1568}, {16, 100, 150}} {
			b.Run(fmt.Sprintf("%s/%dx%dx%d", name, size[0], size[1], size[2]), func(b *testing.B) {
				impl, err := Open(name, 1)
				if err != nil {
					b.Skip(err)
				}
				m, n, k := size[0], size[1], size[2]
				rng := rand.New(rand.NewPCG(1, 1))
				x, y, z := random(rng, m*k), random(rng, k*n), make([]float32, m*n)
				for b.Loop() {
					impl.Sgemm(gonumblas.NoTrans, gonumblas.NoTrans, m, n, k, 1, x, k, y, n, 0, z, n)
				}
				b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
