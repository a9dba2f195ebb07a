// Command kintsugi trains machine-learning models on a parameter server that survives failures.
//
// See README.md for what it does, and "kintsugi COMMAND --help" for an example of each command.
package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// Exit statuses.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFinite   = 65 // of a worker: its gradient holds NaN or Inf, and will again
	exitProgram     = 70 // of a worker: its program failed, and will probably fail again
	exitPreempted   = 75 // after a notice: restart this process
	exitConfig      = 78 // of roles, instead of 2: a restart does not help, and 2 is also the status of a crash in Go's runtime
	exitInterrupted = 130
	exitTerminated  = 143 // of commands that start trainings; a training that gets SIGTERM ends with exitPreempted
)

// errInterrupted and errPreempted end a run that was stopped by a signal, after its last
// checkpoint. errLeft ends a process of a run that has had notice. errInterrupted and errTerminated
// end a command that starts runs, after these runs.
var (
	errInterrupted = errors.New("interrupted")
	errTerminated  = errors.New("terminated")
	errPreempted   = errors.New("preempted: start it again with --resume")
	errLeft        = errors.New("left after a notice: start it again")
)

// again is an error that the next life of a worker will probably meet again.
type again struct {
	error
	status int
}

// Unwrap returns the error.
func (a again) Unwrap() error { return a.error }

// meetsAgain marks the error that ends a worker, if the next life will probably meet it again.
func meetsAgain(err error) error {
	switch {
	case errors.Is(err, kintsugi.ErrNotFinite):
		return again{err, exitNotFinite}
	case errors.As(err, new(program.Failure)):
		return again{err, exitProgram}
	}
	return err
}

func main() {
	root := newRoot(os.Stdout, os.Stderr)
	cmd, err := root.ExecuteC()
	s := status(err, os.Stderr)
	if s == exitUsage && slices.Contains(roles, cmd.Name()) {
		s = exitConfig
	}
	os.Exit(s)
}

// roles are the commands that are restarted when they end.
var roles = []string{"coordinator", "server", "worker", "monitor", "etcd", "memory"}

// status reports err to the user and returns the exit status.
func status(err error, stderr io.Writer) int {
	var repeats again
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errInterrupted):
		if err != errInterrupted { // otherwise there is nothing to add
			fmt.Fprintln(stderr, "kintsugi:", err)
		}
		return exitInterrupted
	case errors.Is(err, errTerminated):
		return exitTerminated
	case errors.Is(err, errPreempted), errors.Is(err, errLeft):
		fmt.Fprintln(stderr, "kintsugi:", err)
		return exitPreempted
	case errors.Is(err, kintsugi.ErrUsage):
		// The exit status already says that it is a usage error, so leave that out of the text.
		text := strings.TrimSuffix(strings.ReplaceAll(err.Error(), kintsugi.ErrUsage.Error()+": ", ""), ": "+kintsugi.ErrUsage.Error())
		fmt.Fprintln(stderr, "kintsugi:", text)
		return exitUsage
	case errors.As(err, &repeats):
		fmt.Fprintln(stderr, "kintsugi:", err)
		return repeats.status
	default:
		fmt.Fprintln(stderr, "kintsugi:", err)
		return exitFailed
	}
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "kintsugi",
		Short:         "Train models on a parameter server that survives failures",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version().String(),
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; %ssee %s --help", badFlag(err, ""), nearFlags(cmd, err), cmd.CommandPath())
	})
	root.SetUsageFunc(usage)
	root.SetHelpFunc(help)
	root.SetVersionTemplate("{{.Version}}\n")
	group := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("train", "Train on this machine", trainCommand(), rerunCommand(), tuneCommand(), programCommand(), dataCommand())
	group("look", "Look at runs", reportCommand(), costCommand(), checkpointCommand())
	group("hosts", "Train on several hosts, process by process", coordinatorCommand(), serverCommand(), workerCommand(), monitorCommand(), statusCommand(), stopCommand(), etcdCommand(), memoryCommand(), certsCommand())
	group("measure", "Measure and repeat experiments", benchCommand(), reproduceCommand(), simulateCommand())
	group("other", "And", versionCommand())
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	return root
}

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

// newLog returns the log of a process on w: text for people at a terminal, JSON for programs. A
// process should survive the reader of its log: tee gets the same Ctrl-C, and log collectors are
// restarted. Go's default would end the process at the next line.
func newLog(w io.Writer, level string, text bool) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("%w: --log-level %q: use debug, info, warn or error", kintsugi.ErrUsage, level)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // notified and not ignored, since child processes would inherit that
	opts := &slog.HandlerOptions{Level: l}
	if text {
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return slog.New(slog.NewJSONHandler(w, opts)), nil
}

// onTerminal reports whether standard error is a terminal.
func onTerminal() bool { return term.IsTerminal(int(os.Stderr.Fd())) }
