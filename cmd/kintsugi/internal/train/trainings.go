package train

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
)

// EndsTrainings changes a command that starts trainings, so that a signal ends the trainings before
// the command. They lead their own process groups, so nobody else tells them. The exit status is
// that of a process ended by the signal. A second signal ends the command at once.
func EndsTrainings(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithCancelCause(cmd.Context())
		defer cancel(nil)
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		go func() {
			defer signal.Stop(signals)
			select {
			case <-ctx.Done():
			case s := <-signals:
				fmt.Fprintf(cmd.ErrOrStderr(), "%v: ending the runs that are under way; once more does not wait for them\n", s)
				end := cli.ErrInterrupted
				if s == syscall.SIGTERM {
					end = cli.ErrTerminated
				}
				cancel(end)
			}
		}()
		cmd.SetContext(ctx)
		err := run(cmd, args)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx) // the errors of the ended runs add nothing
		}
		return err
	}
	return cmd
}
