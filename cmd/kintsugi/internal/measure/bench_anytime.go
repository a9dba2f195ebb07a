package measure

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/quota"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

func benchAnytimeCommand() *cobra.Command {
	cfg, format, name, dir := quota.AnytimeConfig{}, "", "", ""
	cmd := &cobra.Command{
		Use: "anytime", Short: "Measure, in virtual time, whether it would pay to count parts of interrupted gradients", Args: cli.NoArgs,
		Example: "  kintsugi bench anytime --workers 16 --batches 16,128",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Workers < 2 || cfg.Seeds < 1 || cfg.Steps < 5 || !(cfg.Rate > 0) || len(cfg.Batches) == 0 {
				return fmt.Errorf("%w: bench anytime needs two workers, a seed, five steps, a batch and a learning rate", kintsugi.ErrUsage)
			}
			share := func(a float64) bool { return a >= 0 && a <= 1 }
			seconds := func(c float64) bool { return c >= 0 && c <= 1e6 }
			if slices.Min(cfg.Batches) < 1 || slices.Max(cfg.Batches) > 1<<16 || !all(cfg.Alphas, share) || !all(cfg.Costs, seconds) {
				return fmt.Errorf("%w: bench anytime needs batches of 1 to %d examples, alphas from 0 to 1 and costs of no less than 0 seconds", kintsugi.ErrUsage, 1<<16)
			}
			if err := checkFormat(format); err != nil {
				return err
			}
			if dir == "" {
				dir = os.Getenv("KINTSUGI_DATA")
			}
			var err error
			if cfg.Set, err = data.Open(name, dir); err != nil {
				return err
			}
			for q := 1; q < cfg.Workers; q += max(1, q/2) {
				cfg.Quotas = append(cfg.Quotas, q)
			}
			cfg.Quotas = append(cfg.Quotas, cfg.Workers)
			cfg.Examples, cfg.Parallel, cfg.Progress = 2000, job.Cores(), cmd.ErrOrStderr()
			rows, err := quota.Anytime(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printRows(cmd.OutOrStdout(), format, rows, anytimeTable, anytimeLine)
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Workers, "workers", 16, "workers")
	f.IntSliceVar(&cfg.Batches, "batches", []int{16, 128}, "examples of a gradient")
	f.Float64SliceVar(&cfg.Alphas, "alphas", []float64{0.2, 0.5, 1}, "parts of a gradient's time that are exponential")
	f.Float64SliceVar(&cfg.Costs, "costs", []float64{0, 0.1}, "seconds that a step takes longer for asking; a gradient takes one")
	f.Float64Var(&cfg.Rate, "learning-rate", 0.25, "learning rate")
	f.IntVar(&cfg.Seeds, "seeds", 3, "runs of each kind")
	f.Uint64Var((*uint64)(&cfg.Steps), "steps", 60, "steps of all workers whose loss is the target")
	f.StringVar(&name, "data", "digits", "digits or mnist, of which softmax regression is trained on images of 7x7")
	f.StringVar(&dir, "data-dir", "", "folder of the data sets (default $KINTSUGI_DATA)")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

// all reports whether good is true for all values, including NaN.
func all(values []float64, good func(float64) bool) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return !good(v) })
}

const anytimeTable = "BATCH\tALPHA\tPRESET\tPARTS COUNT\tCOST\tQUOTA\tSECONDS TO TARGET\tSOONER BY"

func anytimeLine(r quota.AnytimeRow) (text, benchfmt string) {
	parts, cost := "no", ""
	if r.Partial {
		parts, cost = "yes", fmt.Sprintf("%g s", r.Cost)
	}
	return fmt.Sprintf("%d\t%g\t%s\t%s\t%s\t%.1f\t%.1f\t%.2f", r.Batch, r.Alpha, r.Preset, parts, cost, r.Quota, float64(r.Seconds), float64(r.Ratio)),
		fmt.Sprintf("%s 1 %.2f s-to-target %.3f ratio", benchName(r.Name), float64(r.Seconds), float64(r.Ratio))
}
