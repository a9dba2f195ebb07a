package measure

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
)

// BenchCommand returns the bench command: measurements of this machine.
func BenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure the system on this machine", Args: cli.NoArgs, Example: "  kintsugi bench train --models mlp",
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return checkCounts(cmd.Flags()) },
	}
	cmd.AddCommand(
		train.EndsTrainings(benchTrainCommand()),
		train.EndsTrainings(benchAccuracyCommand()),
		benchAnytimeCommand(),
		benchCheckpointCommand(),
		benchCodecCommand(),
		train.EndsTrainings(benchConsistencyCommand()),
		train.EndsTrainings(benchDrawnCommand()),
		train.EndsTrainings(benchAlarmsCommand()),
		benchEngineCommand(),
		train.EndsTrainings(benchFailoverCommand()),
		train.EndsTrainings(benchGoodputCommand()),
		benchKernelsCommand(),
		train.EndsTrainings(benchKillsCommand()),
		benchLoadCommand(),
		train.EndsTrainings(benchLocalCommand()),
		train.EndsTrainings(benchOutageCommand()),
		train.EndsTrainings(benchOverheadCommand()),
		train.EndsTrainings(benchPreemptCommand()),
		train.EndsTrainings(benchReworkCommand()),
		benchSnapshotCommand(),
		benchStepCommand(),
		train.EndsTrainings(benchStragglersCommand()),
		train.EndsTrainings(benchTaxCommand()),
		benchWireCommand(),
	)
	return cmd
}

// counted are the flags of measurements that are counts, with the largest sensible value: each
// counted thing needs memory or a process.
var counted = map[string]int{
	"batch": 1 << 16, "calm": 1 << 16, "cores": 1 << 12, "kills": 1 << 16, "pairs": 1 << 16, "replicas": 1 << 10, "rounds": 1 << 16, "runs": 1 << 16, "seeds": 1 << 16, "servers": 1 << 10, "trials": 1 << 16, "workers": 1 << 12,
}

// listed are the flags of measurements that must not be empty lists.
var listed = []string{"lost", "models", "parts", "presets", "recoveries", "strategies", "workloads"}

// checkCounts returns a usage error for a count that is far too large, or an empty list.
func checkCounts(f *pflag.FlagSet) (err error) {
	f.Visit(func(flag *pflag.Flag) {
		n, bad := strconv.Atoi(flag.Value.String())
		switch most, ok := counted[flag.Name]; {
		case ok && bad == nil && n > most:
			err = fmt.Errorf("%w: --%s %d: at most %d", kintsugi.ErrUsage, flag.Name, n, most)
		case slices.Contains(listed, flag.Name) && flag.Value.String() == "[]":
			err = fmt.Errorf("%w: --%s names none", kintsugi.ErrUsage, flag.Name)
		}
	})
	return err
}
