package cli

import "al.essio.dev/pkg/shellescape"

// Words returns arguments as a shell takes them, so that a command that is printed can be pasted:
// those with a blank or another character that a shell reads are quoted.
func Words(args ...string) string { return shellescape.QuoteCommand(args) }
