package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/kintsugi-ml/kintsugi"
)

// NewLog returns the log of a process on w: text for people at a terminal, JSON for programs. A
// process should survive the reader of its log: tee gets the same Ctrl-C, and log collectors are
// restarted. Go's default would end the process at the next line.
func NewLog(w io.Writer, level string, text bool) (*slog.Logger, error) {
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

// OnTerminal reports whether standard error is a terminal.
func OnTerminal() bool { return term.IsTerminal(int(os.Stderr.Fd())) }
