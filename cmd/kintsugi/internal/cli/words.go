package cli

import "strings"

// Words returns arguments as a shell takes them, so that a command that is printed can be pasted:
// those with a blank or another character that a shell reads are quoted.
func Words(args ...string) string {
	words := make([]string, len(args))
	for i, w := range args {
		if w == "" || strings.ContainsAny(w, " \t\n*?[]{}'\"`\\$&|;<>()#~!") {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		words[i] = w
	}
	return strings.Join(words, " ")
}
