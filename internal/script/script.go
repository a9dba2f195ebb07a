// Package script runs tests that read as a story: commands, and below a line of dashes what they print.
//
//	# A server dies. Nobody else can hold its shard, so the view waits.
//	leave server/0
//	decide
//	----
//	server/0 is away: view 1 waits for it
//
// A block ends at an empty line. Lines that start with '#' before a command are for the reader. Run with update
// set rewrites the output in the file and leaves everything else as it is, so a change of behaviour is a diff
// of stories.
package script

import (
	"os"
	"strings"
	"testing"
)

const rule = "----"

// Run executes the commands in the file at path, in order. It compares the output of do for the
// commands of each block with the block's output; an empty string is no output. With update it
// writes the output to the file instead.
func Run(t testing.TB, path string, update bool, do func(command string) string) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(string(file), "\n"), "\n")
	for i := 0; i < len(lines); {
		begin := i
		var printed []string
		for ; i < len(lines) && lines[i] != rule; i++ {
			out.WriteString(lines[i] + "\n")
			command := strings.TrimSpace(lines[i])
			if command == "" || strings.HasPrefix(command, "#") {
				continue
			}
			if s := strings.TrimRight(do(command), "\n"); s != "" {
				printed = append(printed, strings.Split(s, "\n")...)
			}
		}
		if i == len(lines) {
			if len(printed) > 0 {
				t.Fatalf("%s:%d: the last block prints\n%s\nbut has no line %q", path, begin+1, strings.Join(printed, "\n"), rule)
			}
			break
		}
		i++ // the rule
		want := i
		for i < len(lines) && lines[i] != "" {
			i++
		}
		if got, want := strings.Join(printed, "\n"), strings.Join(lines[want:i], "\n"); got != want && !update {
			t.Errorf("%s:%d: got\n%s\nwant\n%s\n(if this is the better story: go test -update)", path, begin+1, got, want)
		}
		out.WriteString(rule + "\n")
		for _, l := range printed {
			out.WriteString(l + "\n")
		}
	}
	if update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
