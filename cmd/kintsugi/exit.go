package main

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
