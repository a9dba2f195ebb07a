// Package rates asks which learning rates a model tolerates, and at which it learns fastest. This
// is a range test: one pass over the data in which the rate grows by the same factor in each step,
// until the loss blows up. It was proposed by L. N. Smith, "Cyclical Learning Rates for Training
// Neural Networks" (arXiv 1506.01186, §3.3), where the largest useful rate is the one at which the
// curve stops improving. Chosen is half of that rate, but at most an eighth of the rate at which a
// pass had diverged: diverging takes some steps, in which the rate keeps growing. The claim that
// could be false: on a quadratic whose largest curvature is L, steps are stable below 2/L, or 2(1 +
// β)/L with momentum β; the blow-up is found above that limit, and the chosen rate is below it.
//
// The table also has the rate at which the loss falls fastest. Others choose that rate (the knee of
// C. Xu, G. Neglia and N. Sebastianelli, "Dynamic Backup Workers for Parallel Machine Learning",
// arXiv 2004.14696). It is no good choice here: most of what a pass can gain is gained while the
// rates are still small, so the steepest place depends on the number of steps. With the defaults it
// is at 0.00002 for lenet, whose initial loss is high, and at 0.001 for mlr, which then ends far
// from converged.
//
// A step is the mean of the gradients of all workers, as in a synchronous run, so the rate is for
// that number of gradients. The pass is short, and its rates grow while it learns; it cannot say
// how fast the model learns at a constant rate for a long time.
package rates

import (
	"context"
	"fmt"
	"io"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/internal/loop"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// Config configures Run.
type Config struct {
	Model, Data string
	Layout      *kintsugi.Layout   // its rates are factors of those that are tried
	Schedule    conductor.Schedule // its learning rate, warm-up and decay are not used
	ClipNorm    float64            // longest norm that a gradient counts with; 0: any
	Workers     int                // number of gradients per step
	Low, High   float64            // first and last learning rate
	Steps       int
	Seeds       int // number of passes, with the seeds 1, 2, …
	Threads     int // number of passes at the same time

	// Open returns a trainee that computes in one goroutine, for a pass with a seed.
	Open     func(seed uint64) (Trainee, error)
	Progress io.Writer
}

// Trainee computes for one pass.
type Trainee struct {
	Init     func(params []float32) error
	Gradient worker.Gradient
	Close    func() error
}

// Row is the result of a range test.
type Row struct {
	Name      string  `json:"name"`
	Model     string  `json:"model"`
	Data      string  `json:"data"`
	Optimizer string  `json:"optimizer"`
	Momentum  float64 `json:"momentum"`
	Workers   int     `json:"workers"`
	Examples  int     `json:"examples_of_a_step"`
	Seeds     int     `json:"seeds"`
	Steps     int     `json:"steps"`
	Chosen    float64 `json:"learning_rate"`
	Steepest  float64 `json:"steepest_rate"`       // where the loss falls fastest
	Lowest    float64 `json:"lowest_loss_rate"`    // where the loss is lowest
	BlowUp    float64 `json:"blow_up_rate"`        // where the first pass had diverged
	Usual     float64 `json:"model_learning_rate"` // the default of train for this model
	Rule      string  `json:"rule"`                // describes how Chosen is chosen
	Curve     []Point `json:"curve"`
}

// Run makes a range test.
func Run(ctx context.Context, cfg Config) (Row, error) {
	row := Row{
		Name: "lr/" + cfg.Model + "/" + cfg.Data, Model: cfg.Model, Data: cfg.Data, Optimizer: kernels.Rule(cfg.Schedule.Rule).String(), Momentum: cfg.Schedule.Momentum,
		Workers: cfg.Workers, Seeds: cfg.Seeds, Steps: cfg.Steps, Usual: cfg.Schedule.LearningRate, Rule: "half of the rate at which the loss is lowest, at most an eighth of where it blows up",
	}
	rates := make([]float64, cfg.Steps)
	for i := range rates {
		rates[i] = rangeRate(cfg.Low, cfg.High, i, cfg.Steps)
	}
	losses, diverged := make([][]float64, cfg.Seeds), make([]bool, cfg.Seeds)
	examples := make([]int, cfg.Seeds)
	progress := bench.NewCountdown(cfg.Progress, cfg.Seeds)
	err := bench.Each(ctx, cfg.Threads, cfg.Seeds, func(ctx context.Context, s int) error {
		p := pass{cfg: &cfg, rates: rates}
		if err := p.run(ctx, uint64(s+1)); err != nil {
			return fmt.Errorf("seed %d: %w", s+1, err)
		}
		losses[s], diverged[s], examples[s] = p.losses, p.diverged, p.examples
		text := fmt.Sprintf("seed %d: to the end, at %.3g", s+1, rates[len(p.losses)-1])
		if p.diverged {
			text = fmt.Sprintf("seed %d: diverged at %.3g", s+1, rates[len(p.losses)-1])
		}
		progress.Ended(text)
		return nil
	})
	if err != nil {
		return row, err
	}
	f := find(rates, losses, diverged)
	row.Chosen, row.Steepest, row.Lowest, row.BlowUp, row.Curve, row.Examples = f.Chosen, f.Steepest, f.Lowest, f.BlowUp, f.Points, examples[0]
	if f.BlowUp == 0 {
		return row, fmt.Errorf("%w: the loss has not blown up at learning rates of up to %.3g, so nothing is known of those above; raise the highest", kintsugi.ErrUsage, cfg.High)
	}
	if len(f.Points) < 2*trendWindow {
		return row, fmt.Errorf("%w: the loss blew up after %d steps, at a learning rate of %.3g; begin with a smaller one than %.3g", kintsugi.ErrUsage, len(f.Points), f.BlowUp, cfg.Low)
	}
	return row, nil
}

// pass is one pass.
type pass struct {
	cfg      *Config
	rates    []float64
	losses   []float64
	diverged bool
	examples int // number per step
}

func (p *pass) run(ctx context.Context, seed uint64) error {
	t, err := p.cfg.Open(seed)
	if err != nil {
		return err
	}
	defer func() { _ = t.Close() }() // it has nothing to lose
	loop := loop.New(p.cfg.Layout, p.cfg.Schedule.Rule, p.cfg.Workers, p.cfg.ClipNorm)
	if err := t.Init(loop.Params); err != nil {
		return err
	}
	var seen trend
	for i, rate := range p.rates {
		loss, err := p.gradients(ctx, t.Gradient, loop, kintsugi.Step(i))
		if err != nil {
			return err
		}
		p.losses = append(p.losses, loss)
		if p.diverged = seen.add(loss); p.diverged {
			return nil
		}
		s := p.cfg.Schedule
		s.LearningRate, s.Warmup, s.Steps = rate, 0, 0 // a constant rate
		if err := loop.Step(s.At(kintsugi.Step(i + 1))); err != nil {
			return err
		}
	}
	return nil
}

// gradients computes the gradients of a step and returns their mean loss.
func (p *pass) gradients(ctx context.Context, gradient worker.Gradient, loop *loop.Loop, version kintsugi.Step) (float64, error) {
	loss := 0.0
	p.examples = 0
	for slot, into := range loop.Gradients {
		l, n, err := gradient(ctx, loop.Params, into, kintsugi.PushID{Line: 1, Slot: kintsugi.Slot(slot), Incarnation: 1, Version: version})
		if err != nil {
			return 0, err
		}
		loop.Count(slot, n)
		loss += l * float64(n)
		p.examples += n
	}
	return loss / float64(p.examples), nil
}
