package script

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const story = `# A story of two blocks.
say hello
say world
----
hello
world

# Silence is an output, too.
nothing
----

say bye
----
bye
`

func play(command string) string {
	said, _ := strings.CutPrefix(command, "say ")
	if said == command {
		return ""
	}
	return said + "\n"
}

func write(t *testing.T, s string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "story.txt")
	if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// listener is a testing.TB that remembers what is reported to it.
type listener struct {
	testing.TB
	heard []string
}

func (l *listener) Errorf(format string, args ...any) {
	l.heard = append(l.heard, fmt.Sprintf(format, args...))
}

func TestAStoryThatComesTruePasses(t *testing.T) { Run(t, write(t, story), false, play) }

func TestAStoryThatDoesNotComeTrueFails(t *testing.T) {
	l := &listener{TB: t}
	Run(l, write(t, strings.Replace(story, "\nbye\n", "\ngood-bye\n", 1)), false, play)
	if len(l.heard) != 1 || !strings.Contains(l.heard[0], "story.txt:") {
		t.Errorf("heard %q", l.heard)
	}
}

func TestUpdateRewritesTheOutputsAndNothingElse(t *testing.T) {
	path := write(t, strings.NewReplacer("\nhello\nworld\n", "\nwrong\n", "\nbye\n", "\nwrong\nwrong\n").Replace(story))
	Run(t, path, true, play)
	got, err := os.ReadFile(path)
	if err != nil || string(got) != story {
		t.Errorf("%v: got\n%s\nwant\n%s", err, got, story)
	}
}
