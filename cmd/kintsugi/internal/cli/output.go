package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Stderr is the standard error of a process that must not wait for whoever reads it.
var Stderr = NewOutput(os.Stderr)

const (
	// waitsFor is how long a write waits for its reader. A reader that is only slow takes a line within
	// that, and lines that it has taken are there if the process dies at the next moment.
	waitsFor = 100 * time.Millisecond

	// holds is the number of writes that are kept for a reader that takes none.
	holds = 1 << 10
)

// Output writes to something that may stop taking what is written: a terminal behind a connection
// that is gone, or that Ctrl-S has stopped, a pipe into less, a collector of logs. A plain write
// waits for it, and with the log of a process stands the process: servers take no step, and train
// starts nothing again. An Output keeps some writes for its reader, drops others, and says so when
// the reader is back. It is safe for concurrent use.
type Output struct {
	w       io.Writer
	begin   sync.Once
	queue   chan *written
	stuck   atomic.Bool // a write has waited in vain since the last one that was taken
	missing atomic.Int64
}

// written is one write, in a queue.
type written struct {
	text []byte
	done chan struct{} // closed when it is over
	n    int           // set before done is closed, as is err
	err  error
}

// NewOutput returns an Output to w.
func NewOutput(w io.Writer) *Output { return &Output{w: w, queue: make(chan *written, holds)} }

// Write writes text and returns what that comes to. If nobody takes it for a moment, it returns as if it
// were written.
func (o *Output) Write(text []byte) (int, error) {
	o.begin.Do(func() { go o.run() })
	w := &written{text: bytes.Clone(text), done: make(chan struct{})}
	select {
	case o.queue <- w:
	default:
		o.missing.Add(int64(bytes.Count(text, []byte{'\n'}))) // a line of progress that is redrawn is no loss
		return len(text), nil
	}
	if o.stuck.Load() {
		return len(text), nil
	}
	late := time.NewTimer(waitsFor)
	defer late.Stop()
	select {
	case <-w.done:
		return w.n, w.err
	case <-late.C:
		o.stuck.Store(true)
		return len(text), nil
	}
}

// run does the writes.
func (o *Output) run() {
	for w := range o.queue {
		if len(w.text) > 0 { // otherwise it is of Flush
			w.n, w.err = o.w.Write(w.text)
		}
		close(w.done)
		o.stuck.Store(false)
		if n := o.missing.Swap(0); n > 0 && len(o.queue) == 0 {
			_, _ = fmt.Fprintf(o.w, "kintsugi: %d lines are missing here: nobody read them in time\n", n)
		} else if n > 0 { // those that are kept come first
			o.missing.Add(n)
		}
	}
}

// errUnread means that something was written that nobody has taken.
var errUnread = errors.New("nobody reads the output")

// Flush waits until all is written, but no longer than that.
func (o *Output) Flush(within time.Duration) error {
	late := time.NewTimer(within)
	defer late.Stop()
	last := &written{done: make(chan struct{})}
	o.begin.Do(func() { go o.run() })
	select {
	case o.queue <- last:
	case <-late.C:
		return errUnread
	}
	select {
	case <-last.done:
		return nil
	case <-late.C:
		return errUnread
	}
}
