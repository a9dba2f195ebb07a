package program_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// BenchmarkGradient measures a question beside the copies that it needs: of the parameters to the
// program's memory, and of the gradient from there. The program computes nothing.
func BenchmarkGradient(b *testing.B) {
	for _, values := range []int{1 << 10, 1 << 20, 1 << 24} {
		b.Run(fmt.Sprintf("values=%d", values), func(b *testing.B) {
			b.Setenv(behaviour, "nothing at all")
			b.Setenv(howMany, fmt.Sprint(values))
			p, err := program.Start(b.Context(), program.Config{Command: []string{"/proc/self/exe"}})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			params, grads, other := make([]float32, values), make([]float32, values), make([]float32, values)
			r := program.Request{ID: kintsugi.PushID{Slot: 1}, Indices: make([]int, 64)}
			ask := func() {
				if _, _, err := p.Gradient(b.Context(), params, grads, r); err != nil {
					b.Fatal(err)
				}
			}
			ask()
			var asking, copying time.Duration
			for b.Loop() {
				begin := time.Now()
				ask()
				middle := time.Now()
				copy(other, params)
				copy(grads, other)
				asking, copying = asking+middle.Sub(begin), copying+time.Since(middle)
			}
			b.ReportMetric(float64(asking)/float64(copying), "times-two-copies")
			b.ReportMetric(float64((asking-copying).Microseconds())/float64(b.N), "µs-more")
		})
	}
}
