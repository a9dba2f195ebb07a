// Package process runs kintsugi as child processes: trainings, and what disturbs them.
package process

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
)

// Child is a kintsugi process that this process has started and must wait for.
//
// It leads a process group of its own, so that Ctrl-C on a terminal reaches only this process,
// which then ends its children in order. The child also gets a signal when this process is killed.
// Linux sends that signal when the thread that started the child ends, so one goroutine is locked
// to its thread while the child lives.
type Child struct {
	Cmd     *exec.Cmd
	Printed bytes.Buffer  // its output, to be read after it has ended
	Ended   chan struct{} // closed when it has ended and was waited for
	err     error         // the error of exec.Cmd.Wait; to be read after ended is closed
}

// How long a child may take to end after the first and after the second request. After the first, a
// training saves a last checkpoint; after the second it only ends its processes, which takes at
// most 15 s.
const (
	endPatience = 10 * time.Second
	endLimit    = 20 * time.Second
)

// Start starts a kintsugi process with the given arguments.
func Start(binary string, args ...string) (*Child, error) {
	c := &Child{Cmd: exec.Command(binary, args...), Ended: make(chan struct{})}
	c.Cmd.Stdout, c.Cmd.Stderr = &c.Printed, &c.Printed
	c.Cmd.SysProcAttr = launch.Group(syscall.SIGTERM)
	c.Cmd.WaitDelay = time.Second // to collect its output, if another process holds it open
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := c.Cmd.Start()
		started <- err
		if err == nil {
			c.err = c.refusal(c.Cmd.Wait())
		}
		close(c.Ended)
	}()
	return c, <-started
}

// Refused is the error of a child that has refused its flags, which come from the flags of this
// process.
type Refused struct{ error }

// Is makes it a usage error.
func (r Refused) Is(target error) bool { return target == kintsugi.ErrUsage }

// Unwrap returns the error of the process.
func (r Refused) Unwrap() error { return r.error }

// usageStatus is the exit status of a usage error. A panic has the same status, but is no usage
// error.
const usageStatus = 2

// refusal returns err, as a Refused if the child has ended with a usage error.
func (c *Child) refusal(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == usageStatus && !bytes.Contains(c.Printed.Bytes(), []byte("\ngoroutine ")) {
		return Refused{err}
	}
	return err
}

// String returns the command line.
func (c *Child) String() string { return strings.Join(c.Cmd.Args, " ") }

// Wait waits for the end of the process and returns its error. If ctx ends first, it ends the
// process and returns the error of ctx.
func (c *Child) Wait(ctx context.Context) error {
	select {
	case <-c.Ended:
		return c.err
	case <-ctx.Done():
		c.end()
		return ctx.Err()
	}
}

// end ends the process and waits for it. It asks twice, which makes a training hurry, and then
// kills the process.
func (c *Child) end() {
	for _, patience := range []time.Duration{endPatience, endLimit} {
		c.Signal(syscall.SIGTERM)
		select {
		case <-c.Ended:
			return
		case <-time.After(patience):
		}
	}
	c.Signal(syscall.SIGKILL) // the processes that it started die with it
	<-c.Ended
}

// Signal sends a signal to the process group of the child, unless the child has ended.
func (c *Child) Signal(s syscall.Signal) {
	select {
	case <-c.Ended:
	default:
		_ = syscall.Kill(-c.Cmd.Process.Pid, s) // it may have ended at this moment
	}
}
