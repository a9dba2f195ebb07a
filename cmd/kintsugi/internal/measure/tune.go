package measure

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/rates"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
)

// TuneCommand returns the command that looks for a learning rate.
func TuneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "tune", Short: "Search for settings", Args: cli.NoArgs, Example: "  kintsugi tune lr --model lenet",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(tuneRateCommand())
	return cmd
}

// tuneRate is a learning-rate range test.
type tuneRate struct {
	train.Training
	cfg    rates.Config
	format string
}

func tuneRateCommand() *cobra.Command {
	t := &tuneRate{}
	cmd := &cobra.Command{
		Use: "lr", Short: "Find a learning rate, by passes in which it grows until the loss blows up", Args: job.ProgramAfterDash,
		Example: "  kintsugi tune lr --model lenet\n  kintsugi tune lr --model charlm --optimizer adam --low 1e-6 --high 1 --format json",
		Long: "Lr computes in this process. A step is the mean of the gradients of --workers workers, as in a synchronous run, so the rate is\n" +
			"for that many gradients: the N of knee=N. It chooses half of the rate at which the loss is lowest, and at most an\n" +
			"eighth of the one at which it blows up. It writes table.json and report.html.",
		RunE: func(cmd *cobra.Command, _ []string) error { return t.command(cmd) },
	}
	f := cmd.Flags()
	t.Register(f)
	f.VisitAll(func(flag *pflag.Flag) { flag.Hidden = !slices.Contains(ofPasses, flag.Name) })
	f.Float64Var(&t.cfg.Low, "low", 1e-5, "first learning rate")
	f.Float64Var(&t.cfg.High, "high", 10, "last learning rate")
	f.IntVar(&t.cfg.Seeds, "seeds", 3, "passes")
	f.StringVar(&t.format, "format", "text", "text, json or benchfmt")
	f.Lookup("steps").Usage = "steps of a pass (default 300)"
	f.Lookup("out").Usage = "folder for table.json and report.html (default runs/lr-TIME)"
	return cmd
}

// ofPasses are the flags of train that a pass uses. It takes the others as well, so that it can read
// the settings of a run.
var ofPasses = []string{
	"model", "data", "data-dir", "input", "program", "described", "steps", "batch", "optimizer", "rate", "momentum", "betas", "epsilon", "weight-decay",
	"weight-decay-for", "clip-norm", "workers", "device", "blas", "blas-threads", "kernels", "engine", "out", "config",
}

func (t *tuneRate) command(cmd *cobra.Command) error {
	if err := job.Load(t.Flags, t.Config); err != nil {
		return err
	}
	if !t.Flags.Changed("steps") {
		t.Steps = 300
	}
	t.LocalSteps, t.Outer = 1, "" // a pass has no servers to exchange with: the settings may be those of a run that has
	decades := math.Log10(t.cfg.High / t.cfg.Low)
	if !(t.cfg.Low > 0) || !(t.cfg.High > t.cfg.Low) || t.cfg.High > 1e6 || t.cfg.Seeds < 1 || t.cfg.Seeds > 1000 || t.Steps > 1e6 || float64(t.Steps) < max(20, 20*decades) {
		return fmt.Errorf("%w: tune lr needs --low above 0, --high above it and up to a million, 1 to 1000 seeds, and 20 steps for each factor of ten between the two", kintsugi.ErrUsage)
	}
	if err := checkFormat(t.format); err != nil {
		return err
	}
	if err := t.Check(); err != nil {
		return err
	}
	if _, err := job.UseBLAS(&t.Settings); err != nil {
		return err
	}
	p, err := job.Describe(&t.Settings)
	if err != nil {
		return err
	}
	if err := p.Open(&t.Settings); err != nil {
		return err
	}
	if t.cfg.Schedule, err = t.Schedule(); err != nil {
		return err
	}
	t.cfg.Model, t.cfg.Data, t.cfg.Layout, t.cfg.ClipNorm, t.cfg.Workers, t.cfg.Steps = t.Model, t.Data, p.Layout, t.ClipNorm, t.Workers, int(t.Steps)
	t.cfg.Threads, t.cfg.Progress = job.Cores(), cmd.ErrOrStderr()
	t.cfg.Open = func(seed uint64) (rates.Trainee, error) {
		s := t.Settings
		s.Seed, s.BLASThreads = seed, s.EngineThreads(min(t.cfg.Threads, t.cfg.Seeds))
		gradient, m, err := p.Compute(cmd.Context(), &s)
		if err != nil {
			return rates.Trainee{}, err
		}
		return rates.Trainee{Init: func(params []float32) error { return p.Init(&s, seed, params) }, Gradient: gradient, Close: m.Close}, nil
	}
	row, err := rates.Run(cmd.Context(), t.cfg)
	if err != nil {
		return err
	}
	dir, about := experiment("lr", t.Out)
	page, err := rates.Write(dir, about, row)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "report: %s\n", page); err != nil {
		return err
	}
	if t.format == "text" {
		return t.print(cmd.OutOrStdout(), row)
	}
	return printRows(cmd.OutOrStdout(), t.format, []rates.Row{row}, "", rateLine)
}

// ratesShown is the number of lines of the curve in the table.
const ratesShown = 20

func (t *tuneRate) print(w io.Writer, row rates.Row) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "LEARNING RATE\tLOSS\tSMOOTHED\tSLOPE")
	every := max(1, len(row.Curve)/ratesShown)
	for i := every - 1; i < len(row.Curve); i += every {
		p := row.Curve[i]
		fmt.Fprintf(tab, "%.3g\t%.4g\t%.4g\t%+.3g\n", p.Rate, p.Loss, p.Smooth, p.Slope)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	what := t.given()
	_, err := fmt.Fprintf(w, "chosen: %.2g, %s (%s, a step of %d gradients, %d seeds)\nthe loss falls fastest at %.2g and is lowest at %.2g; the first pass had diverged at %.2g; train takes %.2g unless it is told\n"+
		"  kintsugi train --learning-rate %.2g %s\n  kintsugi train --learning-rate %.2g --consistency dbw:knee=%d %s\n",
		row.Chosen, row.Rule, strings.TrimSpace(row.Optimizer), row.Workers, row.Seeds, row.Steepest, row.Lowest, row.BlowUp, row.Usual, row.Chosen, what, row.Chosen, row.Workers, what)
	return err
}

// given returns the model and the flags that the rate was found with, as a shell takes them.
func (t *tuneRate) given() string {
	words := []string{"--model", t.Model}
	if len(t.Program) > 0 {
		words = nil
	}
	for _, name := range []string{"data", "workers", "batch", "optimizer", "rate", "momentum", "betas", "epsilon", "weight-decay", "weight-decay-for", "clip-norm"} {
		flag := t.Flags.Lookup(name)
		if !flag.Changed {
			continue
		}
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			words = append(words, "--"+name, v)
		}
	}
	if len(t.Program) > 0 {
		words = append(append(words, "--"), t.Program...)
	}
	return cli.Words(words...)
}

func rateLine(r rates.Row) (text, benchfmt string) {
	return "", fmt.Sprintf("%s %d %.4g learning-rate %.4g lowest-loss-rate %.4g blow-up-rate", benchName(r.Name), r.Seeds, r.Chosen, r.Lowest, r.BlowUp)
}
