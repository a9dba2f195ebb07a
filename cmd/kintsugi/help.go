package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// topic is a heading in a command's help and its flags, in an order that suits beginners.
type topic struct {
	title string
	flags []string
}

// topics group the flags of the commands that have all settings of a run. A list of fifty flags in
// alphabetical order is hard to read.
var topics = []topic{
	{"What is trained", []string{"model", "data", "data-dir", "input", "program", "described"}},
	{"How it learns", []string{"steps", "batch", "optimizer", "learning-rate", "rate", "warmup", "decay", "momentum", "betas", "epsilon", "weight-decay", "weight-decay-for", "clip-norm", "local-steps", "outer", "seed", "eval-every", "until", "patience", "keep-best"}},
	{"Who takes part", []string{"workers", "servers", "replicas", "consistency"}},
	{"What survives a death", []string{"recovery", "checkpoint-every", "checkpoint-keep", "store", "move-after", "hang-after", "outage", "kept", "notice", "notice-endpoint", "warning", "outside"}},
	{"What travels, and how", []string{"codec", "pull", "wire", "window", "tls"}},
	{"What computes", []string{"device", "server-device", "threads", "blas", "blas-threads", "kernels", "engine"}},
	{"This process", []string{"run", "index", "listen", "end-with-run", "control"}},
	{"The run", []string{"out", "resume", "config", "fault", "etcd", "etcd-wait", "metrics", "tensorboard", "price", "store-limit", "gradient-time", "log-level", "help"}},
}

// fewFlags is the number of flags up to which no headings are needed.
const fewFlags = 24

// help writes what a command does, wrapped to the width of the terminal, and its usage.
func help(cmd *cobra.Command, _ []string) {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s\n\n", wrapped(cmp.Or(cmd.Long, cmd.Short), helpColumns(w)))
	if err := usage(cmd); err != nil {
		cmd.PrintErrln(err)
	}
}

// wrapped wraps the paragraphs of a text to the given number of columns, except for longer words.
// Lines that begin with a space stay unchanged.
func wrapped(text string, columns int) string {
	var lines []string
	open := false // the last line may get more words
	for line := range strings.Lines(strings.TrimRight(text, " \n")) {
		line = strings.TrimRight(line, "\n")
		if line == "" || line[0] == ' ' {
			lines, open = append(lines, line), false
			continue
		}
		for _, word := range strings.Fields(line) {
			last := len(lines) - 1
			if open && utf8.RuneCountInString(lines[last])+1+utf8.RuneCountInString(word) <= columns {
				lines[last] += " " + word
				continue
			}
			lines, open = append(lines, word), true
		}
	}
	return strings.Join(lines, "\n")
}

// usage writes the usage of a command as cobra does, but wrapped to the width of the terminal, and
// with headings in long lists.
func usage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprintln(w, "Usage:")
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n", cmd.CommandPath())
	} else {
		fmt.Fprintf(w, "  %s\n", cmd.UseLine())
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		subcommands(w, cmd)
	}
	columns := helpColumns(w)
	if flags := cmd.LocalFlags(); flags.HasAvailableFlags() {
		writeFlags(w, flags, columns)
	}
	if flags := cmd.InheritedFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(w, "\nFlags of all commands of %s:\n%s", cmd.Parent().CommandPath(), flags.FlagUsagesWrapped(columns))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n%s COMMAND --help says more about a command.\n", cmd.CommandPath())
	}
	return nil
}

// subcommands lists the commands below cmd, each group below its title.
func subcommands(w io.Writer, cmd *cobra.Command) {
	groups := cmd.Groups()
	if len(groups) == 0 {
		groups = []*cobra.Group{{Title: "Commands"}}
	}
	for _, g := range groups {
		fmt.Fprintf(w, "\n%s:\n", g.Title)
		for _, sub := range cmd.Commands() {
			if sub.GroupID == g.ID && (sub.IsAvailableCommand() || sub.Name() == "help") {
				fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
}

// writeFlags writes the flags, wrapped to the given number of columns: by name, or by topic if
// there are many.
func writeFlags(w io.Writer, flags *pflag.FlagSet, columns int) {
	texts := map[string]string{}
	var names []string
	name := ""
	for line := range strings.Lines(flags.FlagUsagesWrapped(columns)) {
		if before, after, ok := strings.Cut(line, "--"); ok && len(before) == len("  -h, ") { // further lines of a flag are indented more
			name, _, _ = strings.Cut(strings.TrimSpace(after), " ")
			names = append(names, name)
		}
		texts[name] += line
	}
	if len(names) <= fewFlags {
		fmt.Fprintf(w, "\nFlags:\n%s", flags.FlagUsagesWrapped(columns))
		return
	}
	for _, t := range append(slices.Clip(topics), topic{"Of this command", others(names)}) {
		text := ""
		for _, name := range t.flags {
			text += texts[name]
		}
		if text != "" {
			fmt.Fprintf(w, "\n%s:\n%s", t.title, text)
		}
	}
}

// others returns the names that are in no topic.
func others(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(topics, func(t topic) bool { return slices.Contains(t.flags, name) })
	})
}

// helpColumns returns the width of help on w: that of the terminal, within limits for easy reading.
func helpColumns(w io.Writer) int {
	const normal, least, most = 110, 70, 130
	f, ok := w.(*os.File)
	if !ok {
		return normal
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return normal
	}
	return min(max(columns, least), most)
}

// otherWords are names that other programs have for flags of this one.
var otherWords = map[string][]string{
	"clip-norm": {"max-grad-norm", "clip-grad-norm", "grad-clip"},
	"betas":     {"beta1", "beta2", "adam-betas", "adam-beta1", "adam-beta2"}, "epsilon": {"eps", "adam-epsilon", "adam-eps"},
	"batch": {"batch-size"}, "learning-rate": {"lr"}, "steps": {"iterations", "max-steps"}, "out": {"output", "output-dir"}, "data": {"dataset"},
}

// nearFlags suggests flags of cmd that an unknown flag may have meant.
func nearFlags(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	name := strings.ReplaceAll(unknown.GetSpecifiedName(), "_", "-")
	names := &cobra.Command{SuggestionsMinimumDistance: min(2, len(name)/3)} // cobra compares command names, so flags must look like commands
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, SuggestFor: otherWords[f.Name], Run: func(*cobra.Command, []string) {}})
	})
	near := names.SuggestionsFor(name)
	if len(near) == 0 {
		return ""
	}
	return "did you mean --" + strings.Join(near, " or --") + "? "
}
