package measure

import (
	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi/bench/machine"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
)

func benchCheckpointCommand() *cobra.Command {
	cfg, sizes, format, check := machine.CheckpointConfig{}, []int(nil), "", false
	cmd := &cobra.Command{
		Use: "checkpoint", Short: "Compare saving and restoring a shard with the disk", Args: cli.NoArgs,
		Example: "  kintsugi bench checkpoint\n  kintsugi bench checkpoint --dir /mnt/shared --sizes 1024 --rounds 20 --format json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			cfg.Sizes, cfg.Progress = nil, cmd.ErrOrStderr()
			for _, mib := range sizes {
				cfg.Sizes = append(cfg.Sizes, mib<<20)
			}
			if err := cfg.Check(); err != nil {
				return err
			}
			rows, err := machine.Checkpoint(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := printRows(cmd.OutOrStdout(), format, rows, measuredTable, measuredLine); err != nil || !check {
				return err
			}
			return machine.CheckCheckpoint(rows)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Dir, "dir", "", "folder on the disk to measure (default: that of temporary files)")
	f.IntSliceVar(&sizes, "sizes", []int{64, 512}, "MiB of a shard: parameters and momentum")
	f.IntVar(&cfg.Rounds, "rounds", 15, "interleaved rounds")
	f.BoolVar(&check, "check", false, "fail if a goal is missed by more than a fifth; see docs/performance.md")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}
