package live

import (
	"context"
	"fmt"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// BenchmarkStep measures what a step costs besides the gradients. Four workers whose gradients take
// no time run in one process, over real gRPC on loopback. What remains is push, apply, publish and
// pull.
func BenchmarkStep(b *testing.B) {
	for _, values := range []int{10_000, 250_000, 1_000_000} {
		b.Run(fmt.Sprintf("values=%d", values), func(b *testing.B) {
			l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{values / 100, 100}}})
			if err != nil {
				b.Fatal(err)
			}
			cfg := Config{
				Servers: 2, Workers: 4, Layout: l, Steps: kintsugi.Step(b.N), Device: kernels.Best(),
				Schedule: conductor.Schedule{Rule: kintsugi.RuleMomentum, LearningRate: 0.01, Momentum: 0.9},
				Gradient: func(context.Context, []float32, []float32, kintsugi.PushID) (float64, int, error) { return 1, 1, nil },
			}
			b.SetBytes(int64(2 * 4 * values * cfg.Workers)) // pushed and pulled
			b.ReportAllocs()
			c, err := Start(b.Context(), cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Wait(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}
