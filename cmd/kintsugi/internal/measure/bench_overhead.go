package measure

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
)

func benchOverheadCommand() *cobra.Command {
	cfg, format := cluster.OverheadConfig{}, ""
	cmd := &cobra.Command{
		Use: "overhead [-- FLAGS OF TRAIN]", Short: "Measure what the running checkpoint costs, with a fast and with a slow store", Args: cobra.ArbitraryArgs,
		Example: "  kintsugi bench overhead\n  kintsugi bench overhead --model cnn --limits ,50MB/s,5MB/s -- --codec int8",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Steps < 50 || cfg.Rounds < 1 || cfg.Period < 1 || len(cfg.Fractions) == 0 || len(cfg.Limits) == 0 {
				return fmt.Errorf("%w: bench overhead needs 50 steps, a round, a period, a fraction and a limit, which may be empty", kintsugi.ErrUsage)
			}
			if err := checkFormat(format); err != nil {
				return err
			}
			t := &train.Training{}
			t.Register(job.NewFlagSet("bench"))
			t.Model, t.Servers, t.Workers = cfg.Model, cfg.Servers, cfg.Workers
			for _, f := range cfg.Fractions {
				if t.Recovery = fmt.Sprintf("scar:%s,%d", f, cfg.Period); f == "off" {
					t.Recovery = "none"
				}
				for _, t.StoreLimit = range cfg.Limits {
					if err := t.Check(); err != nil {
						return err
					}
				}
			}
			var err error
			if cfg.Bytes, err = stateBytes(cfg.Model); err != nil {
				return err
			}
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			cfg.Flags, cfg.Progress = args, cmd.ErrOrStderr()
			rows, err := cluster.Overhead(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printRows(cmd.OutOrStdout(), format, rows, overheadTable, overheadLine)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Model, "model", "mlp", "model to train")
	f.StringSliceVar(&cfg.Fractions, "fractions", []string{"off", "1", "1/2", "1/4", "1/8"}, "fractions to compare; off, no running checkpoint, is measured always")
	f.StringSliceVar(&cfg.Limits, "limits", []string{"", "50MB/s"}, "what the store takes; empty: as it is")
	f.IntVar(&cfg.Period, "period", 64, "steps in which the bytes of one model are saved")
	f.IntVar(&cfg.Servers, "servers", 2, "servers")
	f.IntVar(&cfg.Workers, "workers", 4, "workers")
	f.IntVar(&cfg.Steps, "steps", 600, "steps of one run")
	f.IntVar(&cfg.Rounds, "rounds", 3, "interleaved runs of each")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

const overheadTable = "MODEL\tFRACTION\tSTORE\tSTEPS/s\tOF WITHOUT\tSTEP p50\tp99\tMAX\tWAITED FOR IT\tMODELS IN C STEPS\tSAVES\tSAVE p50\tMEAN AGE"

func overheadLine(r cluster.OverheadRow) (text, benchfmt string) {
	head := fmt.Sprintf("%s\t%s\t%s\t%.1f\t%.3f\t%.1f ms\t%.1f ms\t%.1f ms\t", r.Model, r.Fraction, r.Limit, r.Steps, r.Ratio, 1e3*r.P50, 1e3*r.P99, 1e3*r.Longest)
	text = head + "–\t–\t–\t–\t–"
	if r.Fraction != "off" {
		text = head + fmt.Sprintf("%.3f %%\t%.2f\t%.0f\t%.0f ms\t%.1f steps", 100*r.Waited, r.Models, r.Saves, 1e3*r.Took, r.Age)
	}
	return text, fmt.Sprintf("%s %d %.2f steps/s %.3f ratio %.6f waited-share %.3f models", benchName(r.Name), r.Rounds, r.Steps, r.Ratio, r.Waited, r.Models)
}
