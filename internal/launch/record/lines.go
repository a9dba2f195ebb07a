package record

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"runtime"
)

// maxLine is the limit on a line of events, in bytes: a step with 100,000 gradients is well below.
const maxLine = 4 << 20

// batch is a number of consecutive lines of events.
type batch struct {
	lines []byte // including their newlines
	whole int64  // bytes of the complete lines, including those that were too long for lines
	err   error  // the error that ended reading

	ready   chan struct{} // closed when the lines are parsed
	events  []Event
	skipped int // number of lines that could not be parsed
}

// batchBytes is the size of a batch, which one goroutine parses in some milliseconds.
const batchBytes = 256 << 10

// parsed returns the batches of a file in order; each is ready soon. Lines are parsed on all
// processors, since encoding/json parses about 50 MB/s on one, and a day's record has gigabytes. A
// caller that stops early must close done.
func parsed(f io.Reader, done <-chan struct{}) <-chan *batch {
	batches := make(chan *batch, runtime.GOMAXPROCS(0)) // limits the number of batches in memory
	go func() {
		defer close(batches)
		in := bufio.NewReaderSize(f, 64<<10)
		for last := false; !last; {
			b := &batch{ready: make(chan struct{})}
			last = b.read(in)
			select {
			case batches <- b:
				go b.parse()
			case <-done:
				return
			}
		}
	}()
	return batches
}

// read reads lines from a file, and reports whether these were the last.
func (b *batch) read(in *bufio.Reader) (last bool) {
	for len(b.lines) < batchBytes {
		n, err := b.line(in)
		switch {
		case errors.Is(err, io.EOF):
			if n > 0 {
				b.skipped++ // without its newline it may be incomplete, even if it can be parsed
			}
			return true
		case err != nil:
			b.err = err
			return true
		}
		b.whole += n
	}
	return false
}

// line reads one line and returns its length. It drops the line if it has no newline, or is longer
// than maxLine, as after a crash of the machine that has left zeros.
func (b *batch) line(in *bufio.Reader) (n int64, err error) {
	begin := len(b.lines)
	for {
		part, err := in.ReadSlice('\n')
		if n += int64(len(part)); n <= maxLine {
			b.lines = append(b.lines, part...)
		} else {
			b.lines = b.lines[:begin]
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			b.lines = b.lines[:begin]
		case n > maxLine:
			b.skipped++
		}
		return n, err
	}
}

func (b *batch) parse() {
	defer close(b.ready)
	for line := range bytes.Lines(b.lines) {
		switch e, err := parseEvent(bytes.TrimSpace(line)); {
		case err != nil:
			b.skipped++
		case e != nil: // otherwise it comes from a later version
			b.events = append(b.events, e)
		}
	}
}
