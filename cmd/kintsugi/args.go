package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
)

// noArgs refuses arguments other than flags.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.HasSubCommands() {
		hint := ""
		cmd.SuggestionsMinimumDistance = 2 // in letters; this is cobra's default, which its exported method does not apply
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf("did you mean %s? ", strings.Join(near, " or "))
		}
		return fmt.Errorf("%w: there is no command %q; %ssee %s --help", kintsugi.ErrUsage, cmd.CommandPath()+" "+args[0], hint, cmd.CommandPath())
	}
	if len(args) > 0 {
		return fmt.Errorf("%w: unexpected argument %q; see %s --help", kintsugi.ErrUsage, args[0], cmd.CommandPath())
	}
	return nil
}

// oneArg requires exactly one argument, which messages call what.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%w: %s takes one %s, not %d arguments; see %s --help", kintsugi.ErrUsage, cmd.CommandPath(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}
