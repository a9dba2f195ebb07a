package bench

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

// A child is a kintsugi process that this process has started and must wait for.
//
// It leads a process group of its own, so that Ctrl-C on a terminal reaches only this process,
// which then ends its children in order. The child also gets a signal when this process is killed.
// Linux sends that signal when the thread that started the child ends, so one goroutine is locked
// to its thread while the child lives.
type child struct {
	cmd     *exec.Cmd
	printed bytes.Buffer  // its output, to be read after it has ended
	ended   chan struct{} // closed when it has ended and was waited for
	err     error         // how it ended, as exec.Cmd.Wait says it; to be read after ended
}

// How long a child has to end after it was asked: once, and once more. The first time a training
// makes a last checkpoint; the second time it only ends its processes, which takes it 15 s at most.
const (
	endPatience = 10 * time.Second
	endLimit    = 20 * time.Second
)

// startChild starts a kintsugi.
func startChild(binary string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = &c.printed, &c.printed
	c.cmd.SysProcAttr = launch.Group(syscall.SIGTERM)
	c.cmd.WaitDelay = time.Second // for what it has printed, if somebody else holds its output
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.refusal(c.cmd.Wait())
		}
		close(c.ended)
	}()
	return c, <-started
}

// refused is how a child ended that did not understand what it was told, which this process was told before it.
type refused struct{ error }

// Is makes it a usage error.
func (r refused) Is(target error) bool { return target == kintsugi.ErrUsage }

// Unwrap returns how it ended.
func (r refused) Unwrap() error { return r.error }

// usageStatus is the exit status of a usage error; and of a panic, which is none.
const usageStatus = 2

// refusal returns how the child has ended.
func (c *child) refusal(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == usageStatus && !bytes.Contains(c.printed.Bytes(), []byte("\ngoroutine ")) {
		return refused{err}
	}
	return err
}

// String returns the command line.
func (c *child) String() string { return strings.Join(c.cmd.Args, " ") }

// wait waits for the end of the process and returns how it ended. If ctx ends first, it ends the
// process and returns ctx's error.
func (c *child) wait(ctx context.Context) error {
	select {
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		c.end()
		return ctx.Err()
	}
}

// end returns when the process has ended. It is asked to, asked again, which trainings take for haste, and then killed.
func (c *child) end() {
	for _, patience := range []time.Duration{endPatience, endLimit} {
		c.signal(syscall.SIGTERM)
		select {
		case <-c.ended:
			return
		case <-time.After(patience):
		}
	}
	c.signal(syscall.SIGKILL) // the processes that it started die with it
	<-c.ended
}

// signal sends a signal to the process group of the child, unless the child has ended.
func (c *child) signal(s syscall.Signal) {
	select {
	case <-c.ended:
	default:
		_ = syscall.Kill(-c.cmd.Process.Pid, s) // it may have ended at this moment
	}
}
