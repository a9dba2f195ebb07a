// Package tensorboard writes the figures of a run to a file that TensorBoard reads. Begin reading at
// Writer.Add.
//
// The file lies in the run's folder, so that `tensorboard --logdir runs` shows all runs below runs.
package tensorboard

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// pointsPerTime says how many points are written of a curve: so many in as much time as the run has
// taken already. Short runs have a point for each step. A run of weeks has some ten thousand, and
// not a file of gigabytes; TensorBoard shows no more than a thousand of them by default.
const pointsPerTime = 1000

// Writer writes the figures of a run. It is not safe for concurrent use.
type Writer struct {
	to    io.Writer
	zero  float64 // second 0 of the events, in seconds since 1970
	begun bool    // a step was added
	line  uint64
	last  uint64 // the newest step that was added
	next  float64
	mean  mean
	out   []byte // reused
	err   error  // the first; nothing is written after it
}

// newWriter returns a writer, which has written the beginning of a file.
func newWriter(to io.Writer, now time.Time) *Writer {
	w := &Writer{to: to}
	w.write(appendVersion(w.out[:0], unix(now)))
	return w
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func (w *Writer) write(b []byte) {
	if w.out = b; w.err == nil {
		_, w.err = w.to.Write(b)
	}
}

// Add adds an event of the run, in the order in which they are recorded. The first is a Header.
func (w *Writer) Add(e record.Event) {
	switch e := e.(type) {
	case *record.Header:
		w.zero = unix(e.Start) - e.Seconds
	case *record.Step:
		w.step(e)
	case *record.Evaluation:
		w.scalars(e.Seconds, e.Step, []scalar{{"test/loss", float64(e.Loss)}, {"test/accuracy", float64(e.Accuracy)}})
	case *record.Checkpoint:
		if e.Error == "" && !e.Running {
			w.scalars(e.Seconds, e.Step, []scalar{{"checkpoint/bytes", float64(e.Bytes)}, {"checkpoint/seconds", e.TookSeconds}})
		}
	case *record.Recovery:
		if e.LostSteps > 0 && e.CaughtUpSeconds.Known() { // it was recorded before, when steps went on
			w.scalars(e.Seconds, w.last, []scalar{{"failure/made_up_seconds", float64(e.CaughtUpSeconds)}})
			break
		}
		w.scalars(e.Seconds, w.last, []scalar{{"failure/recovery_seconds", e.RecoverySeconds}, {"failure/lost_steps", float64(e.LostSteps)}})
	case *record.Exposure:
		w.scalars(e.Seconds, e.Step, []scalar{{"failure/at_risk_steps", float64(e.AtRisk())}})
	}
}

// step adds a step to the mean, and writes that when it is time for a point. A step that was taken
// before, on an earlier line or in an earlier file of the run, is void, and so are those after it.
func (w *Writer) step(e *record.Step) {
	switch {
	case !w.begun, e.Line != w.line && e.Step <= w.last:
		w.mean = mean{since: e.Seconds - e.WaitSeconds - e.ApplySeconds}
		w.write(appendStart(w.out[:0], w.zero+e.Seconds, e.Step))
		w.next = e.Seconds
	}
	w.begun, w.line, w.last = true, e.Line, e.Step
	w.mean.add(e)
	if e.Seconds >= w.next {
		w.point(e.Seconds)
	}
}

// point writes what has happened since the point before.
func (w *Writer) point(now float64) {
	if w.mean.steps > 0 {
		w.scalars(now, w.last, w.mean.scalars(now))
		w.next, w.mean = now+now/pointsPerTime, mean{since: now}
	}
}

// scalars writes those figures that are known.
func (w *Writer) scalars(seconds float64, step uint64, all []scalar) {
	known := all[:0]
	for _, s := range all {
		if record.Number(s.value).Known() {
			known = append(known, s)
		}
	}
	if len(known) > 0 {
		w.write(appendScalars(w.out[:0], w.zero+seconds, step, known))
	}
}

// Flush writes the point that is due next. The run is over, or its record so far.
func (w *Writer) Flush() error {
	w.point(w.mean.newest)
	return w.err
}

// mean is what happens between two points.
type mean struct {
	since, newest         float64 // in seconds of the run
	steps                 int
	loss, examples        float64 // loss is weighted by examples, which are those of steps with a loss
	norm, norms           float64 // norms is the number of steps with a norm
	wait, apply           float64
	quota, counted        float64
	late, clipped, stale  float64
	pushed, pulled, taken float64 // taken is the number of all examples
}

func (m *mean) add(e *record.Step) {
	m.steps++
	m.newest = e.Seconds
	if e.Loss.Known() && e.Examples > 0 { // a step that a conductor before has decided says nothing of either
		m.loss += float64(e.Loss) * float64(e.Examples)
		m.examples += float64(e.Examples)
	}
	if e.Norm.Known() {
		m.norm += float64(e.Norm)
		m.norms++
	}
	m.wait += e.WaitSeconds
	m.apply += e.ApplySeconds
	m.quota += float64(e.Quota)
	m.counted += float64(len(e.Counted))
	m.late += float64(e.Late)
	m.clipped += float64(e.Clipped)
	m.stale = max(m.stale, float64(e.Staleness))
	m.pushed += float64(e.PushedBytes)
	m.pulled += float64(e.PulledBytes)
	m.taken += float64(e.Examples)
}

// scalars returns the figures of a point. What nothing is known of is NaN.
func (m *mean) scalars(now float64) []scalar {
	n, took := float64(m.steps), now-m.since
	return []scalar{
		{"train/loss", m.loss / m.examples},
		{"train/gradient_norm", m.norm / m.norms},
		{"train/steps_per_second", n / took},
		{"train/examples_per_second", m.taken / took},
		{"step/wait_seconds", m.wait / n},
		{"step/apply_seconds", m.apply / n},
		{"gradients/quota", m.quota / n},
		{"gradients/counted", m.counted / n},
		{"gradients/late", m.late / n},
		{"gradients/clipped", m.clipped / n},
		{"gradients/staleness_steps", m.stale},
		{"wire/pushed_bytes_per_second", m.pushed / took},
		{"wire/pulled_bytes_per_second", m.pulled / took},
	}
}

// pattern is how TensorBoard knows its files. It reads those of a folder in the order of their
// names.
const pattern = "events.out.tfevents.%010d.kintsugi"

// Write writes the figures of the recorded run in dir to a file there, in place of one that an
// earlier Write has left, and returns its path.
func Write(dir string) (path string, err error) {
	path = filepath.Join(dir, fmt.Sprintf(pattern, 0)) // files that were written during the run void what it says
	err = record.WriteFile(path, func(f io.Writer) error {
		var w *Writer
		_, err := record.Scan(dir, func(e record.Event) {
			if h, ok := e.(*record.Header); ok && w == nil {
				w = newWriter(f, h.Start)
			}
			if w != nil {
				w.Add(e)
			}
		})
		if err != nil || w == nil {
			return err
		}
		return w.Flush()
	})
	if err != nil {
		return "", fmt.Errorf("write for TensorBoard: %w", err)
	}
	return path, nil
}

// Live writes the figures of a run while it goes on. It is not safe for concurrent use.
type Live struct {
	*Writer
	file    *os.File
	buffer  *bufio.Writer
	flushed time.Time
}

// Open creates a file in the run's folder.
func Open(dir string, now time.Time) (*Live, error) {
	for at := now.Unix(); ; at++ {
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf(pattern, at)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if os.IsExist(err) {
			continue // of a process that this one follows in the same second
		}
		if err != nil {
			return nil, fmt.Errorf("write for TensorBoard: %w", err)
		}
		buffer := bufio.NewWriter(f)
		return &Live{Writer: newWriter(buffer, now), file: f, buffer: buffer}, nil
	}
}

// flushEvery is how often a file is written to at most, unless the buffer is full. TensorBoard looks
// every few seconds.
const flushEvery = time.Second

// Add is Writer.Add, and lets TensorBoard see the event soon.
func (l *Live) Add(e record.Event) {
	l.Writer.Add(e)
	if now := time.Now(); now.Sub(l.flushed) >= flushEvery {
		l.flushed = now
		_ = l.buffer.Flush() // its error stays, and Close returns it
	}
}

// Close writes the rest, and returns the first error of all. The figures are then incomplete in the
// file; the run's record has them.
func (l *Live) Close() error {
	err := l.Flush()
	if err = cmp.Or(err, l.buffer.Flush(), l.file.Close()); err != nil {
		return fmt.Errorf("write for TensorBoard: %w; kintsugi report with --tensorboard writes it anew from the run's record", err)
	}
	return nil
}
