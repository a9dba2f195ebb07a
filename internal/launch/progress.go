package launch

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	redrawEvery = 200 * time.Millisecond // a line that changes faster cannot be read
	logEvery    = 5 * time.Second
)

// Display shows the progress of a run. On a terminal it redraws one line again and again; elsewhere
// it logs a structured line every few seconds.
//
// All other output to the same terminal must go through Write, or it would end up inside the line.
// A Display is safe for concurrent use.
type Display struct {
	w     io.Writer
	width func() int // in columns; nil: not a terminal
	log   *slog.Logger

	mu    sync.Mutex // guards the following fields, and the order of writes
	last  time.Time
	drawn string // the line on the screen; "" for none
}

// NewDisplay returns a display on w, which writes to f. If f is not a terminal, the progress goes to log, which may
// write to the Display itself. The caller must call Close.
func NewDisplay(w io.Writer, f *os.File, log *slog.Logger) *Display {
	d := &Display{w: w, log: log}
	if fd := int(f.Fd()); term.IsTerminal(fd) {
		d.width = func() int {
			columns, _, err := term.GetSize(fd)
			if err != nil || columns <= 0 {
				return 80
			}
			return columns
		}
	}
	return d
}

// SetLog sets the logger, for loggers that write to the display and so can only be made after it.
// Call it before the first Show.
func (d *Display) SetLog(log *slog.Logger) { d.log = log }

// Show shows the progress, unless it was shown a moment ago.
func (d *Display) Show(now time.Time, p Progress) {
	every := logEvery
	if d.width != nil {
		every = redrawEvery
	}
	d.mu.Lock()
	if now.Sub(d.last) < every {
		d.mu.Unlock()
		return
	}
	d.last = now
	if d.width != nil {
		d.draw(p.Line(d.width() - 1)) // some terminals wrap after the last column
	}
	d.mu.Unlock()
	if d.width == nil && d.log != nil { // without the lock, since the logger may call Write
		d.log.LogAttrs(context.Background(), slog.LevelInfo, "progress", p.Attrs()...)
	}
}

const eraseLine = "\r\x1b[K"

// draw replaces the line. It ignores errors: a terminal that has gone away does not matter to a
// run.
func (d *Display) draw(line string) {
	_, _ = io.WriteString(d.w, eraseLine+line)
	d.drawn = line
}

// Write prints text, which should consist of whole lines, above the progress line.
func (d *Display) Write(text []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.drawn == "" {
		return d.w.Write(text)
	}
	if _, err := io.WriteString(d.w, eraseLine); err != nil {
		return 0, err
	}
	n, err := d.w.Write(text)
	if err == nil {
		_, err = io.WriteString(d.w, d.drawn)
	}
	return n, err
}

// Close shows the progress p and leaves it on the screen. Later output follows it.
func (d *Display) Close(p Progress) {
	if d.width == nil {
		if d.log != nil {
			d.log.LogAttrs(context.Background(), slog.LevelInfo, "progress", p.Attrs()...)
		}
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draw(p.Line(d.width() - 1))
	_, _ = io.WriteString(d.w, "\n")
	d.drawn = ""
}
