package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// Exit statuses.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	exitNotFinite   = 65 // of a worker: its gradient holds NaN or Inf, and will again
	exitProgram     = 70 // of a worker: its program failed, and will probably fail again
	ExitPreempted   = 75 // after a notice: restart this process
	ExitConfig      = 78 // of roles, instead of 2: a restart does not help, and 2 is also the status of a crash in Go's runtime
	ExitInterrupted = 130
	ExitTerminated  = 143 // of commands that start trainings; a training that gets SIGTERM ends with ExitPreempted
)

// ErrInterrupted and ErrPreempted end a run that was stopped by a signal, after its last
// checkpoint. ErrLeft ends a process of a run that has had notice. ErrInterrupted and ErrTerminated
// end a command that starts runs, after these runs.
var (
	ErrInterrupted = errors.New("interrupted")
	ErrTerminated  = errors.New("terminated")
	ErrPreempted   = errors.New("preempted: start it again with --resume")
	ErrLeft        = errors.New("left after a notice: start it again")
)

// again is an error that the next life of a worker will probably meet again.
type again struct {
	error
	status int
}

// Unwrap returns the error.
func (a again) Unwrap() error { return a.error }

// MeetsAgain marks the error that ends a worker, if the next life will probably meet it again.
func MeetsAgain(err error) error {
	switch {
	case errors.Is(err, kintsugi.ErrNotFinite):
		return again{err, exitNotFinite}
	case errors.As(err, new(program.Failure)):
		return again{err, exitProgram}
	}
	return err
}

// Status reports err to the user and returns the exit status.
func Status(err error, stderr io.Writer) int {
	var repeats again
	switch {
	case err == nil:
		return ExitDone
	case errors.Is(err, ErrInterrupted):
		if err != ErrInterrupted { // otherwise there is nothing to add
			fmt.Fprintln(stderr, "kintsugi:", err)
		}
		return ExitInterrupted
	case errors.Is(err, ErrTerminated):
		return ExitTerminated
	case errors.Is(err, ErrPreempted), errors.Is(err, ErrLeft):
		fmt.Fprintln(stderr, "kintsugi:", err)
		return ExitPreempted
	case errors.Is(err, kintsugi.ErrUsage):
		// The exit status already says that it is a usage error, so leave that out of the text.
		text := strings.TrimSuffix(strings.ReplaceAll(err.Error(), kintsugi.ErrUsage.Error()+": ", ""), ": "+kintsugi.ErrUsage.Error())
		fmt.Fprintln(stderr, "kintsugi:", text)
		return ExitUsage
	case errors.As(err, &repeats):
		fmt.Fprintln(stderr, "kintsugi:", err)
		return repeats.status
	default:
		fmt.Fprintln(stderr, "kintsugi:", err)
		return ExitFailed
	}
}
