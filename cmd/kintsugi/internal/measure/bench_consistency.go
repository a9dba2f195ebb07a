package measure

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

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
