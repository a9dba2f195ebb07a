package measure

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/quota"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// reproduceDBW is an experiment: how close a controller comes to the best fixed quota.
type reproduceDBW struct {
	quick       bool
	data        []string
	dataDir     string
	busy        string
	batches     []int
	quotas      []int
	workers     int
	seeds       int
	steps       uint64
	format, out string
}

func reproduceDBWCommand() *cobra.Command {
	r := &reproduceDBW{}
	cmd := &cobra.Command{
		Use: "dbw", Short: "Compare dynamic backup workers with every fixed quota, under virtual time", Args: cli.NoArgs,
		Example: "  kintsugi reproduce dbw --quick\n  kintsugi reproduce dbw --data mnist,cifar10 --data-dir ~/data --out runs/dbw",
		Long: "Dbw trains softmax regression with simulated workers in this process, once with each fixed quota and once with each\n" +
			"controller, compares the virtual seconds to a loss, checks what is claimed, and writes table.json and report.html.",
		RunE: func(cmd *cobra.Command, _ []string) error { return r.command(cmd) },
	}
	f := cmd.Flags()
	f.BoolVar(&r.quick, "quick", false, "digits, and fewer batch sizes, quotas and steps: under a minute on two cores")
	f.StringSliceVar(&r.data, "data", []string{"digits", "mnist", "cifar10"}, "sets of images; those that are not there are left out unless they are asked for")
	f.StringVar(&r.dataDir, "data-dir", "", "folder of the data sets (default $KINTSUGI_DATA)")
	f.StringVar(&r.busy, "busy", "interrupt", "what a busy worker does about newer parameters: interrupt, wait or pull")
	f.IntSliceVar(&r.batches, "batches", []int{16, 100, 500}, "examples of one gradient")
	f.IntSliceVar(&r.quotas, "quotas", nil, "fixed quotas to compare with (default all, 1 to the number of workers)")
	f.IntVar(&r.workers, "workers", 16, "workers, a multiple of four")
	f.IntVar(&r.seeds, "seeds", 5, "seeds to judge on; the best fixed quota is chosen on as many others")
	f.Uint64Var(&r.steps, "steps", 150, "steps after which a step of all workers has the loss that is the target")
	f.StringVar(&r.format, "format", "text", "text, json or benchfmt")
	f.StringVar(&r.out, "out", "", "folder for table.json and report.html (default runs/dbw-TIME)")
	return cmd
}

// shorten applies --quick to flags that the command line does not set.
func (r *reproduceDBW) shorten(f *pflag.FlagSet) {
	if !r.quick {
		return
	}
	unsaid(f, map[string]func(){
		"data": func() { r.data = []string{"digits"} }, "batches": func() { r.batches = []int{16, 100} },
		"quotas": func() { r.quotas = []int{1, 2, 3, 4, 8, 12, r.workers} }, "steps": func() { r.steps = 100 },
	})
}

func (r *reproduceDBW) command(cmd *cobra.Command) error {
	if err := job.Load(cmd.Flags(), ""); err != nil {
		return err
	}
	r.shorten(cmd.Flags())
	cfg, err := r.config(cmd)
	if err != nil {
		return err
	}
	result, err := quota.Run(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	dir, about := experiment("dbw", r.out)
	page, err := quota.Write(dir, about, result)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "report: %s\n", page)
	if r.format == "text" {
		return result.WriteText(cmd.OutOrStdout())
	}
	return printRows(cmd.OutOrStdout(), r.format, result.Rows(), "", func(row quota.Row) (string, string) {
		return "", fmt.Sprintf("%s %d %.3f virtual-seconds %.4f ratio", benchName(row.Name), row.Seeds, float64(row.Seconds), float64(row.Ratio))
	})
}

// config checks the settings, and opens the data sets.
func (r *reproduceDBW) config(cmd *cobra.Command) (quota.Config, error) {
	cfg := quota.Config{
		Examples: 2000, Workers: r.workers, Batches: r.batches, Rates: []float64{2, 8}, Alphas: []float64{0, 0.2, 0.5, 1}, Quotas: r.quotas,
		Controllers: []string{"dbw", "dbw:paper", "bdbw", "adasync:1", "adasync:4", "dbw:joint"}, Seeds: r.seeds, Steps: kintsugi.Step(r.steps),
		Parallel: job.Cores(), Progress: cmd.ErrOrStderr(),
	}
	if err := checkFormat(r.format); err != nil {
		return cfg, err
	}
	if r.workers < 4 || r.workers > 1000 || r.workers%4 != 0 || r.seeds < 1 || r.steps < 10 || r.steps > 1e6 || len(r.batches) == 0 || slices.Min(r.batches) < 1 {
		return cfg, fmt.Errorf("%w: reproduce dbw needs a seed, ten steps, four workers or a multiple of that up to 1000, and batches of at least one example", kintsugi.ErrUsage)
	}
	way, err := agg.Preset("bsp:" + r.busy)
	if err != nil || !slices.Contains([]string{"interrupt", "wait", "pull"}, r.busy) {
		return cfg, fmt.Errorf("%w: --busy %q is unknown; use interrupt, wait or pull", kintsugi.ErrUsage, r.busy)
	}
	cfg.Busy = way.Busy
	if cfg.Quotas == nil {
		for k := 1; k <= r.workers; k++ {
			cfg.Quotas = append(cfg.Quotas, k)
		}
	}
	slices.Sort(cfg.Quotas)
	cfg.Quotas = slices.Compact(cfg.Quotas)
	if cfg.Quotas[0] < 1 || cfg.Quotas[len(cfg.Quotas)-1] != r.workers {
		return cfg, fmt.Errorf("%w: --quotas are numbers from 1 to the number of workers, %d, which must be one of them", kintsugi.ErrUsage, r.workers)
	}
	cfg.Sets, err = r.open(cmd.ErrOrStderr(), cmd.Flags().Changed("data"))
	return cfg, err
}

// open opens the data sets. If they were not asked for explicitly, some may be missing.
func (r *reproduceDBW) open(w io.Writer, asked bool) (sets []*data.Set, err error) {
	for _, name := range r.data {
		set, err := data.Open(name, r.dataDir)
		switch {
		case err != nil && asked:
			return nil, err
		case err != nil:
			fmt.Fprintf(w, "without %s: %s\n", name, strings.TrimPrefix(err.Error(), kintsugi.ErrUsage.Error()+": "))
		default:
			sets = append(sets, set)
		}
	}
	if len(sets) == 0 {
		return nil, fmt.Errorf("%w: there is nothing to train on: --data names no data set", kintsugi.ErrUsage)
	}
	return sets, nil
}
