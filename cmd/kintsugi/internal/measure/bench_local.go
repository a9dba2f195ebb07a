package measure

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
	"github.com/kintsugi-ml/kintsugi/internal/words"
)

func benchLocalCommand() *cobra.Command {
	cfg, format := cluster.LocalConfig{}, ""
	cmd := &cobra.Command{
		Use: "local [-- FLAGS OF TRAIN]", Short: "Compare what local steps save with what they cost",
		Example: "  kintsugi bench local --models lenet\n  kintsugi bench local --models charlm --local-steps 1,16 --outer auto --outer nesterov:0.7,0.6 -- --data shakespeare --wire grpc",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Seeds < 1 || len(cfg.Steps) == 0 || slices.Min(cfg.Steps) < 1 {
				return fmt.Errorf("%w: bench local needs at least one seed, and numbers of local steps, 1 for none", kintsugi.ErrUsage)
			}
			err := checkFormat(format)
			if err != nil {
				return err
			}
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			cfg.Flags, cfg.Progress = args, cmd.ErrOrStderr()
			rows, err := cluster.Local(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printRows(cmd.OutOrStdout(), format, rows, localTable, localLine)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Models, "models", []string{"lenet", "charlm"}, "models to train")
	f.IntSliceVar(&cfg.Steps, "local-steps", []int{1, 4, 16, 64}, "local steps to compare; the others are compared with the first")
	f.StringArrayVar(&cfg.Outer, "outer", []string{"auto", "sgd"}, "what servers make of local steps, as train's --outer; may be repeated")
	f.IntVar(&cfg.Seeds, "seeds", 3, "runs of each")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

const localTable = "MODEL\tLOCAL STEPS\tOUTER\tMEASURE\tMEAN\tDEVIATION\tGRADIENTS A RUN\tMOVED A RUN\tSMALLER BY\tGRADIENTS/S\tFASTER BY\tSEEDS"

func localLine(r cluster.LocalRow) (text, benchfmt string) {
	text = fmt.Sprintf("%s\t%d\t%s\t%s\t%.4f\t%.4f\t%.0f\t%s\t%.1f\t%.0f\t%.2f\t%d", r.Model, r.Steps, cmp.Or(r.Outer, "–"), r.Measure, r.Mean, r.Deviation,
		r.Gradients, words.Bytes(r.Bytes), r.Smaller, r.PerSecond, r.Faster, r.Seeds)
	name := benchName(strings.ReplaceAll(r.Name+"/"+cmp.Or(r.Outer, "none"), ":", "-"))
	return text, fmt.Sprintf("%s %d %.4f %s %.2f times-smaller %.2f times-faster", name, r.Seeds, r.Mean, r.Measure, r.Smaller, r.Faster)
}
