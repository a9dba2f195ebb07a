package measure

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/machine"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
)

func benchCheckpointCommand() *cobra.Command {
	cfg, sizes, format, store, check := machine.CheckpointConfig{}, []int(nil), "", "", false
	cmd := &cobra.Command{
		Use: "checkpoint", Short: "Compare saving and restoring a shard with the disk, or with a store", Args: cli.NoArgs,
		Example: "  kintsugi bench checkpoint\n  kintsugi bench checkpoint --dir /mnt/shared --sizes 1024 --rounds 20 --format json\n  kintsugi bench checkpoint --store s3://bucket/prefix --sizes 64 --rounds 5",
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
			var rows []bench.Row
			var err error
			switch {
			case store == "":
				rows, err = machine.Checkpoint(cmd.Context(), cfg)
			case check || cfg.Dir != "":
				return fmt.Errorf("%w: --check and --dir are for disks, and a --store is none", kintsugi.ErrUsage)
			default:
				rows, err = inStore(cmd.Context(), store, cfg)
			}
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
	f.StringVar(&store, "store", "", "object store, or memory of another host, to measure instead of a disk, as in train --store")
	f.IntSliceVar(&sizes, "sizes", []int{64, 512}, "MiB of a shard: parameters and momentum")
	f.IntVar(&cfg.Rounds, "rounds", 15, "interleaved rounds")
	f.BoolVar(&check, "check", false, "fail if a goal is missed by more than a fifth; see docs/performance.md")
	f.StringVar(&format, "format", "text", "text, json or benchfmt")
	return cmd
}

// inStore measures a store, after it has been tried whether a run could use it. An interrupt ends
// that, and what was written is removed nevertheless. A second one ends the process at once.
func inStore(ctx context.Context, store string, cfg machine.CheckpointConfig) ([]bench.Row, error) {
	at, err := job.OpenPlace(ctx, store, nil)
	if err != nil {
		return nil, err
	}
	in, ok := at.FS.(machine.Published)
	if !ok {
		return nil, fmt.Errorf("%w: --store %s is a folder: use --dir", kintsugi.ErrUsage, store)
	}
	if err := at.Probe(); err != nil {
		return nil, err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM) // and not that of the store's requests
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	return machine.Store(ctx, in, at.Dir, cfg)
}
