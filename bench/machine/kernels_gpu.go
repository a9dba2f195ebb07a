package machine

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Question: how close do the kernels of a GPU come to the speed of its memory? Each operation, on
// arrays in GPU memory, is timed beside a copy of the same number of bytes within GPU memory, in
// the same rounds and by the GPU's clock. The claims that could be false are the goals of
// docs/gpu.md.

// GPUKernelsConfig configures GPUKernels.
type GPUKernelsConfig struct {
	Rig     *cuda.Rig
	Device  string // its name, for the rows
	Sizes   []int  // bytes that an operation moves; small sizes that fit into a cache look too fast
	K       []int  // number of gradients in a step
	Pairs   int    // rounds; see Interleave
	AtLeast time.Duration

	Progress io.Writer
}

// GPUKernels measures the fused steps, the encoders, the scans and the selection.
func GPUKernels(ctx context.Context, cfg GPUKernelsConfig) ([]bench.Row, error) {
	var rows []bench.Row
	for _, size := range cfg.Sizes {
		for _, o := range cfg.operations() {
			row, err := cfg.measure(ctx, o, size)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", o.Name, o.DType, err)
			}
			fmt.Fprintf(cfg.Progress, "%s, %s, %s, %d bytes: %.2f of a copy\n", row.Name, row.Variant, row.DType, row.Bytes, row.Fraction)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// gpuOperation is an operation on arrays of a GPU.
type gpuOperation struct {
	bench.Row
	perValue float64 // approximate bytes moved per value
	work     func(values int) cuda.Work
}

// measure compares an operation that moves about size bytes with a copy.
func (cfg *GPUKernelsConfig) measure(ctx context.Context, o gpuOperation, size int) (bench.Row, error) {
	cfg.Rig.Reset()
	w := o.work(int(float64(size) / o.perValue))
	copied := cfg.timed(bench.Row{Name: "copy"}, cfg.Rig.Copy(w.Bytes/2))
	measured := cfg.timed(o.Row, w)
	measured.Bound = bench.Fastest(measured.Bytes, copied)
	if err := cfg.Rig.Err(); err != nil {
		return bench.Row{}, err
	}
	rows, err := bench.Interleave(ctx, cfg.Pairs, cfg.AtLeast, []*bench.Timed{measured, copied})
	if err != nil {
		return bench.Row{}, err
	}
	return rows[0], cfg.Rig.Err()
}

func (cfg *GPUKernelsConfig) timed(r bench.Row, w cuda.Work) *bench.Timed {
	r.Device, r.Elements, r.Bytes = cfg.Device, w.Values, int64(w.Bytes)
	return &bench.Timed{Row: r, Clock: func(times int) float64 { return cfg.Rig.Seconds(w, times) }}
}

// operations returns the operations with a row in docs/gpu.md.
func (cfg *GPUKernelsConfig) operations() []gpuOperation {
	var all []gpuOperation
	for _, e := range []kernels.Encoding{kernels.FP32, kernels.BF16, kernels.Int8} {
		goal := 0.85
		if e == kernels.FP32 {
			goal = 0.92
		}
		for _, k := range cfg.K {
			all = append(all, cfg.step(kernels.Adam, e, k, goal))
		}
	}
	k := cfg.K[len(cfg.K)/2]
	all = append(all, cfg.step(kernels.SGD, kernels.FP32, k, 0.90), cfg.step(kernels.Momentum, kernels.FP32, k, 0.90), cfg.step(kernels.Adam, kernels.Sign, k, 0.90))
	for _, e := range []struct {
		kernels.Encoding
		random bool
		goal   float64
	}{{kernels.BF16, false, 0.90}, {kernels.FP16, false, 0.95}, {kernels.Int8, false, 0.90}, {kernels.Int8, true, 0.85}, {kernels.Sign, false, 0.90}} {
		all = append(all, cfg.encode(e.Encoding, e.random, e.goal))
	}
	all = append(all,
		gpuOperation{bench.Row{Name: "squared distance", Variant: "scan", DType: "fp32", K: 2, Goal: 0.90}, 8, cfg.Rig.Distance},
		gpuOperation{bench.Row{Name: "finite", Variant: "scan", DType: "fp32", K: 1, Goal: 0.90}, 4, cfg.Rig.Finite},
	)
	for _, f := range []struct {
		rank int
		goal float64
	}{{2, 0.20}, {4, 0.15}} {
		all = append(all, gpuOperation{
			Row:      bench.Row{Name: "encode", Variant: "feedback", DType: fmt.Sprintf("powersgd:%d", f.rank), K: 1, Goal: f.goal},
			perValue: 12, // and a hundredth for each rank
			work:     func(n int) cuda.Work { return cfg.Rig.EncodeLowRank(f.rank, n) },
		})
	}
	all = append(all, gpuOperation{
		Row:      bench.Row{Name: "encode", Variant: "a hundredth", DType: "sparse", K: 1, Goal: 0.35},
		perValue: 4.05,
		work:     func(n int) cuda.Work { return cfg.Rig.EncodeNamed(0.01, n) },
	})
	for _, f := range []struct{ share, goal float64 }{{0.001, 0.70}, {0.01, 0.70}, {0.1, 0.50}} {
		all = append(all, cfg.selects(f.share, true, 12, f.goal), cfg.selects(f.share, false, 4, 0)) // the goal of the second is that of another program
	}
	return all
}

// wide is the approximate number of bytes per value in a payload.
var wide = map[kernels.Encoding]float64{kernels.FP32: 4, kernels.BF16: 2, kernels.FP16: 2, kernels.Int8: 1 + 1/64., kernels.Sign: 1/8. + 1/64.}

func (cfg *GPUKernelsConfig) step(rule kernels.Rule, e kernels.Encoding, k int, goal float64) gpuOperation {
	return gpuOperation{
		Row:      bench.Row{Name: rule.String(), Variant: "fused", DType: e.String(), K: k, Goal: goal},
		perValue: wide[e]*float64(k) + 8 + 8*float64(rule.States()),
		work:     func(n int) cuda.Work { return cfg.Rig.Step(rule, e, k, n) },
	}
}

func (cfg *GPUKernelsConfig) encode(e kernels.Encoding, random bool, goal float64) gpuOperation {
	variant := "feedback"
	if random {
		variant = "feedback, at random"
	}
	return gpuOperation{
		Row:      bench.Row{Name: "encode", Variant: variant, DType: e.String(), K: 1, Goal: goal},
		perValue: 12 + wide[e],
		work:     func(n int) cuda.Work { return cfg.Rig.Encode(e, random, n) },
	}
}

func (cfg *GPUKernelsConfig) selects(share float64, feedback bool, perValue, goal float64) gpuOperation {
	variant := "alone"
	if feedback {
		variant = "feedback"
	}
	return gpuOperation{
		Row:      bench.Row{Name: "select", Variant: variant, DType: fmt.Sprintf("topk:%v", share), K: 1, Goal: goal},
		perValue: perValue + 8*share,
		work:     func(n int) cuda.Work { return cfg.Rig.Select(share, feedback, n) },
	}
}
