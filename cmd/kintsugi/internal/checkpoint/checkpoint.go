package checkpoint

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// Command returns the command that looks at checkpoints, and makes others of them.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "checkpoint", Short: "List, verify, show, evaluate, export, restore or repair the checkpoints of a run", Args: cli.NoArgs, Example: "  kintsugi checkpoint verify runs/mnist",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "list PATH", Short: "List the full checkpoints of a run, newest first", Args: cli.OneArg("run folder, checkpoint folder, or place as in --store"),
		Example: "  kintsugi checkpoint list runs/mnist",
		RunE:    func(cmd *cobra.Command, args []string) error { return listCheckpoints(cmd, args[0]) },
	}, &cobra.Command{
		Use: "verify PATH", Short: "Read every byte of every checkpoint and compare it with its checksum", Args: cli.OneArg("run folder, checkpoint folder, or place as in --store"),
		Example: "  kintsugi checkpoint verify runs/mnist",
		RunE:    func(cmd *cobra.Command, args []string) error { return verifyCheckpoints(cmd, args[0]) },
	}, showCommand(), evaluateCommand(), exportCommand(), restoreCommand(), repairCommand())
	cmd.PersistentFlags().String(job.TLSFlag, "", "folder with the credentials of an operator, for checkpoints in the memory of another process (default: as the run has)")
	return cmd
}

// checkpointsOf opens the checkpoints that a command is about.
func checkpointsOf(cmd *cobra.Command, path string) (job.Place, error) {
	certs, err := cmd.Flags().GetString(job.TLSFlag)
	if err != nil {
		return job.Place{}, err
	}
	return train.OpenCheckpoints(cmd.Context(), path, certs)
}

func verifyCheckpoints(cmd *cobra.Command, path string) error {
	at, err := checkpointsOf(cmd, path)
	if err != nil {
		return err
	}
	report, err := ckpt.Verify(cmd.Context(), at.FS, at.Dir, nil)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	for _, c := range report.Checkpoints {
		state := "whole"
		if len(c.Damage) > 0 {
			state = "damaged"
		}
		fmt.Fprintf(w, "%s: %s\n", c.Name, state)
	}
	for _, d := range report.Damage {
		fmt.Fprintln(w, d)
	}
	fmt.Fprintf(w, "%d checkpoints, %d files, %d bytes read, %d damaged places\n", len(report.Checkpoints), report.Files, report.Bytes, len(report.Damage))
	if len(report.Damage) > 0 {
		return fmt.Errorf("%s: %w", at.Name, errors.Join(kintsugi.ErrCorrupt, report.Damage[0]))
	}
	if len(report.Checkpoints) == 0 { // nothing is damaged, but nothing can be restored either
		return fmt.Errorf("%s: %w", at.Name, ckpt.ErrNoCheckpoint)
	}
	return nil
}
