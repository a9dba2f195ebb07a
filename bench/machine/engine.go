package machine

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/kernels/blas"
	"github.com/kintsugi-ml/kintsugi/worker/engine"
	models "github.com/kintsugi-ml/kintsugi/worker/model"
)

// Question: how fast is a gradient? The same gradient of the same batch is computed by the native
// engine, by Gorgonia with a network of its own operations, and by Gorgonia with whole layers as
// operations. A square matrix product in the same rounds shows what the machine can do. The claim
// that could be false: on one thread, the native engine computes convolutions five times faster
// than Gorgonia's operations, and at more than a third of the product's rate.

// EngineConfig configures EngineSpeed.
type EngineConfig struct {
	Models   []*models.Description
	Batch    int           // number of examples per gradient
	Threads  []int         // numbers of threads to measure with
	Variants []string      // of EngineVariants
	Rounds   int           // number of interleaved measurements of each
	AtLeast  time.Duration // duration of one measurement
	Progress io.Writer
}

// EngineVariants lists the variants of EngineSpeed: the native engine with the fastest installed
// BLAS and without any, and Gorgonia with its own operations and with those of this project.
func EngineVariants() []string {
	return []string{"native", "native-noblas", "gorgonia", "gorgonia-fused"}
}

// EngineRow is one result: medians over the rounds.
type EngineRow struct {
	Name         string  `json:"name"`
	Model        string  `json:"model"`
	Variant      string  `json:"variant"`
	Device       string  `json:"device"`
	DType        string  `json:"dtype"`
	Threads      int     `json:"threads"`
	Batch        int     `json:"batch"`
	Milliseconds float64 `json:"ms_per_step"`
	Low          float64 `json:"ms_low"` // quartiles
	High         float64 `json:"ms_high"`
	GFLOPS       float64 `json:"gflop_per_s"`
	SgemmGFLOPS  float64 `json:"sgemm_gflop_per_s"` // with the same number of threads
	Fraction     float64 `json:"fraction_of_sgemm"` // median of the fractions in each round
	Speedup      float64 `json:"times_gorgonia"`    // median of the ratios in each round; 0: gorgonia was not measured
}

// EngineSpeed measures every variant of every model with every number of threads.
func EngineSpeed(ctx context.Context, cfg EngineConfig) ([]EngineRow, error) {
	var rows []EngineRow
	for _, d := range cfg.Models {
		for _, threads := range cfg.Threads {
			some, err := cfg.compare(ctx, d, threads)
			if err != nil {
				return nil, fmt.Errorf("model %s, threads %d: %w", d.Name, threads, err)
			}
			rows = append(rows, some...)
		}
	}
	return rows, nil
}

// compare measures the variants of one model with one number of threads.
func (cfg *EngineConfig) compare(ctx context.Context, d *models.Description, threads int) ([]EngineRow, error) {
	step, err := newStep(d, cfg.Batch)
	if err != nil {
		return nil, err
	}
	var variants []*bench.Timed
	var own *bench.Timed
	for _, name := range cfg.Variants {
		m, use, err := openVariant(name, d, cfg.Batch, threads)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if m == nil {
			continue // Gorgonia has no such layers
		}
		defer m.Close()
		t := &bench.Timed{Row: bench.Row{Variant: name}, Run: func(times int) {
			use()
			for range times {
				step.run(m)
			}
		}}
		if name == "gorgonia" {
			own = t
		}
		variants = append(variants, t)
	}
	products, err := squares(threads)
	if err != nil {
		return nil, err
	}
	if _, err := bench.Interleave(ctx, cfg.Rounds, cfg.AtLeast, append(products, variants...)); err != nil {
		return nil, err
	}
	if step.err != nil {
		return nil, step.err
	}
	var rows []EngineRow
	for _, v := range variants {
		r := engineRow(d, v, own, products, cfg.Rounds, cfg.Batch)
		r.Name, r.Threads = fmt.Sprintf("engine/%s/%s/threads=%d", d.Name, v.Variant, threads), threads
		fmt.Fprintf(cfg.Progress, "%s: %.2f ms, %.1f GFLOP/s\n", r.Name, r.Milliseconds, r.GFLOPS)
		rows = append(rows, r)
	}
	return rows, nil
}

// engineRow computes a row from the rounds. own is nil if gorgonia was not measured.
func engineRow(d *models.Description, v, own *bench.Timed, products []*bench.Timed, rounds, batch int) EngineRow {
	var ms, fractions, rates, ratios []float64
	flops := d.GradientFLOPs() * float64(batch)
	for i := range rounds {
		ms = append(ms, v.At(i)*1e3)
		best := 0.0
		for _, p := range products {
			best = max(best, squareFLOPs/p.At(i))
		}
		rates = append(rates, best/1e9)
		fractions = append(fractions, flops/v.At(i)/best)
		if own != nil {
			ratios = append(ratios, own.At(i)/v.At(i))
		}
	}
	r := EngineRow{Model: d.Name, Variant: v.Variant, Device: "cpu", DType: "fp32", Batch: batch}
	r.Low, r.Milliseconds, r.High = bench.Quartiles(ms)
	r.GFLOPS = flops / r.Milliseconds / 1e6
	_, r.SgemmGFLOPS, _ = bench.Quartiles(rates)
	_, r.Fraction, _ = bench.Quartiles(fractions)
	if own != nil {
		_, r.Speedup, _ = bench.Quartiles(ratios)
	}
	return r
}

// openVariant opens a model, and returns a function to call before each of its measurements: the
// number of threads of a library is a setting of the process. The model is nil if Gorgonia lacks
// operations for its layers.
func openVariant(name string, d *models.Description, batch, threads int) (m models.Model, use func(), err error) {
	library, inside := "auto", threads // number of threads of the library
	if name == "native-noblas" {
		library = "builtin"
	}
	if name == "native" || name == "native-noblas" {
		inside = 1
	}
	impl, err := blas.Open(library, inside)
	if err != nil {
		return nil, nil, err
	}
	use = func() {
		if impl, err := blas.Open(library, inside); err == nil { // it was opened before
			models.UseBLAS(impl)
		}
	}
	switch name {
	case "native", "native-noblas":
		m, err = engine.New(d, engine.Options{Threads: threads, BLAS: blas.GemmOf(impl)})
	case "gorgonia":
		if m, err = compose(d, batch); m == nil {
			return nil, nil, err
		}
	case "gorgonia-fused":
		m, err = models.New(d, batch)
	default:
		err = fmt.Errorf("no variant is called %q; know %v", name, EngineVariants())
	}
	return m, use, err
}

// step is one gradient of a fixed batch.
type step struct {
	params, grads []float32
	batch         models.Batch
	err           error
}

func newStep(d *models.Description, n int) (*step, error) {
	s := &step{params: make([]float32, d.Values()), grads: make([]float32, d.Values())}
	rng := rand.New(rand.NewPCG(1, 1))
	b := models.Batch{X: make([]float32, n*d.Input.Features()), Y: make([]int32, n*d.Input.Labels()), N: n, Seed: 1}
	for i := range b.X {
		b.X[i] = rng.Float32()
		if d.Input.Sequence {
			b.X[i] = float32(rng.IntN(d.Input.Classes))
		}
	}
	for i := range b.Y {
		b.Y[i] = int32(rng.IntN(d.Input.Classes))
	}
	s.batch = b
	return s, d.Init(1, s.params)
}

func (s *step) run(m models.Model) {
	if _, err := m.Gradient(s.params, s.grads, s.batch); err != nil {
		s.err = err
	}
}

// squareEdge is the side of the matrices for the product that shows what the machine can do: large
// enough for a library's best rate, small enough for a third-level cache.
const squareEdge = 1024

const squareFLOPs = 2.0 * squareEdge * squareEdge * squareEdge

// squares returns a square product for each library that might be the fastest.
func squares(threads int) ([]*bench.Timed, error) {
	a, b, c := make([]float32, squareEdge*squareEdge), make([]float32, squareEdge*squareEdge), make([]float32, squareEdge*squareEdge)
	for i := range a {
		a[i], b[i] = float32(i%13)-6, float32(i%11)-5
	}
	var all []*bench.Timed
	for _, name := range []string{"auto", "builtin"} {
		if _, err := blas.Open(name, threads); err != nil {
			return nil, err
		}
		all = append(all, &bench.Timed{Row: bench.Row{Variant: name}, Run: func(times int) {
			impl, err := blas.Open(name, threads)
			if err != nil {
				return // it was opened before
			}
			gemm := blas.GemmOf(impl)
			for range times {
				gemm.Sgemm(false, false, squareEdge, squareEdge, squareEdge, 1, a, squareEdge, b, squareEdge, 0, c, squareEdge)
			}
		}})
	}
	return all, nil
}
