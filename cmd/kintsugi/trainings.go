package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// endsTrainings returns a command that starts trainings, so changed that a signal ends those before
// it ends the command: they lead process groups of their own, and nobody else tells them. The
// status is that of a process which the signal has ended. The second signal does not wait.
func endsTrainings(cmd *cobra.Command) *cobra.Command {
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
				end := errInterrupted
				if s == syscall.SIGTERM {
					end = errTerminated
				}
				cancel(end)
			}
		}()
		cmd.SetContext(ctx)
		err := run(cmd, args)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx) // that runs were ended is no news
		}
		return err
	}
	return cmd
}
