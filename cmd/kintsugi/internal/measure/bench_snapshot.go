package measure

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi/bench/machine"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
)

func benchSnapshotCommand() *cobra.Command {
	cfg, mib, limit, format, check := machine.SnapshotConfig{}, 0, 0.0, "", false
	cmd := &cobra.Command{
		Use: "snapshot", Short: "Measure what steps lose to a snapshot that is written meanwhile", Args: cli.NoArgs,
		Example: "  kintsugi bench snapshot\n  kintsugi bench snapshot --state 256 --limit 100 --format json\n  kintsugi bench snapshot --dir /mnt/shared --check",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			cfg.State, cfg.Limit, cfg.Progress = mib<<20, limit*1e6, cmd.ErrOrStderr()
			if err := cfg.Check(); err != nil {
				return err
			}
			rows, err := machine.Snapshots(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := printRows(cmd.OutOrStdout(), format, rows, snapshotTable, snapshotLine); err != nil || !check {
				return err
			}
			return machine.CheckSnapshots(rows)
		},
	}
	f := cmd.Flags()
	f.IntVar(&mib, "state", 1024, "MiB of parameters and optimizer state")
	f.IntVar(&cfg.Workers, "workers", 1, "workers, which compute nothing")
	f.IntVar(&cfg.Steps, "steps", 200, "steps that are to fall into saves")
	f.IntVar(&cfg.Block, "block", 10, "steps without saves, beside copies and with saves in turn")
	f.StringVar(&cfg.Dir, "dir", "", "folder on the disk that takes the saves (default: that of temporary files)")
	f.Float64Var(&limit, "limit", 0, "MB a second that the store takes; 0: as it is")
	f.BoolVar(&check, "check", false, "fail if a goal is missed by more than a fifth; see docs/performance.md")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

const snapshotTable = "WRITTEN MEANWHILE\tSTEPS\tSTEP p50\tp99\tMAX\tSTEPS/s\tOF WITHOUT\tWAITED p99\tMAX\tSAVES\tSAVE p50\tA COPY WOULD TAKE"

// snapshotLine formats a row of bench snapshot.
func snapshotLine(r machine.SnapshotRow) (text, benchfmt string) {
	text = fmt.Sprintf("%s\t%d\t%.1f ms\t%.1f ms\t%.1f ms\t%.2f\t%.3f\t%.3f ms\t%.3f ms\t%d\t%.2f s\t%.2f of a step", r.Name, r.Steps, 1e3*r.Seconds, 1e3*r.P99,
		1e3*r.Longest, r.StepsPerSec, r.Ratio, 1e3*r.WaitedP99, 1e3*r.WaitedMax, r.Saves, r.Took, r.CopyShare)
	benchfmt = fmt.Sprintf("BenchmarkSnapshot/way=%s/mib=%d 1 %.0f ns/op %.0f p99-ns %.0f wait-p99-ns", r.Name, r.StateBytes>>20, r.Seconds*1e9, r.P99*1e9, r.WaitedP99*1e9)
	return text, benchfmt
}
