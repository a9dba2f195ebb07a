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
	ReportFile  = "report.html" // written by package report
)

// Checkpoints is the name of the folder in a run's folder that has its checkpoints, unless they are in
// a store.
const Checkpoints = "checkpoints"

// LogsDir returns the folder for the output of the processes of the run in dir.
func LogsDir(dir string) string { return filepath.Join(dir, "logs") }

// ControlDir returns the folder in which the launcher of the run in dir writes files for the
// workers.
func ControlDir(dir string) string { return filepath.Join(dir, "control") }

// flushSeconds is the time between two flushes of the events, which is the most that is lost if the
// launcher is killed. Failures and other rare events are flushed at once.
const flushSeconds = 1

// Recorder writes the events of a run to its directory. It adds the events that follow from others,
// and computes what failures cost.
//
// A full disk does not end a run: Recorder keeps the first error for Err and Finish. Events that
// could not be written are missing in the file, but the accounting goes on.
//
// A Recorder is safe for concurrent use.
type Recorder struct {
	mu      sync.Mutex // guards the following fields
	file    *os.File
	w       *bufio.Writer
	start   time.Time // the time of second zero
	flushed float64
	line    []byte // reused
	run     *Run   // an outline of the run
	over    bool   // Finish was called, and run belongs to the caller
	size    int64  // size of file
	limit   int64  // the file is cut when size exceeds it
	cuts    int    // number of the newest segment

	packing sync.WaitGroup
	packs   sync.Mutex // at most one goroutine compresses at a time
	err     error
	tell    []func(Event) // see Tell
}

// Create makes the run directory dir, which must not exist or must be empty, and records the
// settings and the header. The caller must call Finish. If the directory is in use, the error wraps
// kintsugi.ErrUsage and says what to do.
func Create(dir string, config []byte, h Header) (*Recorder, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, cannotWrite(dir, err)
	}
	if err := Usable(dir); err != nil {
		return nil, err
	}
	// O_EXCL: if two launchers saw the folder empty, only one goes on.
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
	}); err != nil { // without settings this is no run, and it must not be in the way of the next try
		return nil, errors.Join(cannotWrite(dir, err), f.Close(), os.Remove(f.Name()))
	}
	run := &Run{Dir: dir, Config: config, account: &Account{}, outline: true}
	r := &Recorder{file: f, w: bufio.NewWriterSize(f, 64<<10), start: h.Start, run: run, limit: segmentBytes}
	h.Format = Format
	r.Record(h.Start, &h)
	return r, r.Err()
}

// Resume continues the record of the run in dir. New events are appended, and the costs so far
// count. wentOn says whether the run went on without its record; nil means that it did not. If the
// run stopped, its time continues where it stopped; otherwise the time since then counts. Resume
// also returns the run so far.
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
	if err := f.Truncate(run.whole); err != nil { // a line that a crash cut off would spoil the next line
		return nil, nil, cannotWrite(dir, err)
	}
	// summary.json is about the earlier end of the run, and would hide what follows if this
	// launcher dies.
	if err := os.Remove(filepath.Join(dir, summaryFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, cannotWrite(dir, err)
	}
	h.Format, h.Resumed, h.WentOn = Format, true, wentOn != nil && wentOn(run)
	begin := h.Start.Add(-time.Duration(run.account.seconds * float64(time.Second)))
	if before := run.latest.Start.Add(-time.Duration(run.latest.Seconds * float64(time.Second))); h.WentOn && before.Before(begin) { // not if a clock was set back
		begin = before
	}
	r := &Recorder{file: f, w: bufio.NewWriterSize(f, 64<<10), start: begin, run: run, limit: segmentBytes, size: run.whole, cuts: cuts}
	r.pack()
	earlier := run.clone()
	r.Record(h.Start, &h)
	return earlier, r, r.Err()
}

func lock(f *os.File, dir string) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf("run directory %q: another process is writing to it (%w); wait for it or choose another with --out", dir, err)
	}
	return fmt.Errorf("run directory %q: its file system cannot lock files (%w), so nothing keeps two processes from writing to it; choose a folder on a local disk with --out", dir, err)
}

// Hold locks the run in dir against launchers until release is called. If a launcher is at work
// there, it returns an error. If the folder has no run, Hold locks nothing.
func Hold(dir string) (release func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, eventsFile), os.O_RDWR, 0) // network file systems cannot lock a file that is opened for reading only
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

// stillThere returns an error if a locked file was cut off by the process that had the lock before.
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

// Usable returns the error of Create, if dir is in use or cannot be read, before anything is made.
func Usable(dir string) error {
	names, err := os.ReadDir(dir)
	if err == nil && len(names) > 0 {
		return inUse(dir, names)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cannotWrite(dir, err)
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

// Seconds returns the time of the run at t, as events have it.
func (r *Recorder) Seconds(t time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.secondsAt(t)
}

// Time is the inverse of Seconds: it returns the moment at which the run had the given age.
func (r *Recorder) Time(seconds float64) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.start.Add(time.Duration(seconds * float64(time.Second)))
}

func (r *Recorder) secondsAt(t time.Time) float64 { return round(max(0, t.Sub(r.start).Seconds())) }

// Record adds an event that happened at time t, and the recoveries that follow from it, which it
// returns. It sets the event's time, and the step of a Failure. The caller must not use the event
// afterwards.
func (r *Recorder) Record(t time.Time, e Event) []*Recovery {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over { // too late
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
	for _, tell := range r.tell {
		tell(e)
		for _, d := range recoveries {
			tell(d)
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

// Tell makes f be called for each event from now on, in order, like others that Tell was called
// for. The first call has a Header with the time of second zero. f must not use the Recorder, nor
// keep the events.
func (r *Recorder) Tell(f func(Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell = append(r.tell, f)
	f(&Header{Start: r.start})
}

// Step adds a released step, at the time in e.
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

// keep keeps the first error, and lets the writer try again. The cause may pass (a full disk), but
// a bufio.Writer refuses everything after an error. The events in its buffer are lost, and a
// partial line may remain in the file: readers skip lines that they cannot parse.
func (r *Recorder) keep(err error) {
	if err == nil {
		return
	}
	r.w.Reset(r.file)
	if r.err == nil {
		r.err = fmt.Errorf("record events: %w; the run goes on, and its record has a hole", err)
	}
}

// Err returns the first error of writing, or nil.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Finish ends the record at time t: it writes summary.json and closes the events. reason says why
// the run ended. It returns the run as ReadOutline would, but without reading the file, which may
// have gigabytes. The error is the first error of the whole record. The returned run is valid in
// any case, and does not change any more.
func (r *Recorder) Finish(t time.Time, reason string) (*Run, error) {
	r.Record(t, &Note{Level: "info", Text: "the run ended: " + reason})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.run.Summary = r.run.sum()
	r.run.Summary.Reason = reason
	r.keep(r.w.Flush())
	r.keep(r.file.Sync())
	r.keep(r.file.Close()) // this also releases the lock
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

// WriteFile writes a file of a run directory atomically: whoever opens path during the call, or
// after a crash of the process or the machine, sees either the old content or the new.
func WriteFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp*")
	if err != nil {
		return err
	}
	err = errors.Join(f.Chmod(0o644), write(f))
	if err == nil {
		err = f.Sync() // otherwise the new name might be durable before the content
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	_ = vfs.OS{}.SyncDir(filepath.Dir(path)) // not every file system can do this, and without it the file is complete under either name
	return nil
}
