package measure

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/machine"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

func benchEngineCommand() *cobra.Command {
	cfg, names, format := machine.EngineConfig{}, []string(nil), ""
	cmd := &cobra.Command{
		Use: "engine", Short: "Measure gradients of the native engine and Gorgonia, compared with a matrix product", Args: cli.NoArgs,
		Example: "  kintsugi bench engine --models lenet --threads 1\n  kintsugi bench engine --rounds 11 --format json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Batch < 1 || cfg.Rounds < 1 || slices.Min(append(cfg.Threads, 1)) < 1 {
				return fmt.Errorf("%w: bench engine needs a batch, a round and a thread", kintsugi.ErrUsage)
			}
			for _, v := range cfg.Variants {
				if !slices.Contains(machine.EngineVariants(), v) {
					return fmt.Errorf("%w: --variants %q is unknown; use %s", kintsugi.ErrUsage, v, strings.Join(machine.EngineVariants(), ", "))
				}
			}
			if err := checkFormat(format); err != nil {
				return err
			}
			for _, name := range names {
				d, err := model.Lookup(name, benchInput(name))
				if err != nil {
					return err
				}
				cfg.Models = append(cfg.Models, d)
			}
			cfg.Progress = cmd.ErrOrStderr()
			rows, err := machine.EngineSpeed(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printRows(cmd.OutOrStdout(), format, rows, engineTable, engineLine)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&names, "models", []string{"mlp", "lenet", "cnn"}, "models to measure")
	f.StringSliceVar(&cfg.Variants, "variants", machine.EngineVariants(), "what computes")
	f.IntSliceVar(&cfg.Threads, "threads", []int{1, 2}, "threads of one gradient")
	f.IntVar(&cfg.Batch, "batch", 64, "examples of one gradient")
	f.IntVar(&cfg.Rounds, "rounds", 11, "interleaved measurements of each")
	f.DurationVar(&cfg.AtLeast, "at-least", 100*time.Millisecond, "length of one measurement")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

// benchInput returns the input for measuring a model: images of 28×28 in 10 classes, or sequences
// of 64 characters.
func benchInput(name string) model.Input {
	if model.ForSequences(name) {
		return model.Input{Channels: 1, Height: 1, Width: 64, Classes: 65, Sequence: true}
	}
	return model.Input{Channels: 1, Height: 28, Width: 28, Classes: 10}
}

const engineTable = "MODEL\tVARIANT\tTHREADS\tBATCH\tms/STEP (quartiles)\tGFLOP/s\tSGEMM GFLOP/s\tFRACTION\tTIMES GORGONIA"

func engineLine(r machine.EngineRow) (text, benchfmt string) {
	return fmt.Sprintf("%s\t%s\t%d\t%d\t%.3f (%.3f, %.3f)\t%.1f\t%.1f\t%.2f\t%.1f", r.Model, r.Variant, r.Threads, r.Batch,
			r.Milliseconds, r.Low, r.High, r.GFLOPS, r.SgemmGFLOPS, r.Fraction, r.Speedup),
		fmt.Sprintf("%s 1 %.0f ns/op %.2f GFLOP/s %.3f fraction-of-sgemm %.2f times-gorgonia", benchName(r.Name),
			r.Milliseconds*1e6, r.GFLOPS, r.Fraction, r.Speedup)
}
