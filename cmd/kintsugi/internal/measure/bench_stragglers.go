package measure

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

func benchStragglersCommand() *cobra.Command {
	cfg, format := cluster.StragglersConfig{}, ""
	cmd := &cobra.Command{
		Use: "stragglers [-- FLAGS OF TRAIN]", Short: "Slow a worker down and compare steps per second and seconds to a loss",
		Example: "  kintsugi bench stragglers\n  kintsugi bench stragglers --presets bsp,dbw --rounds 5 -- --model lenet --batch 512",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Workers < 2 || cfg.Servers < 1 || cfg.Steps < 50 || cfg.Rounds < 1 || len(cfg.Presets) == 0 {
				return fmt.Errorf("%w: bench stragglers needs two workers, a server, 50 steps, a round and a preset", kintsugi.ErrUsage)
			}
			if err := checkFormat(format); err != nil {
				return err
			}
			for _, p := range cfg.Presets {
				if _, err := agg.Preset(p); err != nil {
					return err
				}
			}
			fault, err := launch.ParseFault(cfg.Fault)
			if err != nil {
				return err
			}
			if err := fault.Check(cfg.Servers, cfg.Workers); err != nil {
				return err
			}
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			cfg.Flags, cfg.Progress = append([]string{"--model", "cnn", "--batch", "256"}, args...), cmd.ErrOrStderr()
			rows, err := cluster.Stragglers(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printRows(cmd.OutOrStdout(), format, rows, stragglersTable, stragglersLine)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Presets, "presets", []string{"bsp", "dbw", "backup:1"}, "ways to count gradients; the first is what the others are compared with")
	f.StringVar(&cfg.Fault, "fault", "slow worker/2 x5 from step 1", "what is done to every run but a calm one")
	f.IntVar(&cfg.Workers, "workers", 4, "workers")
	f.IntVar(&cfg.Servers, "servers", 2, "servers")
	f.IntVar(&cfg.Steps, "steps", 150, "steps of each run")
	f.IntVar(&cfg.Rounds, "rounds", 3, "rounds, each with a run of every preset")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

const stragglersTable = "PRESET\tFAULT\tSTEPS/s\tRATIO (min, max)\tSECONDS TO THE SAME LOSS\tSOONER BY (min, max)\tMEAN QUOTA\tLATE, GIVEN UP A STEP\tOTHERS COMPUTE\tACCURACY"

func stragglersLine(r cluster.StragglersRow) (text, benchfmt string) {
	fault := r.Fault
	if fault == "" {
		fault = "none"
	}
	return fmt.Sprintf("%s\t%s\t%.1f\t%.2f (%.2f, %.2f)\t%.1f\t%.2f (%.2f, %.2f)\t%.1f\t%.2f, %.2f\t%.1f ms\t%.4f", r.Preset, fault, r.StepsPerSecond,
			r.Ratio, r.RatioMin, r.RatioMax, r.Seconds, r.Speed, r.SpeedMin, r.SpeedMax, r.Quota, r.Late, r.GivenUp, r.Computing, r.Accuracy),
		fmt.Sprintf("%s %d %.2f steps/s %.3f steps-ratio %.2f s-to-loss %.3f loss-ratio", benchName(r.Name), r.Rounds, r.StepsPerSecond, r.Ratio, r.Seconds, r.Speed)
}
