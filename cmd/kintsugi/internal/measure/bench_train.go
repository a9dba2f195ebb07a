package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/worker"
)

func benchTrainCommand() *cobra.Command {
	b := &BenchTrain{}
	cmd := &cobra.Command{
		Use: "train", Short: "Compare train with a loop over the same model in one process", Args: job.ProgramAfterDash,
		Example: "  kintsugi bench train --models mlp,lenet --rounds 5 --format json\n" +
			"  kintsugi bench train --workers 2 -- python3 train.py     # a model of its own, in place of --models",
		RunE: func(cmd *cobra.Command, _ []string) error { return b.command(cmd) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&b.Program, "program", nil, "program of a model of its own, then its arguments, one by one; or all of them after --. The loop asks one for each thread, and makes the steps itself")
	f.StringSliceVar(&b.Models, "models", []string{"mlp", "lenet", "cnn", "charlm"}, "models to measure")
	f.IntVar(&b.Workers, "workers", 4, "workers, and gradients of each step of the loop")
	f.IntVar(&b.Servers, "servers", 2, "servers")
	f.IntVar(&b.Steps, "steps", 1000, "steps of one measurement; fewer if they would take the loop more than four seconds")
	f.IntVar(&b.Rounds, "rounds", 5, "interleaved measurements of both")
	f.StringArrayVar(&b.Rates, "rate", nil, "learning rate of some tensors in both, as train's --rate; may be repeated")
	f.Float64Var(&b.ClipNorm, "clip-norm", job.Suggested, "longest norm that a gradient counts with in both, as train's --clip-norm (default: as the model suggests, mostly 0)")
	f.Lookup("clip-norm").DefValue = "0" // so that help prints no default
	f.StringVar(&b.format, "format", "text", "text, json or benchfmt")
	f.StringVar(&b.BLAS, "blas", "auto", "matrix library of both")
	f.StringVar(&b.Device, "device", "auto", "what computes gradients in both, as train's --device")
	f.StringVar(&b.ServerDevice, "server-device", "cpu", "where train keeps shards, as there; the loop's optimizer is the processor's")
	f.StringVar(&b.Wire, "wire", "auto", "wire of train, as there")
	f.StringVar(&b.before, "before", "grpc", "wire of a second train in each round, to compare with; empty: none")
	return cmd
}

const trainTable = "MODEL\tPARAMETERS\tWORKERS\tSERVERS\tTRAIN steps/s\tBEFORE steps/s\tLOOP steps/s\tLOOP THREADS\tRATIO (min, max)\tBEFORE\tCOPIES ms\tNEITHER"

func trainLine(r cluster.TrainRow) (text, benchfmt string) {
	before, beforeRatio := "–", "–"
	if r.BeforeStepsPerSec > 0 {
		before, beforeRatio = fmt.Sprintf("%.1f", r.BeforeStepsPerSec), fmt.Sprintf("%.2f", r.Before)
	}
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%.1f\t%s\t%.1f\t%d\t%.2f (%.2f, %.2f)\t%s\t%.2f\t%.0f %%", r.Model, r.Parameters, r.Workers, r.Servers,
			r.TrainStepsPerSec, before, r.LoopStepsPerSecond, r.Threads, r.Ratio, r.RatioMin, r.RatioMax, beforeRatio, 1e3*r.Copies, 100*r.Neither),
		fmt.Sprintf("%s %d %.2f train-steps/s %.2f loop-steps/s %.3f ratio %.3f neither", benchName(r.Name), r.Rounds, r.TrainStepsPerSec, r.LoopStepsPerSecond, r.Ratio, r.Neither)
}

// BenchTrain is the command that compares train with a loop in one process.
type BenchTrain struct {
	Models                          []string
	Workers, Servers, Steps, Rounds int
	format, BLAS, Wire, before      string
	Device, ServerDevice            string
	Program, Rates                  []string
	ClipNorm                        float64
}

func (b *BenchTrain) command(cmd *cobra.Command) error {
	if b.Workers < 1 || b.Servers < 1 || b.Steps < 10 || b.Rounds < 1 {
		return fmt.Errorf("%w: bench train needs at least one worker, one server, one round and 10 steps", kintsugi.ErrUsage)
	}
	if err := checkFormat(b.format); err != nil {
		return err
	}
	for _, w := range []string{b.Wire, cmp.Or(b.before, b.Wire)} {
		if _, err := worker.ParseWire(w); err != nil {
			return err
		}
	}
	if len(b.Program) > 0 {
		b.Models = []string{"a program"}
	}
	if len(b.Models) > 1 {
		for _, m := range b.Models {
			if err := b.known(m); err != nil {
				return err
			}
		}
	}
	var rows []cluster.TrainRow
	for _, m := range b.Models {
		row, err := b.measure(cmd.Context(), m, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return printRows(cmd.OutOrStdout(), b.format, rows, trainTable, trainLine)
}

// training returns the settings of train for a model.
func (b *BenchTrain) training(name string) (*train.Training, error) {
	t := &train.Training{}
	t.Register(job.NewFlagSet("bench"))
	t.Model, t.Workers, t.Servers, t.BLAS, t.Device, t.ServerDevice, t.Program, t.Rates, t.ClipNorm = name, b.Workers, b.Servers, b.BLAS, b.Device, b.ServerDevice, b.Program, b.Rates, b.ClipNorm
	return t, t.Check()
}

// known returns an error for a model that cannot be measured with these settings. It is called
// before minutes of measuring others.
func (b *BenchTrain) known(name string) error {
	t, err := b.training(name)
	if err != nil {
		return err
	}
	prob, err := job.Describe(&t.Settings)
	if err != nil {
		return err
	}
	return errors.Join(meansGradients(t, prob), prob.Close())
}

// meansGradients returns an error for a model whose steps are no means of gradients.
func meansGradients(t *train.Training, prob *job.Problem) error {
	schedule, err := t.Schedule()
	if err == nil && job.MakesOwnSteps(schedule.Rule) {
		err = fmt.Errorf("%w: bench train compares means of gradients, and model %s has none", kintsugi.ErrUsage, prob.Desc.Name)
	}
	return err
}

func (b *BenchTrain) measure(ctx context.Context, name string, progress io.Writer) (cluster.TrainRow, error) {
	cfg, end, err := b.Config(ctx, name)
	if err != nil {
		return cluster.TrainRow{}, err
	}
	defer end()
	if cfg.Binary, err = os.Executable(); err != nil {
		return cluster.TrainRow{}, err
	}
	cfg.Progress = progress
	return cluster.TrainOverhead(ctx, cfg)
}

// Config returns the measurement of a model. The caller calls end when it is over.
func (b *BenchTrain) Config(ctx context.Context, name string) (cfg cluster.TrainConfig, end func(), err error) {
	var open []func() error
	release := func() {
		for _, end := range slices.Backward(open) {
			_ = end() // it has nothing to lose
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	t, err := b.training(name)
	if err != nil {
		return cfg, nil, err
	}
	if err := t.PrepareProgram(false); err != nil {
		return cfg, nil, err
	}
	if _, err := job.UseBLAS(&t.Settings); err != nil {
		return cfg, nil, err
	}
	prob, err := job.Describe(&t.Settings)
	if err != nil {
		return cfg, nil, err
	}
	open = append(open, prob.Close)
	if err := prob.Open(&t.Settings); err != nil {
		return cfg, nil, err
	}
	if err := meansGradients(t, prob); err != nil {
		return cfg, nil, err
	}
	cfg = cluster.TrainConfig{
		Model: t.Model, Workers: b.Workers, Servers: b.Servers, Steps: b.Steps, Rounds: b.Rounds, Flags: b.Flags(),
		Layout: prob.Layout, Init: func(p []float32) error { return prob.Init(&t.Settings, t.Seed, p) }, ClipNorm: t.ClipNorm,
	}
	if cfg.Schedule, err = t.Schedule(); err != nil {
		return cfg, nil, err
	}
	if b.before != "" {
		cfg.Before = []string{"--wire", b.before}
	}
	t.BLASThreads = t.EngineThreads(b.Workers) // those of a worker of train
	for range min(b.Workers, job.Cores()) {
		g, m, err := prob.Compute(ctx, &t.Settings)
		if err != nil {
			return cfg, nil, err
		}
		open = append(open, m.Close)
		cfg.Gradients = append(cfg.Gradients, g)
		if _, ok := m.(job.GPUModel); ok { // computes one gradient after the other, as fast as several threads would
			break
		}
	}
	return cfg, release, nil
}

// Flags returns the flags of train, besides those that bench sets itself.
func (b *BenchTrain) Flags() []string {
	flags := []string{"--blas", b.BLAS, "--wire", b.Wire, "--device", b.Device, "--server-device", b.ServerDevice}
	if b.ClipNorm != job.Suggested {
		flags = append(flags, "--clip-norm", fmt.Sprint(b.ClipNorm))
	}
	for _, r := range b.Rates {
		flags = append(flags, "--rate", r)
	}
	for _, a := range b.Program {
		flags = append(flags, "--program", a)
	}
	return flags
}
