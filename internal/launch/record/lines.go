package record

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"runtime"
)

// maxLine bounds a line of events: a step that counted 100,000 gradients is well below.
const maxLine = 4 << 20

// batch is some lines of events that follow one another.
type batch struct {
	lines []byte // with their newlines
	whole int64  // bytes of the lines with a newline, also of those that are too long to be among lines
	err   error  // with which reading ended

	ready   chan struct{} // closed when the lines are parsed
	events  []Event
	skipped int // lines that could not be read
}

// batchBytes is how many bytes of lines one goroutine parses: in some milliseconds.
const batchBytes = 256 << 10

// parsed returns the batches of a file in order, which become ready soon: lines are parsed on all
// processors, since encoding/json reads some 50 MB a second on one, and the record of a day has
// gigabytes. Whoever stops before the last closes done.
func parsed(f io.Reader, done <-chan struct{}) <-chan *batch {
	batches := make(chan *batch, runtime.GOMAXPROCS(0)) // no more than so many are in memory, or their events
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

// read takes lines from a file, and reports whether they were its last.
func (b *batch) read(in *bufio.Reader) (last bool) {
	for len(b.lines) < batchBytes {
		n, err := b.line(in)
		switch {
		case errors.Is(err, io.EOF):
			if n > 0 {
				b.skipped++ // without its newline it may be cut anywhere, also where it still parses
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

// line takes one line with its newline, and returns its length. One that is cut off is left out,
// and so is one above maxLine, such as zeros that a crash of the machine has left.
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
		case e != nil: // else it is of a later version
			b.events = append(b.events, e)
		}
	}
}
