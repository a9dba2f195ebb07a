package model_test

import (
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels/blas"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

// BenchmarkGradient measures a gradient of 32 images of 28×28 on one thread.
func BenchmarkGradient(b *testing.B) {
	for _, lib := range []string{"gonum", "builtin", "openblas"} {
		for _, name := range []string{"mlr", "mlp", "lenet", "cnn"} {
			b.Run(lib+"/"+name, func(b *testing.B) {
				impl, err := blas.Open(lib, 1)
				if err != nil {
					b.Skip(err)
				}
				model.UseBLAS(impl)
				d := lookup(b, name, digits)
				m, err := model.New(d, 32)
				if err != nil {
					b.Fatal(err)
				}
				defer m.Close()
				params, grads, batch := initial(b, d, 1), make([]float32, d.Values()), modeltest.RandomBatch(digits, 32, 1)
				b.ReportAllocs()
				for b.Loop() {
					if _, err := m.Gradient(params, grads, batch); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(batch.N*b.N)/b.Elapsed().Seconds(), "images/s")
			})
		}
	}
}
