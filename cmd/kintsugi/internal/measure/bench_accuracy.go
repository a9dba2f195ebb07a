package measure

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
)

func benchAccuracyCommand() *cobra.Command {
	cfg, format, plain := cluster.AccuracyConfig{}, "", false
	cmd := &cobra.Command{
		Use: "accuracy [-- FLAGS OF TRAIN]", Short: "Train models with several seeds and print their results on test data",
		Example: "  kintsugi bench accuracy --models lenet,mlr --seeds 5\n  kintsugi bench accuracy --models mlp --seeds 3 -- --data mnist --steps 1500\n" +
			"  kintsugi bench accuracy --models mf,mf:als --plain -- --data movielens",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Seeds < 1 {
				return fmt.Errorf("%w: --seeds %d: at least one", kintsugi.ErrUsage, cfg.Seeds)
			}
			err := checkFormat(format)
			if err != nil {
				return err
			}
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			cfg.Flags, cfg.Progress = args, cmd.ErrOrStderr()
			if plain {
				cfg.Plain = func(ctx context.Context, model string, seed int) (loss, accuracy float64, err error) {
					return plainly(ctx, append([]string{"--model", model, "--seed", strconv.Itoa(seed)}, args...))
				}
			}
			rows, err := cluster.Accuracy(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printRows(cmd.OutOrStdout(), format, rows, accuracyTable, accuracyLine)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Models, "models", []string{"lenet", "mlr"}, "models to train")
	f.IntVar(&cfg.Seeds, "seeds", 5, "runs of each model")
	f.BoolVar(&plain, "plain", false, "train each also in one loop in this process, by a plain implementation of the same algorithm, and print both")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

const accuracyTable = "MODEL\tSEEDS\tSTEPS\tMEASURE\tMEAN\tDEVIATION\tWORST\tTEST LOSS, MEAN\tSECONDS A RUN\tIN ONE LOOP, MEAN\tDEVIATION"

func accuracyLine(r cluster.AccuracyRow) (text, benchfmt string) {
	text = fmt.Sprintf("%s\t%d\t%d\t%s\t%.4f\t%.4f\t%.4f\t%.4f\t%.1f\t", r.Model, r.Seeds, r.Steps, r.Measure, r.Mean, r.Deviation, r.Worst(), r.Loss, r.Seconds)
	benchfmt = fmt.Sprintf("%s %d %.4f %s %.4f test-loss %.1f s", benchName(r.Name), r.Seeds, r.Mean, r.Measure, r.Loss, r.Seconds)
	if r.Plain == nil {
		return text, benchfmt
	}
	return text + fmt.Sprintf("%.4f\t%.4f", r.PlainMean, r.PlainDeviation), benchfmt + fmt.Sprintf(" %.4f plain-%s", r.PlainMean, r.Measure)
}

// plainly trains with the given flags of train, but in one loop, and returns loss and accuracy on
// the test half.
func plainly(ctx context.Context, flags []string) (loss, accuracy float64, err error) {
	t := &train.Training{}
	f := job.NewFlagSet("train")
	t.Register(f)
	if err := f.Parse(flags); err != nil {
		return 0, 0, fmt.Errorf("%w: flags of train: %w", kintsugi.ErrUsage, err)
	}
	if err := job.Load(f, t.Config); err != nil {
		return 0, 0, err
	}
	if err := t.Check(); err != nil {
		return 0, 0, err
	}
	if t.LocalSteps > 1 {
		return 0, 0, fmt.Errorf("%w: --local-steps %d: the loop of --plain has one trainer, and nobody to meet after so many steps; leave one of the two out", kintsugi.ErrUsage, t.LocalSteps)
	}
	p, err := job.Describe(&t.Settings)
	if err != nil {
		return 0, 0, err
	}
	if err := p.Open(&t.Settings); err != nil {
		return 0, 0, err
	}
	schedule, err := t.Schedule()
	if err != nil {
		return 0, 0, err
	}
	params, err := cluster.Plain(ctx, cluster.PlainConfig{
		Desc: p.Desc, Set: p.Data, Layout: p.Layout, Seed: t.Seed, Workers: t.Workers, Batch: t.Batch, Steps: int(t.Steps), Schedule: schedule, ClipNorm: t.ClipNorm,
	})
	if err != nil {
		return 0, 0, err
	}
	ev, err := p.Evaluator(&t.Settings)
	if err != nil {
		return 0, 0, err
	}
	defer ev.Close()
	return ev.Evaluate(ctx, params)
}
