package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi/internal/launch/report"
)

func reportCommand() *cobra.Command {
	return &cobra.Command{
		Use: "report DIR", Short: "Draw the report of a run anew from its events", Args: oneArg("run folder"),
		Example: "  kintsugi report runs/mnist",
		RunE: func(cmd *cobra.Command, args []string) error {
			page, err := report.Draw(args[0])
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), page)
			}
			return err
		},
	}
}
