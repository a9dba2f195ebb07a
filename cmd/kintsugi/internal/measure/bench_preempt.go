package measure

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench/cluster"
)

func benchPreemptCommand() *cobra.Command {
	cfg, format := cluster.PreemptConfig{}, ""
	cmd := &cobra.Command{
		Use: "preempt [-- FLAGS OF TRAIN]", Short: "Compare the steps around a notice with those around SIGKILL",
		Example: "  kintsugi bench preempt --recoveries chain,checkpoint --parts server/1,worker/1\n  kintsugi bench preempt -- --model lenet",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Pairs < 1 || cfg.Every < 50 || cfg.Servers < 1 || cfg.Workers < 1 {
				return fmt.Errorf("%w: bench preempt needs a pair, 50 steps from one signal to the next, a server and a worker", kintsugi.ErrUsage)
			}
			var err error
			if cfg.Binary, err = os.Executable(); err != nil {
				return err
			}
			cfg.Flags, cfg.Progress = append([]string{"--model", "mlp"}, args...), cmd.ErrOrStderr()
			rows, err := cluster.Preempt(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			return printRows(cmd.OutOrStdout(), format, rows, preemptTable, preemptLine)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Recoveries, "recoveries", []string{"gold", "chain", "checkpoint", "scar", "stateless"}, "recoveries to compare, as train's --recovery")
	f.StringSliceVar(&cfg.Parts, "parts", []string{"server/1", "worker/1"}, "processes that get the signals")
	f.IntVar(&cfg.Servers, "servers", 2, "servers")
	f.IntVar(&cfg.Workers, "workers", 4, "workers")
	f.IntVar(&cfg.Pairs, "pairs", 3, "notices, and kills, in each run")
	f.IntVar(&cfg.Every, "every", 300, "steps from one signal to the next")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

const preemptTable = "RECOVERY\tPROCESS\tUSUAL STEP\tNOTICE: LONGEST STEP p50\tmax\tWHEN IT IS BACK\tSTEPS LOST\tKILL: NEXT STEP AFTER p50\tmax\tWHEN IT IS BACK\tSTEPS LOST"

func preemptLine(r cluster.PreemptRow) (text, benchfmt string) {
	return fmt.Sprintf("%s\t%s\t%.4f s\t%.3f s\t%.3f s\t%.3f s\t%d\t%.3f s\t%.3f s\t%.3f s\t%d", r.Recovery, r.Part, r.Usual,
			r.Notice.Gap, r.Notice.GapMax, r.Notice.Return, r.Notice.Lost, r.Kill.Gap, r.Kill.GapMax, r.Kill.Return, r.Kill.Lost),
		fmt.Sprintf("%s %d %.4f s-around-notice %.4f s-around-kill", benchName(strings.ReplaceAll(r.Name, ":", "-")), r.Notice.Count, r.Notice.Gap, r.Kill.Gap)
}
