package engine_test

import (
	"fmt"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels/nn"
	"github.com/kintsugi-ml/kintsugi/worker/engine"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

// BenchmarkGradient measures a gradient of 64 images of 28×28 on one thread and on two, on each
// device.
func BenchmarkGradient(b *testing.B) {
	for _, dev := range nn.Devices() {
		for _, name := range []string{"mlp", "lenet", "cnn"} {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/%s/threads=%d", name, dev.Name(), threads), func(b *testing.B) {
					d := lookup(b, name, digits)
					e := open(b, d, engine.Options{Device: dev, Threads: threads})
					params, grads, batch := initial(b, d, 1), make([]float32, d.Values()), modeltest.RandomBatch(digits, 64, 1)
					b.ReportAllocs()
					for b.Loop() {
						if _, err := e.Gradient(params, grads, batch); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
