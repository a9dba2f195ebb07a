package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/worker/data"
)

// reproduceDBW is an experiment: how near a controller comes to the best fixed quota.
type reproduceDBW struct {
	quick        bool
	set, dataDir string
	busy         string
	batches      []int
	seeds        int
	format, out  string
}

func reproduceDBWCommand() *cobra.Command {
	r := &reproduceDBW{}
	cmd := &cobra.Command{
		Use: "dbw", Short: "Compare dynamic backup workers with every fixed quota, under virtual time", Args: noArgs,
		Example: "  kintsugi reproduce dbw --quick\n  kintsugi reproduce dbw --data mnist --out runs/dbw",
		RunE:    func(cmd *cobra.Command, _ []string) error { return r.command(cmd) },
	}
	f := cmd.Flags()
	f.BoolVar(&r.quick, "quick", false, "fewer cells, quotas and seeds: under a minute on two cores")
	f.StringVar(&r.set, "data", "digits", "images to train softmax regression on: digits, mnist or fashion")
	f.StringVar(&r.dataDir, "data-dir", "", "folder of the data sets (default $KINTSUGI_DATA)")
	f.StringVar(&r.busy, "busy", "interrupt", "what a busy worker does about newer parameters: interrupt, wait or pull")
	f.IntSliceVar(&r.batches, "batches", []int{16, 100, 500}, "examples of one gradient; each is a third of the cells")
	f.IntVar(&r.seeds, "seeds", 5, "seeds to judge on; the best fixed quota is chosen on as many others")
	f.StringVar(&r.format, "format", "text", "text or json")
	f.StringVar(&r.out, "out", "", "a folder for table.json and report.html; empty: none")
	return cmd
}

func (r *reproduceDBW) command(cmd *cobra.Command) error {
	if r.format != "text" && r.format != "json" {
		return fmt.Errorf("%w: --format %q is unknown; use text or json", kintsugi.ErrUsage, r.format)
	}
	if r.seeds < 1 || len(r.batches) == 0 || slices.Min(r.batches) < 1 {
		return fmt.Errorf("%w: reproduce dbw needs a seed, and batches of at least one example", kintsugi.ErrUsage)
	}
	way, err := agg.Preset("bsp:" + r.busy)
	if err != nil || (r.busy != "interrupt" && r.busy != "wait" && r.busy != "pull") {
		return fmt.Errorf("%w: --busy %q is unknown; use interrupt, wait or pull", kintsugi.ErrUsage, r.busy)
	}
	dir := r.dataDir
	if dir == "" {
		dir = os.Getenv("KINTSUGI_DATA")
	}
	set, err := data.Open(r.set, dir)
	if err != nil {
		return err
	}
	cfg := bench.DBWConfig{
		Set: set, Examples: 2000, Workers: 16, Busy: way.Busy, Batches: r.batches, Rates: []float64{2, 8}, Alphas: []float64{0, 0.2, 0.5, 1},
		Controllers: []string{"dbw", "dbw:paper", "bdbw", "adasync:1", "adasync:4", "dbw:joint"}, Seeds: r.seeds, Steps: 150,
		Parallel: min(2, runtime.NumCPU()), Progress: cmd.ErrOrStderr(),
	}
	for k := 1; k <= cfg.Workers; k++ {
		cfg.Quotas = append(cfg.Quotas, k)
	}
	if r.quick {
		cfg.Batches, cfg.Quotas, cfg.Steps, cfg.Seeds = []int{16, 100}, []int{1, 2, 4, 8, 12, 16}, 60, min(2, cfg.Seeds)
		cfg.Controllers = cfg.Controllers[:5]
	}
	started := time.Now()
	result, err := bench.DBW(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	head := fmt.Sprintf("softmax regression on %d images of %s, %d workers, %d seeds; commit %s, %s/%s, %d cores, %.0f s",
		cfg.Examples, r.set, cfg.Workers, cfg.Seeds, commit, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Since(started).Seconds())
	if r.out != "" {
		if err := r.write(result, head); err != nil {
			return err
		}
	}
	if r.format == "json" {
		return printRows(cmd.OutOrStdout(), "json", result.Cells, "", func(bench.DBWRow) (string, string) { return "", "" })
	}
	return printDBW(cmd.OutOrStdout(), result, head)
}

// write writes the table and the report into the folder.
func (r *reproduceDBW) write(result *bench.DBWResult, head string) error {
	if err := os.MkdirAll(r.out, 0o777); err != nil {
		return err
	}
	table, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, "table.json"), append(table, '\n'), 0o666); err != nil {
		return err
	}
	return record.WriteFile(filepath.Join(r.out, "report.html"), func(w io.Writer) error { return result.WriteHTML(w, head) })
}

func printDBW(w io.Writer, r *bench.DBWResult, head string) error {
	fmt.Fprintln(w, head)
	for _, t := range r.Tables() {
		fmt.Fprintf(w, "\n%s\n", t.Title)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, line := range append([][]string{t.Header}, t.Lines...) {
			for i, cell := range line {
				if i > 0 {
					fmt.Fprint(tw, "\t")
				}
				fmt.Fprint(tw, cell)
			}
			fmt.Fprintln(tw)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}
