package cli_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
)

func TestWordsAreThoseOfAShell(t *testing.T) {
	args := []string{"runs/mnist", "a b", "", "it's", "$HOME", "~/x", "*", "a\nb", `c\d`, `"q"`, "`ls`", "x;y", "{a,b}", "head.*=10", "!1", "#"}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh here, which the words are for")
	}
	out, err := exec.CommandContext(t.Context(), shell, "-c", `printf '%s\0' `+cli.Words(args...)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, args) {
		t.Errorf("a shell reads %q, want %q", got, args)
	}
	if got := cli.Words("train", "--resume", "/tmp/runs/a-b_1.2"); got != "train --resume /tmp/runs/a-b_1.2" {
		t.Errorf("what needs no quotes is %s", got)
	}
}
