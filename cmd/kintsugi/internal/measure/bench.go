package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// BenchCommand returns the bench command: measurements of this machine.
func BenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure the system on this machine", Args: cli.NoArgs, Example: "  kintsugi bench train --models mlp",
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return checkCounts(cmd.Flags()) },
	}
	b := &BenchTrain{}
	compare := &cobra.Command{
		Use: "train", Short: "Compare train with a loop over the same model in one process", Args: job.ProgramAfterDash,
		Example: "  kintsugi bench train --models mlp,lenet --rounds 5 --format json\n" +
			"  kintsugi bench train --workers 2 -- python3 train.py     # a model of its own, in place of --models",
		RunE: func(cmd *cobra.Command, _ []string) error { return b.command(cmd) },
	}
	f := compare.Flags()
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
	cmd.AddCommand(
		train.EndsTrainings(compare),
		train.EndsTrainings(benchAccuracyCommand()),
		benchAnytimeCommand(),
		benchCheckpointCommand(),
		benchCodecCommand(),
		train.EndsTrainings(benchConsistencyCommand()),
		train.EndsTrainings(benchDrawnCommand()),
		train.EndsTrainings(benchAlarmsCommand()),
		benchEngineCommand(),
		train.EndsTrainings(benchFailoverCommand()),
		train.EndsTrainings(benchGoodputCommand()),
		benchKernelsCommand(),
		train.EndsTrainings(benchKillsCommand()),
		benchLoadCommand(),
		train.EndsTrainings(benchLocalCommand()),
		train.EndsTrainings(benchOutageCommand()),
		train.EndsTrainings(benchOverheadCommand()),
		train.EndsTrainings(benchPreemptCommand()),
		train.EndsTrainings(benchReworkCommand()),
		benchSnapshotCommand(),
		benchStepCommand(),
		train.EndsTrainings(benchStragglersCommand()),
		train.EndsTrainings(benchTaxCommand()),
		benchWireCommand(),
	)
	return cmd
}

// counted are the flags of measurements that are counts, with the largest sensible value: each
// counted thing needs memory or a process.
var counted = map[string]int{
	"batch": 1 << 16, "calm": 1 << 16, "cores": 1 << 12, "kills": 1 << 16, "pairs": 1 << 16, "replicas": 1 << 10, "rounds": 1 << 16, "runs": 1 << 16, "seeds": 1 << 16, "servers": 1 << 10, "trials": 1 << 16, "workers": 1 << 12,
}

// listed are the flags of measurements that must not be empty lists.
var listed = []string{"lost", "models", "parts", "presets", "recoveries", "strategies", "workloads"}

// checkCounts returns a usage error for a count that is far too large, or an empty list.
func checkCounts(f *pflag.FlagSet) (err error) {
	f.Visit(func(flag *pflag.Flag) {
		n, bad := strconv.Atoi(flag.Value.String())
		switch most, ok := counted[flag.Name]; {
		case ok && bad == nil && n > most:
			err = fmt.Errorf("%w: --%s %d: at most %d", kintsugi.ErrUsage, flag.Name, n, most)
		case slices.Contains(listed, flag.Name) && flag.Value.String() == "[]":
			err = fmt.Errorf("%w: --%s names none", kintsugi.ErrUsage, flag.Name)
		}
	})
	return err
}

func benchKillsCommand() *cobra.Command {
	cfg, format := cluster.KillsConfig{}, ""
	cmd := &cobra.Command{
		Use: "kills [-- FLAGS OF TRAIN]", Short: "Kill a process in every state and compare the runs with calm ones",
		Example: "  kintsugi bench kills --kills 20 --seed 1\n  kintsugi bench kills --kills 30 --recovery scar --servers 4 --only server\n  kintsugi bench kills --kills 50 --recovery stateless\n  kintsugi bench kills --kills 40 --recovery chain --only server\n  kintsugi bench kills --kills 40 --recovery chain --servers 3 --only server -- --replicas 3\n  kintsugi bench kills --kills 100 --seed 2 -- --model lenet",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Kills < 1 || cfg.Calm < 2 || cfg.Servers < 1 || cfg.Workers < 1 || cfg.Steps < 100 {
				return fmt.Errorf("%w: bench kills needs a kill, two calm runs, a server, a worker and 100 steps", kintsugi.ErrUsage)
			}
			if !slices.Contains([]string{"", "server", "worker", "coordinator"}, cfg.Only) {
				return fmt.Errorf("%w: --only %q: use server, worker or coordinator", kintsugi.ErrUsage, cfg.Only)
			}
			var err error
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			protects, err := protectionOf(cfg.Recovery, cfg.Servers, args)
			if err != nil {
				return err
			}
			cfg.Joins = protects.Replicas > 1
			cfg.Exact = protects.Outside || protects.Replicas > 1 && protects.Copies == 0
			cfg.Partial = (protects.Running != nil || protects.Copies > 0) && !cfg.Exact
			cfg.Flags, cfg.Progress = append([]string{"--model", "mlr", "--checkpoint-every", "20"}, args...), cmd.ErrOrStderr()
			rows, err := cluster.Kills(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := printRows(cmd.OutOrStdout(), format, rows, killsTable, killsLine); err != nil {
				return err
			}
			if cfg.Partial {
				kept, touched := 0, 0
				for _, r := range rows {
					kept, touched = kept+r.Kept, touched+r.Touched
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%d shards have outlived the loss of another one; in %d of them any bit has changed\n", kept, touched)
				runs, foretold, told, predicted, measured, deviation := cluster.Foretold(rows)
				fmt.Fprintf(cmd.ErrOrStderr(), "rework of %d partial restores: predicted in %d and measured in %d", runs, foretold, told)
				if !math.IsNaN(measured) {
					fmt.Fprintf(cmd.ErrOrStderr(), "; in the mean of those that were both predicted %.2f steps, measured %.2f ± %.2f", predicted, measured, deviation)
				}
				fmt.Fprintln(cmd.ErrOrStderr())
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "killed, drawn with seed %d: %s\n", cfg.Seed, cluster.States(rows))
			damaged := 0
			for _, r := range rows {
				damaged += r.Damaged
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "published checkpoints have %d damaged places\n", damaged)
			took := func(of string, rows []cluster.KillsRow) {
				p50, p99, longest := cluster.Recoveries(rows)
				fmt.Fprintf(cmd.ErrOrStderr(), "from the kill of %s to the next step: p50 %.3f s, p99 %.3f s, at most %.3f s\n", of, p50, p99, longest)
			}
			took("a process", rows)
			took("a server", slices.DeleteFunc(slices.Clone(rows), func(r cluster.KillsRow) bool { return !strings.HasPrefix(r.Part, "server/") }))
			for _, r := range rows {
				if !r.OK {
					return fmt.Errorf("%s, seed %d, ended at step %d with %d steps lost, loss %v, %d damaged places and parameters %s; calm runs end with %v ± %v, with its seed with parameters %s",
						r.Fault, r.Seed, r.Steps, r.Lost, r.Loss, r.Damaged, r.Bits, r.Mean, r.Allowed, r.CalmBits)
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Kills, "kills", 20, "runs with a kill; they go through the states of servers and workers, and the coordinator, in turn")
	f.StringVar(&cfg.Recovery, "recovery", "checkpoint", "how lost shards come back, as train's --recovery")
	f.Uint64Var(&cfg.Seed, "seed", 1, "seed of the choice of victims")
	f.StringVar(&cfg.Only, "only", "", "kill processes of this role only: server, worker or coordinator (default: of all)")
	f.IntVar(&cfg.Calm, "calm", 10, "undisturbed runs to compare with")
	f.IntVar(&cfg.Servers, "servers", 2, "servers")
	f.IntVar(&cfg.Workers, "workers", 4, "workers")
	f.IntVar(&cfg.Steps, "steps", 200, "steps of each run")
	f.BoolVar(&cfg.Loaded, "loaded", false, "keep all cores busy with another process meanwhile")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

func benchConsistencyCommand() *cobra.Command {
	cfg, format := cluster.ConsistencyConfig{}, ""
	cmd := &cobra.Command{
		Use: "consistency [-- FLAGS OF TRAIN]", Short: "Train with each preset and compare steps and seconds to an accuracy",
		Example: "  kintsugi bench consistency\n  kintsugi bench consistency --fault \"slow worker/0 x5 from step 1\" --presets bsp,backup:1,async",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Target <= 0 || cfg.Target >= 1 || cfg.Every < 1 {
				return fmt.Errorf("%w: --target is an accuracy between 0 and 1, --every a number of steps", kintsugi.ErrUsage)
			}
			for _, p := range cfg.Presets {
				if _, err := agg.Preset(p); err != nil {
					return err
				}
			}
			var err error
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			cfg.Flags, cfg.Progress = args, cmd.ErrOrStderr()
			rows, err := cluster.Consistency(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printRows(cmd.OutOrStdout(), format, rows, consistencyTable, consistencyLine)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Presets, "presets", []string{"bsp", "backup:1", "ssp:3", "async", "rennala:4"}, "presets to compare")
	f.Float64Var(&cfg.Target, "target", 0.95, "test accuracy to reach")
	f.IntVar(&cfg.Seed, "seed", 1, "seed of the runs")
	f.IntVar(&cfg.Every, "every", 25, "steps between two evaluations")
	f.StringVar(&cfg.Fault, "fault", "", "fault of every run")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

const consistencyTable = "PRESET\tSTEPS TO TARGET\tSECONDS TO TARGET\tSTALENESS p50\tp99\tLATE\tFINAL ACCURACY\tSTEPS"

func consistencyLine(r cluster.ConsistencyRow) (text, benchfmt string) {
	return fmt.Sprintf("%s\t%.0f\t%.1f\t%.0f\t%.0f\t%d\t%.4f\t%d", r.Preset, r.Steps, r.Seconds, r.P50, r.P99, r.Late, r.Accuracy, r.AllSteps),
		fmt.Sprintf("%s 1 %.0f steps-to-target %.1f s-to-target %.0f staleness-p99", benchName(r.Name), r.Steps, r.Seconds, r.P99)
}

const killsTable = "SEED\tPART\tSTATE\tAT STEP\tNEXT STEP AFTER\tSTEPS LOST\tFINAL LOSS\tCALM MEAN ± 3 SD\tPARAMETERS\tUNTOUCHED\tREWORK PREDICTED\tMEASURED\tOK"

func killsLine(r cluster.KillsRow) (text, benchfmt string) {
	untouched, predicted, measured, bits := "–", "–", "–", "–"
	switch {
	case r.CalmBits != "" && r.Bits == r.CalmBits:
		bits = "same bits"
	case r.CalmBits != "":
		bits = "OTHER BITS"
	}
	if r.Kept > 0 {
		untouched = fmt.Sprintf("%d of %d", r.Kept-r.Touched, r.Kept)
		predicted, measured = "unknown", "unknown"
	}
	if r.Predicted.Known() {
		predicted = fmt.Sprintf("%.2f", r.Predicted)
	}
	if r.Measured.Known() {
		measured = fmt.Sprintf("%.2f ± %.2f", r.Measured, r.Error)
	}
	return fmt.Sprintf("%d\t%s\t%s\t%d\t%.2f s\t%d\t%.5f\t%.5f ± %.5f\t%s\t%s\t%s\t%s\t%v", r.Seed, r.Part, r.State, r.Step, r.Recovery, r.Lost, r.Loss, r.Mean, r.Allowed,
			bits, untouched, predicted, measured, r.OK),
		fmt.Sprintf("%s/%s/%s 1 %.3f s-to-next-step %d lost-steps", benchName(r.Name), strings.ReplaceAll(r.Part, "/", "-"), r.State, r.Recovery, r.Lost)
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
