package main

import (
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// commands returns every command of the program below the root.
func commands(c *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range c.Commands() {
		all = append(append(all, sub), commands(sub)...)
	}
	return all
}

func TestEveryCommandHasAnExampleAndTheExamplesParse(t *testing.T) {
	for _, c := range commands(newRoot(io.Discard, io.Discard)) {
		path := c.CommandPath()
		if c.Example == "" {
			t.Errorf("%s has no example", path)
		}
		for line := range strings.Lines(c.Example) {
			args, ok := words(strings.TrimSpace(line))
			if !ok || len(args) == 0 || args[0] != "kintsugi" {
				t.Errorf("%s: the example %q is no command line", path, line)
				continue
			}
			found, rest, err := newRoot(io.Discard, io.Discard).Find(args[1:]) // a new root each time, since flags keep their values
			if err != nil || !strings.HasPrefix(found.CommandPath(), path) {
				t.Errorf("%s: the example %q is of %s: %v", path, line, found.CommandPath(), err)
				continue
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%s: the example %q: %v", path, line, err)
			}
			if f := found.Flags().Lookup("consistency"); f != nil {
				if _, err := agg.Preset(f.Value.String()); err != nil {
					t.Errorf("%s: the example %q: %v", path, line, err)
				}
			}
			if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("%s: the example %q: %v", path, line, err)
			}
		}
	}
	for _, args := range []string{"train", "server", "checkpoint verify", "bench train"} {
		if out := must(t, append(strings.Fields(args), "--help")...); !strings.Contains(out, "Examples:\n  kintsugi "+args) {
			t.Errorf("%s --help shows no example:\n%s", args, out)
		}
	}
}

// Each of the dozens of flags is listed under exactly one topic, or under none if only its command
// has it. A topic lists no flag that does not exist.
func TestHelpHasEachFlagOnce(t *testing.T) {
	race.Skip(t)
	known := map[string]bool{}
	for _, c := range commands(newRoot(io.Discard, io.Discard)) {
		help := must(t, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		c.InitDefaultHelpFlag()
		c.Flags().VisitAll(func(f *pflag.Flag) {
			known[f.Name] = true
			if n := len(regexp.MustCompile(`(?m)^ {2,6}(-\w, )?--`+f.Name+`( |$)`).FindAllString(help, -1)); n != 1 && !f.Hidden {
				t.Errorf("%s --help lists --%s %d times; want once", c.CommandPath(), f.Name, n)
			}
		})
	}
	for _, topic := range topics {
		for _, name := range topic.flags {
			if !known[name] {
				t.Errorf("topic %q has --%s, which no command has", topic.title, name)
			}
		}
	}
	help := must(t, "train", "--help")
	if strings.Contains(help, "Of this command") {
		t.Errorf("train has a flag that no topic has:\n%s", help)
	}
	for line := range strings.Lines(help) {
		if n := utf8.RuneCountInString(line); n > 120 {
			t.Errorf("train --help has a line of %d characters: %s", n, line)
		}
	}
}

func TestHelpIsWrappedWhereTheTerminalEnds(t *testing.T) {
	race.Skip(t)
	text := "A first line that is long\nand goes on.\n\n  a table  stays\nAnd ever-so-long-a-word ends.\n"
	want := "A first line\nthat is long\nand goes on.\n\n  a table  stays\nAnd\never-so-long-a-word\nends."
	if got := wrapped(text, 12); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, c := range commands(newRoot(io.Discard, io.Discard)) {
		before, _, _ := strings.Cut(must(t, append(strings.Fields(c.CommandPath())[1:], "--help")...), "\nUsage:")
		for line := range strings.Lines(before) {
			if n := utf8.RuneCountInString(line); n > 111 && line[0] != ' ' { // 110 characters and the newline
				t.Errorf("%s --help has a line of %d characters: %s", c.CommandPath(), n, line)
			}
		}
	}
}

// words splits a line as a shell does, as far as double quotes are concerned.
func words(line string) (args []string, ok bool) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 0 {
			args = append(args, strings.Fields(part)...)
		} else {
			args = append(args, part)
		}
	}
	return args, strings.Count(line, `"`)%2 == 0
}

func TestVersionSaysWhatThisIs(t *testing.T) {
	out := must(t, "version")
	for _, want := range []string{
		`(?m)^kintsugi \S+, commit \S+, go\S+ linux/`, `(?m)^protocol \d+, checkpoint format \d+$`, `(?m)^blas: \S+`, `(?m)^kernels: \S+ \(of \[host`, `(?m)^gpu: \S+`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("version says\n%s\nwant a line like %s", out, want)
		}
	}
}

func TestCompletionIsAScriptThatKnowsTheFlags(t *testing.T) {
	script := must(t, "completion", "bash")
	if bash, err := exec.LookPath("bash"); err == nil {
		cmd := exec.Command(bash, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("bash does not take the script: %v\n%s", err, out)
		}
	}
	if !strings.Contains(script, "kintsugi") {
		t.Errorf("the script does not name the program:\n%s", script)
	}
	for want, args := range map[string][]string{
		"train":         {"tr"},
		"--consistency": {"train", "--consis"},
		"verify":        {"checkpoint", "ver"},
	} {
		if out := must(t, append([]string{"__complete"}, args...)...); !strings.HasPrefix(out, want) {
			t.Errorf("%q completes to %q; want %s", args, out, want)
		}
	}
}
