package measure

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/partial"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// reproduceScar is an experiment: what failures cost, and how much of that partial checkpoints
// save.
type reproduceScar struct {
	workloads, strategies, lost []string
	data, dataDir, out          string
	periods                     []int
	trials, seeds               int
	quick, contiguous           bool
	format                      string
}

func reproduceScarCommand() *cobra.Command {
	r := &reproduceScar{}
	cmd := &cobra.Command{
		Use: "scar", Short: "Compare the steps that failures cost, for each way to save and restore", Args: cli.NoArgs,
		Example: "  kintsugi reproduce scar --quick\n  kintsugi reproduce scar --workloads mlr,cnn --data mnist --data-dir ~/data --trials 400\n" +
			"  kintsugi reproduce scar --workloads als --data movielens --data-dir ~/data --periods 4,8\n" +
			"  kintsugi reproduce scar --out runs/scar --workloads cnn",
		Long: "Scar loses parts of models in training, in this process, recovers them by each strategy from equal bytes\n" +
			"saved, counts the steps until the undisturbed loss is reached, and writes table.json and report.html.\n" +
			"Each algorithm has a file in the folder as well: one that the same program has finished with the same settings\n" +
			"is not run again, so what was interrupted goes on, and algorithms that run apart come into one table.",
		RunE: func(cmd *cobra.Command, _ []string) error { return r.command(cmd) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&r.workloads, "workloads", partial.Workloads, "algorithms to disturb; als on ratings too")
	f.StringVar(&r.data, "data", "digits", "images that mlr and cnn learn, or ratings for als")
	f.StringVar(&r.dataDir, "data-dir", "", "folder of the data sets (default $KINTSUGI_DATA)")
	f.StringSliceVar(&r.strategies, "strategies", partial.Strategies, "strategies to compare; full is the baseline")
	f.StringSliceVar(&r.lost, "lost", []string{"1/4", "1/2", "3/4"}, "shares of the model that a failure takes")
	f.BoolVar(&r.contiguous, "contiguous", false, "lose blocks that follow one another, not any")
	f.IntSliceVar(&r.periods, "periods", []int{8, 16, 32, 64}, "steps in which the bytes of one model are saved")
	f.IntVar(&r.trials, "trials", 100, "failures for each figure")
	f.IntVar(&r.seeds, "seeds", 4, "undisturbed runs that they are spread over")
	f.BoolVar(&r.quick, "quick", false, "few trials and two periods: about a minute, to see that it works")
	f.StringVar(&r.out, "out", "", "folder for table.json, report.html and what each algorithm gave (default runs/scar-TIME)")
	f.StringVar(&r.format, "format", "text", "text, json or benchfmt")
	return cmd
}

// shorten applies --quick to flags that the command line does not set.
func (r *reproduceScar) shorten(f *pflag.FlagSet) {
	if !r.quick {
		return
	}
	unsaid(f, map[string]func(){
		"trials": func() { r.trials = 6 }, "seeds": func() { r.seeds = 1 }, "periods": func() { r.periods = []int{8, 32} },
	})
}

func (r *reproduceScar) command(cmd *cobra.Command) error {
	if err := job.Load(cmd.Flags(), ""); err != nil {
		return err
	}
	r.shorten(cmd.Flags())
	cfg, err := r.config()
	if err != nil {
		return err
	}
	cfg.Progress = cmd.ErrOrStderr()
	dir, about := experiment("scar", r.out)
	if err := cfg.Parts(cmd.Context(), dir, about); err != nil {
		return err
	}
	rows, err := partial.Read(dir)
	if err != nil {
		return err
	}
	var bound *partial.Bound
	if slices.ContainsFunc(rows, func(r partial.Row) bool { return r.Workload == "qp" }) {
		b := partial.FindBound(10000, 1)
		bound = &b
		fmt.Fprintf(cmd.ErrOrStderr(), "%d perturbations of a quadratic: %d cost more than the published bound, %d more than the posterior bound\n",
			b.Perturbations, b.AbovePaper, b.AbovePosterior)
		for _, l := range b.Lost {
			fmt.Fprintf(cmd.ErrOrStderr(), "E‖δ′‖² with a random share p = %g lost: %.4f of p‖δ‖², %+.1f σ\n", l.Share, l.Ratio, l.Sigmas)
		}
	}
	page, err := partial.Write(dir, about, rows, bound)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "machine: %s; commit %s\n", about.Machine, about.Commit)
	for _, claim := range partial.Claims(rows) {
		fmt.Fprintln(cmd.ErrOrStderr(), claim)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "report: %s\n", page)
	return printRows(cmd.OutOrStdout(), r.format, rows, scarTable, scarLine)
}

// config checks the settings, and opens what the workloads need.
func (r *reproduceScar) config() (partial.Config, error) {
	cfg := partial.Config{Periods: r.periods, Strategies: r.strategies, Contiguous: r.contiguous, Trials: r.trials, Seeds: r.seeds, Threads: job.Cores()}
	usage := func(format string, args ...any) (partial.Config, error) {
		return cfg, fmt.Errorf("%w: reproduce scar: %s", kintsugi.ErrUsage, fmt.Sprintf(format, args...))
	}
	if r.seeds < 1 || r.trials < r.seeds || slices.ContainsFunc(r.periods, func(c int) bool { return c < 1 }) {
		return usage("at least one seed, a trial for each and periods from 1 are needed")
	}
	if err := checkFormat(r.format); err != nil {
		return cfg, err
	}
	for _, s := range r.strategies {
		if err := partial.CheckStrategy(s); err != nil {
			return cfg, err
		}
	}
	for _, text := range r.lost {
		share, err := job.ParseFraction(text)
		if err != nil || !(share > 0 && share <= 1) {
			return usage("--lost %q: use a share such as 1/4 or 0.25", text)
		}
		cfg.Lost = append(cfg.Lost, share)
	}
	var set *data.Set
	for _, name := range r.workloads {
		if partial.NeedsData(name) && set == nil {
			var err error
			if set, err = data.Open(r.data, r.dataDir); err != nil {
				return cfg, err
			}
		}
		p, err := partial.ProblemOf(name, set)
		if err != nil {
			return cfg, err
		}
		cfg.Problems = append(cfg.Problems, p)
	}
	return cfg, nil
}

const scarTable = "WORKLOAD\tDATA\tLOST\tC\tSTRATEGY\tREWORK\tPREDICTED\tOF BASELINE\tREDUCTION (95 %)\tOF AVOIDABLE\tWORSE\tBYTES\tTRIALS\tPUBLISHED"

func scarLine(r partial.Row) (text, benchfmt string) {
	head := fmt.Sprintf("%s\t%s\t%s\t%d\t%s\t", r.Workload, r.Data, partial.Share(r.Lost), r.Period, r.Strategy)
	if r.Missing != "" {
		// The reason is in the last column, which it does not widen. A row with fewer cells would
		// end the columns of all rows above it.
		return head + "n/a" + strings.Repeat("\t", 8) + r.Missing, ""
	}
	predicted := "unknown"
	if r.Predicted.Known() {
		predicted = fmt.Sprintf("%.2f", r.Predicted)
	}
	return head + fmt.Sprintf("%.2f\t%s\t%.2f\t%.1f %% (%.1f to %.1f)\t%.2f\t%.2f\t%.2f\t%d\t%s", r.Rework, predicted, r.Baseline, 100*r.Reduction, 100*r.Low, 100*r.High,
			r.Avoidable, r.Worse, r.Bytes, r.Trials, r.Paper),
		fmt.Sprintf("%s %d %.3f rework-steps %.3f baseline-steps %.4f reduction", benchName(r.Name), r.Trials, r.Rework, r.Baseline, r.Reduction)
}
