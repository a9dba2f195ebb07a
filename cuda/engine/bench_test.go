//go:build gpu && cgo && linux

package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/cuda/engine"
	"github.com/kintsugi-ml/kintsugi/kernels"
	host "github.com/kintsugi-ml/kintsugi/worker/engine"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/model/modeltest"
)

var (
	pixels = model.Input{Channels: 1, Height: 28, Width: 28, Classes: 10}
	text   = model.Input{Channels: 1, Height: 1, Width: 64, Classes: 65, Sequence: true}
)

// BenchmarkGradient measures a gradient from parameters in the host's memory to the gradient there,
// beside the host's engine on one thread, with products by the kernels and by cuBLAS if there is
// one. Both are medians of gradients one right after the other. A GPU that is idle while the host
// computes may be slower afterwards, and the programs that it is compared with do not leave it idle
// either.
func BenchmarkGradient(b *testing.B) {
	for _, c := range []struct {
		model string
		in    model.Input
		batch int
	}{
		{"mlp", pixels, 64}, {"mlp", pixels, 1024}, {"lenet", pixels, 64}, {"cnn", pixels, 64}, {"cnn", pixels, 256}, {"charlm", text, 32},
	} {
		all := []engine.Options{{}}
		if hasCuBLAS(b) {
			all = append(all, withCuBLAS(b))
		}
		onHost := 0.0 // measured once, since it is the same beside each of the others
		for _, options := range all {
			for _, precision := range []cuda.Precision{cuda.FP32, cuda.TF32, cuda.BF16} {
				options.Precision = precision
				name := fmt.Sprintf("%s/batch=%d/%s", c.model, c.batch, strings.ToLower(precision.String()))
				if options.Products == engine.CuBLAS {
					name += "/cublas"
				}
				b.Run(name, func(b *testing.B) {
					d, err := model.Lookup(c.model, c.in)
					if err != nil {
						b.Fatal(err)
					}
					h, err := host.New(d, host.Options{})
					if err != nil {
						b.Fatal(err)
					}
					defer h.Close()
					measure(b, d, open(b, d, options), h, c.batch, &onHost)
				})
			}
		}
	}
}

func measure(b *testing.B, d *model.Description, g, h model.Model, batch int, onHost *float64) {
	warm, runs := 3, 21 // earlier ones load kernels, allocate, and make a program
	if testing.Short() {
		batch, warm, runs = 2, 0, 1
	}
	params, grads, examples := initial(b, d), make([]float32, d.Values()), modeltest.RandomBatch(d.Input, batch, 1)
	median := func(m model.Model, warm, runs int) float64 {
		var times []float64
		for i := range warm + runs {
			start := time.Now()
			if _, err := m.Gradient(params, grads, examples); err != nil {
				b.Fatal(err)
			}
			if i >= warm {
				times = append(times, time.Since(start).Seconds())
			}
		}
		slices.Sort(times)
		return times[len(times)/2]
	}
	for begin := time.Now(); warm > 0 && time.Since(begin) < 50*time.Millisecond; { // a GPU that was idle has lower clocks for a while
		median(g, 0, 1)
	}
	onGPU := median(g, warm, runs)
	if *onHost == 0 {
		*onHost = median(h, min(warm, 1), min(runs, 5))
	}
	b.ReportMetric(onGPU*1e3, "ms")
	b.ReportMetric(*onHost*1e3, "host-ms")
	b.ReportMetric(*onHost/onGPU, "times-host")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLocalStep measures a sixteenth of 16 local steps with Adam: from parameters and batches in
// the host's memory to what the steps come to there. Products are by cuBLAS if there is one. It is
// the median of several exchanges.
func BenchmarkLocalStep(b *testing.B) {
	for _, c := range []struct {
		model string
		in    model.Input
		batch int
	}{{"lenet", pixels, 64}, {"cnn", pixels, 64}, {"cnn", pixels, 256}, {"charlm", text, 32}} {
		for _, precision := range []cuda.Precision{cuda.FP32, cuda.TF32, cuda.BF16} {
			b.Run(fmt.Sprintf("%s/batch=%d/%s", c.model, c.batch, strings.ToLower(precision.String())), func(b *testing.B) {
				options := engine.Options{Precision: precision}
				if hasCuBLAS(b) {
					options = withCuBLAS(b)
					options.Precision = precision
				}
				d, err := model.Lookup(c.model, c.in)
				if err != nil {
					b.Fatal(err)
				}
				steps, batch, warm, runs := 16, c.batch, 2, 11
				if testing.Short() {
					steps, batch, warm, runs = 2, 2, 0, 1
				}
				params, grads, examples := initial(b, d), make([]float32, d.Values()), modeltest.RandomBatch(d.Input, batch, 1)
				trainer, err := engine.NewLocal(open(b, d, options), kernels.Adam, func(kintsugi.PushID) model.Batch { return examples })
				if err != nil {
					b.Fatal(err)
				}
				p := plan(steps, 0)
				var times []float64
				for i := range warm + runs {
					start := time.Now()
					if _, _, err := p.Take(b.Context(), trainer, params, kintsugi.PushID{}); err != nil {
						b.Fatal(err)
					}
					if err := trainer.Fetch(grads); err != nil {
						b.Fatal(err)
					}
					if i >= warm {
						times = append(times, time.Since(start).Seconds()/float64(steps))
					}
				}
				slices.Sort(times)
				b.ReportMetric(times[len(times)/2]*1e3, "ms")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
