package measure

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
	"github.com/kintsugi-ml/kintsugi/bench/codecs"
	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/internal/words"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// ReproduceCommand returns the command that repeats experiments.
func ReproduceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "reproduce", Short: "Repeat an experiment and draw the result", Args: cli.NoArgs, Example: "  kintsugi reproduce codecs --quick",
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return checkCounts(cmd.Flags()) },
	}
	cmd.AddCommand(reproduceCodecsCommand(), reproduceDBWCommand(), train.EndsTrainings(reproduceFailureCommand()), reproduceScarCommand())
	return cmd
}

// reproduceCodecs is an experiment: what accuracy costs in bytes.
type reproduceCodecs struct {
	models, data, codecs []string
	dataDir, blas, out   string
	seeds                int
	steps                uint64
	quick                bool
	format               string
}

// codecsCompared are the codecs whose claims are checked, and two of them without feedback for
// comparison.
var codecsCompared = []string{
	"fp32", "bf16", "fp16", "int8", "int8:stochastic", "sign", "sign-nofeedback", "topk:0.01", "topk:0.01-nofeedback", "powersgd:2",
}

func reproduceCodecsCommand() *cobra.Command {
	r := &reproduceCodecs{}
	cmd := &cobra.Command{
		Use: "codecs", Short: "Compare accuracy and bytes pushed, for each codec", Args: cli.NoArgs,
		Example: "  kintsugi reproduce codecs --quick\n  kintsugi reproduce codecs --data mnist,fashion --data-dir ~/data --codecs fp32,int8,topk:0.01 --seeds 5",
		Long: "Codecs trains models with four simulated workers in this process, which encode, keep what they leave out and step\n" +
			"as those of a cluster do, and writes table.json and report.html.",
		RunE: func(cmd *cobra.Command, _ []string) error { return r.command(cmd) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&r.models, "models", []string{"mlp", "lenet"}, "models to train")
	f.StringSliceVar(&r.data, "data", []string{"digits", "mnist", "fashion"}, "data sets; those that are not there are left out unless they are asked for")
	f.StringVar(&r.dataDir, "data-dir", "", "folder of the data sets (default $KINTSUGI_DATA)")
	f.StringSliceVar(&r.codecs, "codecs", codecsCompared, "codecs to compare")
	f.IntVar(&r.seeds, "seeds", 5, "runs with each codec")
	f.Uint64Var(&r.steps, "steps", 2000, "steps of each run")
	f.BoolVar(&r.quick, "quick", false, "digits, one seed and few steps: under a minute, to see that it works")
	f.StringVar(&r.blas, "blas", "auto", "matrix library")
	f.StringVar(&r.out, "out", "", "folder for table.json and report.html (default runs/codecs-TIME)")
	f.StringVar(&r.format, "format", "text", "text, json or benchfmt")
	return cmd
}

// shorten applies --quick to flags that the command line does not set.
func (r *reproduceCodecs) shorten(f *pflag.FlagSet) {
	if !r.quick {
		return
	}
	unsaid(f, map[string]func(){
		"data": func() { r.data = []string{"digits"} }, "seeds": func() { r.seeds = 1 }, "steps": func() { r.steps = 100 },
	})
}

func (r *reproduceCodecs) command(cmd *cobra.Command) error {
	if err := job.Load(cmd.Flags(), ""); err != nil {
		return err
	}
	r.shorten(cmd.Flags())
	if r.seeds < 1 || r.steps < 10 {
		return fmt.Errorf("%w: reproduce codecs needs at least one seed and 10 steps", kintsugi.ErrUsage)
	}
	if err := checkFormat(r.format); err != nil {
		return err
	}
	for _, spec := range r.codecs {
		if _, err := compress.Parse(spec); err != nil {
			return err
		}
	}
	cfg := codecs.Config{
		Codecs: r.codecs, Seeds: r.seeds, Steps: kintsugi.Step(r.steps), Workers: 4, Threads: job.Cores(), Progress: cmd.ErrOrStderr(),
	}
	var err error
	if cfg.Problems, err = r.problems(cmd); err != nil {
		return err
	}
	rows, err := codecs.Run(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	if err := r.write(cmd, rows); err != nil {
		return err
	}
	return printRows(cmd.OutOrStdout(), r.format, rows, codecsTable, codecsLine)
}

// problems opens every model on every data set.
func (r *reproduceCodecs) problems(cmd *cobra.Command) ([]codecs.Problem, error) {
	var list []codecs.Problem
	for _, data := range r.data {
		for _, name := range r.models {
			p, err := r.problem(name, data)
			if err != nil && !cmd.Flags().Changed("data") {
				fmt.Fprintf(cmd.ErrOrStderr(), "without %s: %s\n", data, strings.TrimPrefix(err.Error(), kintsugi.ErrUsage.Error()+": "))
				break
			}
			if err != nil {
				return nil, err
			}
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: there is nothing to train: --models and --data name no model or no data set", kintsugi.ErrUsage)
	}
	return list, nil
}

func (r *reproduceCodecs) problem(name, data string) (codecs.Problem, error) {
	t := &train.Training{}
	t.Register(job.NewFlagSet("reproduce"))
	t.Model, t.Data, t.DataDir, t.BLAS, t.Steps, t.BLASThreads = name, data, r.dataDir, r.blas, r.steps, 1 // a thread for each run
	if err := t.Check(); err != nil {
		return codecs.Problem{}, err
	}
	if _, err := job.UseBLAS(&t.Settings); err != nil {
		return codecs.Problem{}, err
	}
	p, err := job.Describe(&t.Settings)
	if err != nil {
		return codecs.Problem{}, err
	}
	if p.Data == nil || cluster.MeasureOf(name) != cluster.MeasureAccuracy {
		return codecs.Problem{}, fmt.Errorf("%w: model %s has no test set to be accurate on", kintsugi.ErrUsage, name)
	}
	schedule, err := t.Schedule()
	return codecs.Problem{Model: name, Data: data, Layout: p.Layout, Schedule: schedule, Open: func(seed uint64) (codecs.Trainee, error) {
		s := t.Settings
		s.Seed = seed
		return trainee(p, &s)
	}}, err
}

// trainee returns a trainee that computes in one goroutine, for a run with the seed of the
// settings.
func trainee(p *job.Problem, s *job.Settings) (codecs.Trainee, error) {
	gradient, m, err := p.Compute(context.Background(), s)
	if err != nil {
		return codecs.Trainee{}, err
	}
	e, err := p.Evaluator(s)
	if err != nil {
		return codecs.Trainee{}, err
	}
	return codecs.Trainee{
		Init: func(params []float32) error { return p.Desc.Init(s.Seed, params) }, Gradient: gradient,
		Accuracy: func(ctx context.Context, params []float32) (float64, error) {
			_, accuracy, err := e.Evaluate(ctx, params)
			return accuracy, err
		},
		Close: func() error {
			_ = e.Close()
			return m.Close()
		},
	}, nil
}

// write writes the files of the experiment.
func (r *reproduceCodecs) write(cmd *cobra.Command, rows []codecs.Row) error {
	dir, about := experiment("codecs", r.out)
	page, err := codecs.Write(dir, about, rows)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "report: %s\n", page)
	return err
}

// experiment returns the folder for the files of an experiment, which is a new one unless out names
// one, and the description for them.
func experiment(name, out string) (dir string, about page.Experiment) {
	if out == "" {
		out = filepath.Join("runs", name+"-"+time.Now().Format("20060102-150405"))
	}
	v := job.Version()
	return out, page.Experiment{
		Command: "kintsugi " + strings.Join(os.Args[1:], " "), Commit: v.Commit, Time: time.Now().UTC(),
		Machine: fmt.Sprintf("%s/%s, %d cores, kernels %s, %s", runtime.GOOS, runtime.GOARCH, job.Cores(), kernels.Best().Name(), runtime.Version()),
	}
}

const codecsTable = "MODEL\tDATA\tCODEC\tACCURACY ± SD\tPOINTS ABOVE FP32 ± SE\tPUSHED A RUN\tSMALLER BY\tSEEDS\tSTEPS\tRATE\tMOMENTUM"

func codecsLine(r codecs.Row) (text, benchfmt string) {
	smaller := float64(r.FP32Bytes) / float64(r.BytesPushed)
	text = fmt.Sprintf("%s\t%s\t%s\t%.4f ± %.4f\t%+.2f ± %.2f\t%s\t%.1f\t%d\t%d\t%.3g\t%.3g", r.Model, r.Data, r.Codec, r.Mean, r.Deviation,
		r.Points, r.PointsError, words.Bytes(float64(r.BytesPushed)), smaller, r.Seeds, r.Steps, r.LearningRate, r.Momentum)
	return text, fmt.Sprintf("%s %d %.4f accuracy %.3f points-above-fp32 %d pushed-bytes", benchName(r.Name), r.Seeds, r.Mean, r.Points, r.BytesPushed)
}
