package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
)

// NoArgs refuses arguments other than flags.
func NoArgs(cmd *cobra.Command, args []string) error {
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

// OneArg requires exactly one argument, which messages call what.
func OneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%w: %s takes one %s, not %d arguments; see %s --help", kintsugi.ErrUsage, cmd.CommandPath(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}

// BadFlag returns the usage error for a flag with an invalid value, in plain words: the errors of
// the standard library name its functions. name is the flag as the user wrote it; "" means the
// flag's own name.
func BadFlag(err error, name string) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return fmt.Errorf("%w: %w", kintsugi.ErrUsage, err)
	}
	f, wants := invalid.GetFlag(), ""
	if name == "" {
		name = "--" + f.Name
	}
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%w: %s %q: it is too large", kintsugi.ErrUsage, name, invalid.GetValue())
	}
	switch f.Value.Type() {
	case "int", "int64":
		wants = "a whole number"
	case "uint", "uint64":
		wants = "a whole number that is not negative"
	case "float64":
		wants = "a number"
	case "duration":
		wants = "a time with its unit, such as 500ms, 30s or 5m"
	default:
		return fmt.Errorf("%w: %s %q: %w", kintsugi.ErrUsage, name, invalid.GetValue(), invalid.Unwrap())
	}
	return fmt.Errorf("%w: %s %q: it must be %s", kintsugi.ErrUsage, name, invalid.GetValue(), wants)
}
