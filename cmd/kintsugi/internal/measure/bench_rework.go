package measure

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

func benchReworkCommand() *cobra.Command {
	cfg, quick, format := cluster.ReworkConfig{}, false, ""
	cmd := &cobra.Command{
		Use: "rework [-- FLAGS OF TRAIN]", Short: "Kill a server of real runs and count the steps until they have caught up", Args: cobra.ArbitraryArgs,
		Example: "  kintsugi bench rework\n  kintsugi bench rework --quick\n  kintsugi bench rework --models lenet --seeds 10 -- --gradient-time 100ms",
		RunE: func(cmd *cobra.Command, args []string) error {
			if quick {
				unsaid(cmd.Flags(), map[string]func(){
					"models": func() { cfg.Models = []string{"mlp"} }, "seeds": func() { cfg.Seeds = 2 }, "period": func() { cfg.Period = 8 },
				})
			}
			if cfg.Seeds < 1 || cfg.Period < 4 || cfg.Servers < 2 || cfg.Workers < 1 || len(cfg.Models) == 0 {
				return fmt.Errorf("%w: bench rework needs a model, a seed, a period of four steps, two servers and a worker", kintsugi.ErrUsage)
			}
			if !cmd.Flags().Changed("recoveries") {
				cfg.Recoveries = reworkRecoveries(cfg.Period)
			}
			cfg.Bytes = make(map[string]float64)
			for _, model := range cfg.Models {
				if err := checkSurvival(format, model, cfg.Servers, cfg.Workers, cfg.Recoveries...); err != nil {
					return err
				}
				bytes, err := stateBytes(model)
				if err != nil {
					return err
				}
				cfg.Bytes[model] = bytes
			}
			var err error
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			// With slower steps there is time to evaluate versions, and disks have time to save.
			// With a smaller learning rate than models suggest, the loss still falls by more than
			// its noise when a run ends.
			cfg.Flags, cfg.Progress = append([]string{"--gradient-time", "20ms", "--learning-rate", "0.01"}, args...), cmd.ErrOrStderr()
			rows, err := cluster.Rework(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printRows(cmd.OutOrStdout(), format, rows, reworkTable, reworkLine)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Models, "models", []string{"mlp", "lenet"}, "models to train")
	f.StringArrayVar(&cfg.Recoveries, "recoveries", nil, "a way to recover, as train's --recovery; may be repeated, and the first one is the baseline (default: checkpoint, scar:1/8 by priority, scar:1/2 with coasting:int8, chain)")
	f.IntVar(&cfg.Seeds, "seeds", 5, "runs of each recovery, each with a kill, beside an undisturbed one with the same seed")
	f.IntVar(&cfg.Period, "period", 16, "steps in which the bytes of one model are saved; a run has eleven periods")
	f.IntVar(&cfg.Servers, "servers", 2, "servers, of which one is killed")
	f.IntVar(&cfg.Workers, "workers", 4, "workers")
	f.BoolVar(&quick, "quick", false, "mlp alone, two seeds and a period of 8 steps: half a minute")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

// reworkRecoveries are compared at about equal numbers of bytes, except for the replica, which is
// sent every step. Increments are saved in halves of the model: each save names the records of all
// chunks, and with increments there are many records.
func reworkRecoveries(period int) []string {
	return []string{"checkpoint", fmt.Sprintf("scar:1/8,%d,priority", period), fmt.Sprintf("scar:1/2,%d,coasting:int8", period), "chain"}
}

// stateBytes returns the bytes of a model's parameters and optimizer state in the memory of
// servers.
func stateBytes(model string) (float64, error) {
	t := &train.Training{}
	t.Register(job.NewFlagSet("bench"))
	t.Model = model
	prob, err := job.Describe(&t.Settings)
	if err != nil {
		return 0, err
	}
	schedule, err := t.Schedule()
	if err != nil {
		return 0, err
	}
	return float64(4*prob.Layout.Values) * float64(1+schedule.Rule.States()), nil
}

const reworkTable = "MODEL\tRECOVERY\tC\tREWORK (95 %)\tSAVED OF CHECKPOINT'S (95 %)\tREDUCTION\tWORST\tSTEPS TAKEN BACK\tMEAN AGE\tPREDICTED\tMODELS IN C STEPS\tNEXT STEP AFTER p50\tSEEDS"

func reworkLine(r cluster.ReworkRow) (text, benchfmt string) {
	known := func(format string, x record.Number) string {
		if !x.Known() {
			return "–"
		}
		return fmt.Sprintf(format, x)
	}
	between := func(mean, low, high record.Number) string {
		if !low.Known() {
			return known("%.2f", mean)
		}
		return fmt.Sprintf("%.2f (%.2f to %.2f)", mean, low, high)
	}
	predicted := known("%.2f", r.Predicted)
	switch {
	case r.Age.Known() && r.Known == 0:
		predicted = "unknown"
	case r.Age.Known() && r.Known < r.Seeds:
		predicted += fmt.Sprintf(" in %d", r.Known)
	}
	return fmt.Sprintf("%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%s\t%d", r.Model, r.Recovery, r.Period, between(r.Rework, r.Low, r.High), between(r.Saved, r.SavedLow, r.SavedHigh),
			known("%.1f %%", 100*r.Reduction), known("%.2f", r.Worst), known("%.1f", r.Lost), known("%.1f steps", r.Age), predicted, r.Models, known("%.2f s", r.Outage), r.Seeds),
		fmt.Sprintf("%s %d %.3f rework-steps %.3f saved-steps", benchName(r.Name), r.Seeds, r.Rework, r.Saved)
}
