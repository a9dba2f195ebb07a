package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// Run is a run as its directory describes it. Events of each kind are in the order of the file.
type Run struct {
	Dir           string
	Header        Header // the first header
	Config        []byte // nil if the file is gone
	Steps         []Step // empty in an outline
	First, Newest Step   // the first and the last recorded step; zero if Outline has none
	Outline       Outline
	Failures      []Failure
	Recoveries    []Recovery
	Views         []View
	Checkpoints   []Checkpoint
	Partials      []Partial
	Exposures     []Exposure
	Reworks       []Rework
	Presences     []Presence
	Lives         []Life
	Timelines     []Timeline
	Evaluations   []Evaluation
	Faults        []Fault
	Notes         []Note

	// Summary is summary.json if the run has ended, and otherwise computed from the events.
	Summary Summary

	// Skipped is the number of lines that could not be parsed: after a full disk, or an incomplete
	// last line.
	Skipped int

	latest  Header // the newest header
	whole   int64  // bytes of events.jsonl up to the end of the last complete line
	account *Account
	outline bool
	tell    func(Event)    // of Scan; nil: nobody asks
	saves   map[uint32]int // in an outline: by shard, the index of its newest checkpoint
}

// Has reports whether dir contains the events of a run.
func Has(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, eventsFile))
	return err == nil
}

// ReadRun reads the run in dir, even if the run is still going on or its launcher died. It skips
// lines that are incomplete, or of an unknown kind from a later version. If the format is a later
// version, the error wraps kintsugi.ErrOtherModel; if the directory has no events,
// kintsugi.ErrUsage.
func ReadRun(dir string) (*Run, error) { return readRun(dir, &Run{}) }

// ReadOutline is like ReadRun, but its memory does not grow with the number of steps. Of the steps
// it has First, Newest and Outline, and of each shard's saves in the running checkpoint the newest.
// That is enough for the report.
func ReadOutline(dir string) (*Run, error) { return readRun(dir, &Run{outline: true}) }

// Scan is ReadOutline, and calls f with each event, in order. f must not keep the events.
func Scan(dir string, f func(Event)) (*Run, error) { return readRun(dir, &Run{outline: true, tell: f}) }

// readRun reads the run in dir into run.
func readRun(dir string, run *Run) (*Run, error) {
	f, segments, err := openEvents(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read run %q: it holds no %s; name the directory that --out named: %w", dir, eventsFile, kintsugi.ErrUsage)
	}
	if err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	run.Dir, run.account = dir, &Account{}
	for _, s := range segments {
		if err = run.readSegment(s); err != nil {
			break
		}
	}
	if run.whole = 0; err == nil {
		err = run.readEvents(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read run %q: %w", dir, err)
	}
	if run.Config, err = os.ReadFile(filepath.Join(dir, configFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read run %q: %w", dir, err)
	}
	if err := run.readSummary(); err != nil {
		return nil, fmt.Errorf("read run %q: %w", dir, err)
	}
	return run, nil
}

// NewRun returns the run with the given events, for tests and for runs that exist only in memory,
// such as simulated ones.
func NewRun(events []Event, config []byte) *Run {
	run := &Run{Config: config, account: &Account{}}
	for _, e := range events {
		if f, ok := e.(*Failure); ok && f.Step == 0 {
			f.Step = run.account.Newest()
		}
		for _, d := range run.add(e) {
			run.Recoveries = append(run.Recoveries, *d)
		}
	}
	run.Summary = run.sum()
	return run
}

// sum returns the totals of the events.
func (run *Run) sum() Summary {
	s := run.account.Summary()
	s.Format, s.Config = Format, string(run.Config)
	return s
}

// clone returns a copy that does not change when events are added to an outline.
func (run *Run) clone() *Run {
	c, account := *run, *run.account
	c.Checkpoints, c.Outline, c.account = slices.Clone(run.Checkpoints), run.Outline.clone(), &account
	return &c
}

var errFormat = errors.New("use a newer kintsugi")

// readEvents reads a file of events.
func (run *Run) readEvents(f io.Reader) error {
	done := make(chan struct{})
	defer close(done)
	for b := range parsed(f, done) {
		<-b.ready
		run.whole += b.whole
		run.Skipped += b.skipped
		for _, e := range b.events {
			if h, ok := e.(*Header); ok && h.Format > Format {
				return fmt.Errorf("its format is %d and this version reads up to %d; %w: %w", h.Format, Format, errFormat, kintsugi.ErrOtherModel)
			}
			run.add(e)
			if run.tell != nil {
				run.tell(e)
			}
		}
		if b.err != nil {
			return b.err
		}
	}
	return nil
}

// step adds a step.
func (run *Run) step(e *Step) {
	if run.Outline.Steps == 0 {
		run.First = *e
	}
	run.Newest = *e
	run.Outline.add(e)
	if !run.outline {
		run.Steps = append(run.Steps, *e)
	}
}

// checkpoint adds a checkpoint. An outline keeps only the newest save of each shard in the running
// checkpoint, since there may be one every few steps.
func (run *Run) checkpoint(e *Checkpoint) {
	if run.outline && e.Running {
		if i, ok := run.saves[e.Shard]; ok && e.Error == "" {
			run.Checkpoints[i] = *e
			return
		}
		if run.saves == nil {
			run.saves = make(map[uint32]int)
		}
		if run.saves[e.Shard] = len(run.Checkpoints); e.Error != "" {
			delete(run.saves, e.Shard) // failed saves are kept, so later saves are appended after them
		}
	}
	run.Checkpoints = append(run.Checkpoints, *e)
}

func (run *Run) add(e Event) []*Recovery {
	switch e := e.(type) {
	case *Header:
		run.latest = *e
		if run.Header.Format == 0 {
			run.Header = *e
		}
	case *Step:
		run.step(e)
	case *Failure:
		run.Failures = append(run.Failures, *e)
	case *Recovery:
		run.Recoveries = append(run.Recoveries, *e)
	case *View:
		run.Views = append(run.Views, *e)
	case *Checkpoint:
		run.checkpoint(e)
	case *Partial:
		run.Partials = append(run.Partials, *e)
	case *Exposure:
		run.Exposures = append(run.Exposures, *e)
	case *Rework:
		run.Reworks = append(run.Reworks, *e)
	case *Presence:
		run.Presences = append(run.Presences, *e)
	case *Life:
		run.Lives = append(run.Lives, *e)
	case *Timeline:
		run.Timelines = append(run.Timelines, *e)
	case *Evaluation:
		run.Evaluations = append(run.Evaluations, *e)
	case *Fault:
		run.Faults = append(run.Faults, *e)
	case *Note:
		run.Notes = append(run.Notes, *e)
	}
	return run.account.Add(e)
}

func (run *Run) readSummary() error {
	text, err := os.ReadFile(filepath.Join(run.Dir, summaryFile))
	if errors.Is(err, fs.ErrNotExist) {
		run.Summary = run.sum()
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &run.Summary); err != nil {
		return fmt.Errorf("%s: %w; remove it, and it is computed from %s", summaryFile, err, eventsFile)
	}
	return nil
}
