package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/train"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// Readers type what is on the pages. This test finds commands there that do not parse, or have
// settings that no run can have.
func TestTheCommandsInThePagesParse(t *testing.T) {
	blocks, spans := 0, 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if command, ok := inBlock(line); ok {
				blocks++
				if err := parses(command, true); err != nil {
					t.Errorf("%s:%d: %q: %v", page, i+1, command, err)
				}
				continue
			}
			for _, command := range inSpans(line) {
				spans++
				if err := parses(command, false); err != nil {
					t.Errorf("%s:%d: %q: %v", page, i+1, command, err)
				}
			}
		}
	}
	if blocks < 50 || spans < 20 {
		t.Errorf("%d commands in blocks and %d in sentences were found: they are written in another way now", blocks, spans)
	}
}

// The test above finds commands and flags that do not exist, missing and superfluous arguments, and
// settings that are refused, also after --.
func TestACommandOfAPageThatIsWrongIsFound(t *testing.T) {
	for line, good := range map[string]bool{
		`    bin/kintsugi train --steps 10 --fault "kill server/0 at step 5"   # a comment`: true,
		`    kintsugi bench kills --kills 2 -- --codec int8`:                                true,
		`    kintsugi trian`:                                  false,
		`    kintsugi bench kill --kills 2`:                   false,
		`    kintsugi train --step 10`:                        false,
		`    kintsugi train --steps ten`:                      false,
		`    kintsugi train --workers 0`:                      false,
		`    kintsugi train --fault "kill server/0 some day"`: false,
		`    kintsugi bench kills -- --codec int9`:            false,
		`    kintsugi rerun`:                                  false,
		`    kintsugi checkpoint list a b`:                    false,
	} {
		command, ok := inBlock(line)
		if !ok {
			t.Errorf("%q is not taken for a command", line)
		} else if err := parses(command, true); (err == nil) != good {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// pages returns the pages with commands to type.
func pages(t *testing.T) (list []string) {
	t.Helper()
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/decisions/*.md", "../../bench/results/*.md"} {
		some, err := filepath.Glob(pattern)
		if err != nil || len(some) == 0 {
			t.Fatalf("%s: no pages: %v", pattern, err)
		}
		list = append(list, some...)
	}
	return list
}

var (
	blockLine = regexp.MustCompile(`^    (?:bin/)?kintsugi (\S.*)$`)
	comment   = regexp.MustCompile(`\s#\s.*$`)
	codeSpan  = regexp.MustCompile("`(?:bin/)?kintsugi ([a-z][^`]*)`")
	moreFlags = regexp.MustCompile(`( [^-\s]\S*) …$`) // except for the value of a flag
)

// inBlock returns the command in a line of an indented block, without the program's name.
func inBlock(line string) (command string, ok bool) {
	m := blockLine.FindStringSubmatch(comment.ReplaceAllString(line, ""))
	if m == nil {
		return "", false
	}
	return m[1], true
}

// inSpans returns the commands within a sentence, without the program's name and without the dots
// that stand for more flags.
func inSpans(line string) (commands []string) {
	for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
		commands = append(commands, moreFlags.ReplaceAllString(m[1], "$1"))
	}
	return commands
}

// parses returns what is wrong with a command. If it is not whole, its arguments may be missing.
func parses(command string, whole bool) error {
	args, ok := words(command)
	if !ok {
		return errors.New("a quote is not closed")
	}
	found, rest, err := newRoot(io.Discard, io.Discard).Find(args)
	if err != nil {
		return err
	}
	found.InitDefaultHelpFlag()
	f := found.Flags()
	if err := found.ParseFlags(rest); err != nil || f.Changed("help") {
		return err
	}
	if g := f.Lookup("consistency"); g != nil && found.CommandPath() == "kintsugi simulate" { // train checks its own flags below
		if _, err := agg.Preset(g.Value.String()); err != nil {
			return err
		}
	}
	if whole || f.NArg() > 0 {
		if err := found.ValidateArgs(f.Args()); err != nil {
			return err
		}
	}
	switch at := f.ArgsLenAtDash(); {
	case found.CommandPath() == "kintsugi train":
		return trainParses(rest)
	case at >= 0:
		var flags []string
		for _, name := range []string{"recovery", "servers", "workers"} { // the command's own flags, which it passes to train
			if g := f.Lookup(name); g != nil {
				flags = append(flags, "--"+name, g.Value.String())
			}
		}
		return trainParses(append(flags, f.Args()[at:]...))
	}
	return nil
}

// trainParses returns what is wrong with flags of train, as if this machine had the devices that
// they ask for.
func trainParses(flags []string) error {
	t := &train.Training{}
	f := job.NewFlagSet("train")
	t.Register(f)
	if err := f.Parse(flags); err != nil {
		return err
	}
	if _, err := job.ParseDevice(t.Device); err != nil {
		return err
	}
	if _, err := job.ParseServerDevice(t.ServerDevice); err != nil {
		return err
	}
	t.Device, t.ServerDevice = "auto", "cpu"
	_, err := t.Checked()
	return err
}
