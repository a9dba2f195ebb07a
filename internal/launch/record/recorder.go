package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/vfs"
)

// The files of a run directory.
const (
	configFile  = "config.yaml"
	eventsFile  = "events.jsonl"
	summaryFile = "summary.json"
	ReportFile  = "report.html" // drawn by the package report
)

// LogsDir is where the processes of the run in dir print to.
func LogsDir(dir string) string { return filepath.Join(dir, "logs") }

// ControlDir is where the launcher of the run in dir leaves word for the workers.
func ControlDir(dir string) string { return filepath.Join(dir, "control") }

// flushSeconds is how much of a run a launcher that is killed may take with it: between two flushes
// of the events. Failures and other rare events are flushed at once.
const flushSeconds = 1

// Recorder writes the events of a run to its directory, adds those that follow from them, and counts
// what failures cost.
//
// A disk that is full does not end a run: the first error is kept for Err and Finish, the events
// that could not be written are missing from the file, and the accounting goes on.
//
// A Recorder is safe for concurrent use.
type Recorder struct {
	mu      sync.Mutex // guards what follows
	file    *os.File
	w       *bufio.Writer
	start   time.Time // the moment of second zero
	flushed float64
	line    []byte // reused
	run     *Run   // an outline
	over    bool   // the run is the caller's
	size    int64  // of file
	limit   int64  // of size, above which it is cut
	cuts    int    // number of the newest segment

	packing sync.WaitGroup
	packs   sync.Mutex // one at a time
	err     error
	tell    func(Event) // nil: nobody
}

// Create makes the run directory dir, which must not exist or be empty, and records its settings and
// its header. The caller must call Finish.
//
// A directory in use wraps kintsugi.ErrUsage and says how to go on.
func Create(dir string, config []byte, h Header) (*Recorder, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, cannotWrite(dir, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, cannotWrite(dir, err)
	}
	if len(names) > 0 {
		return nil, inUse(dir, names)
	}
	// Exclusive: of two launchers that saw the folder empty, one goes on.
	f, err := os.OpenFile(filepath.Join(dir, eventsFile), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_RDWR, 0o666)
	if err != nil {
		return nil, cannotWrite(dir, err)
	}
	if err := lock(f, dir); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := WriteFile(filepath.Join(dir, configFile), func(w io.Writer) error {
		_, err := w.Write(config)
		return err
	}); err != nil { // without settings it is no run, and must not be in the way of the next try
		return nil, errors.Join(cannotWrite(dir, err), f.Close(), os.Remove(f.Name()))
	}
	run := &Run{Dir: dir, Config: config, account: &Account{}, outline: true}
	r := &Recorder{file: f, w: bufio.NewWriterSize(f, 64<<10), start: h.Start, run: run, limit: segmentBytes}
	h.Format = Format
	r.Record(h.Start, &h)
	return r, r.Err()
}

// Resume goes on with the run in dir: events are added behind those that are there, time goes on
// where it stopped, or where it is by now if the run went on without its record, and the costs so far count: wentOn is
// asked which, nil if it stopped. It also returns the run so far.
func Resume(dir string, h Header, wentOn func(earlier *Run) bool) (*Recorder, *Run, error) {
	f, err := os.OpenFile(filepath.Join(dir, eventsFile), os.O_APPEND|os.O_RDWR, 0o666)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("run directory %q holds no run to resume (it has no %s); start a new one without --resume: %w", dir, eventsFile, kintsugi.ErrUsage)
	}
	if err != nil {
		return nil, nil, cannotWrite(dir, err)
	}
	if err := errors.Join(lock(f, dir), stillThere(f)); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	run, r, err := resume(f, dir, h, wentOn)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return r, run, nil
}

func resume(f *os.File, dir string, h Header, wentOn func(*Run) bool) (*Run, *Recorder, error) {
	run, err := ReadOutline(dir)
	if err != nil {
		return nil, nil, err
	}
	cuts, err := tidy(dir, f)
	if err != nil {
		return nil, nil, cannotWrite(dir, err)
	}
	if err := f.Truncate(run.whole); err != nil { // a line that a crash cut off would spoil the next
		return nil, nil, cannotWrite(dir, err)
	}
	// It told of the run as it ended before, and would hide what follows if this launcher dies.
	if err := os.Remove(filepath.Join(dir, summaryFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, cannotWrite(dir, err)
	}
	h.Format, h.Resumed, h.WentOn = Format, true, wentOn != nil && wentOn(run)
	begin := h.Start.Add(-time.Duration(run.account.seconds * float64(time.Second)))
	if before := run.latest.Start.Add(-time.Duration(run.latest.Seconds * float64(time.Second))); h.WentOn && before.Before(begin) { // unless a clock was set back
		begin = before
	}
	r := &Recorder{file: f, w: bufio.NewWriterSize(f, 64<<10), start: begin, run: run, limit: segmentBytes, size: run.whole, cuts: cuts}
	r.pack()
	earlier := run.clone()
	r.Record(h.Start, &h)
	return earlier, r, r.Err()
}

func lock(f *os.File, dir string) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("run directory %q: another process is writing to it (%w); wait for it or choose another with --out", dir, err)
	}
	return nil
}

// Hold keeps launchers out of the run in dir until release is called. It is an error if one is at
// work there. A folder without a run is nobody's: nothing is held.
func Hold(dir string) (release func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, eventsFile), os.O_RDWR, 0) // a network file system locks no file that is only read
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("run directory %q: %w", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		why := "it cannot be locked"
		if errors.Is(err, syscall.EWOULDBLOCK) {
			why = "its run is running; wait for its end"
		}
		return nil, errors.Join(fmt.Errorf("run directory %q: %s: %w", dir, why, err), f.Close())
	}
	if err := stillThere(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// stillThere returns an error if a file that is locked has been cut off just before, by the process that had the lock.
func stillThere(f *os.File) error {
	own, err := f.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(f.Name()); err == nil && !os.SameFile(own, now) {
		return fmt.Errorf("%s: another process is writing to it; wait for its end", f.Name())
	}
	return nil
}

func cannotWrite(dir string, err error) error {
	return fmt.Errorf("run directory %q: %w; choose another with --out", dir, err)
}

func inUse(dir string, names []os.DirEntry) error {
	shown := make([]string, 0, 3)
	isRun := false
	for i, n := range names {
		isRun = isRun || n.Name() == eventsFile
		if i < 3 {
			shown = append(shown, n.Name())
		}
	}
	if len(names) > 3 {
		shown = append(shown, "…")
	}
	hint := "choose another with --out"
	if isRun {
		hint = "go on with this run with --resume, or choose another with --out"
	}
	return fmt.Errorf("run directory %q is not empty (it holds %s): %s: %w", dir, strings.Join(shown, ", "), hint, kintsugi.ErrUsage)
}

// Seconds returns the time of the run at t, as events carry it.
func (r *Recorder) Seconds(t time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.secondsAt(t)
}

// Time returns the moment at which the run was so old: what Seconds takes.
func (r *Recorder) Time(seconds float64) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.start.Add(time.Duration(seconds * float64(time.Second)))
}

func (r *Recorder) secondsAt(t time.Time) float64 { return round(max(0, t.Sub(r.start).Seconds())) }

// Record adds an event that happened at time t, and the recoveries that follow from it, which it
// returns. It sets the event's time, and the step of a Failure; the caller may not use the event again.
func (r *Recorder) Record(t time.Time, e Event) []*Recovery {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over { // whoever is late has nobody to tell
		return nil
	}
	e.at().Seconds = r.secondsAt(t)
	if f, ok := e.(*Failure); ok {
		f.Step = r.run.account.Newest()
	}
	recoveries := r.run.add(e)
	r.write(e)
	for _, d := range recoveries {
		r.run.add(d)
		r.write(d)
	}
	if r.tell != nil {
		r.tell(e)
		for _, d := range recoveries {
			r.tell(d)
		}
	}
	_, isStep := e.(*Step)
	if now := e.at().Seconds; !isStep || len(recoveries) > 0 || now-r.flushed >= flushSeconds {
		r.flushed = now
		r.keep(r.w.Flush())
		if r.size > r.limit {
			r.cut()
		}
	}
	return recoveries
}

// Tell has f hear of each event from now on, in their order, after one on what the record is of. f
// must not use the Recorder, nor keep the events.
func (r *Recorder) Tell(f func(Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell = f
	f(&Header{Start: r.start})
}

// Step adds a released step at the time that it carries.
func (r *Recorder) Step(e kintsugi.StepEvent) []*Recovery {
	if t := TimelineOf(e); t != nil {
		r.Record(e.Time, t)
	}
	return r.Record(e.Time, StepOf(e))
}

func (r *Recorder) write(e Event) {
	line, err := appendEvent(r.line[:0], e)
	if err == nil {
		r.line, r.size = line, r.size+int64(len(line))
		_, err = r.w.Write(line)
	}
	r.keep(err)
}

// keep keeps the first error, and lets the writer try again. What fails may pass (a disk that is
// full), but bufio refuses everything after an error. The events in its buffer are lost, and half a
// line may be left in the file: readers skip what they cannot read.
func (r *Recorder) keep(err error) {
	if err == nil {
		return
	}
	r.w.Reset(r.file)
	if r.err == nil {
		r.err = fmt.Errorf("record events: %w; the run goes on, and its record has a hole", err)
	}
}

// Err returns the first error of writing, nil while all is well.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Finish ends the record at time t: it writes summary.json and closes the events. The reason says
// why the run ended. It returns the run as ReadOutline would, without reading what may be
// gigabytes. The error is the first of the whole record; the run is good in any case, and nothing
// is added to it any more.
func (r *Recorder) Finish(t time.Time, reason string) (*Run, error) {
	r.Record(t, &Note{Level: "info", Text: "the run ended: " + reason})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.run.Summary = r.run.sum()
	r.run.Summary.Reason = reason
	r.keep(r.w.Flush())
	r.keep(r.file.Sync())
	r.keep(r.file.Close()) // and with it goes the lock
	r.keep(writeSummary(r.run.Dir, r.run.Summary))
	r.packing.Wait()
	return r.run, r.err
}

func writeSummary(dir string, s Summary) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", summaryFile, err)
	}
	return WriteFile(filepath.Join(dir, summaryFile), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// WriteFile writes a file of a run directory as a whole: whoever opens path meanwhile, or after a
// crash of the process or of the machine, sees the old content or the new.
func WriteFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp*")
	if err != nil {
		return err
	}
	err = errors.Join(f.Chmod(0o644), write(f))
	if err == nil {
		err = f.Sync() // or the new name may be durable before the content
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	_ = vfs.OS{}.SyncDir(filepath.Dir(path)) // the file is whole, under the old name or the new; not every file system can do more
	return nil
}
