package record

import (
	"bufio"
	"bytes"
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

// Run is a run as its directory tells it. The events of each kind are in the order of the file.
type Run struct {
	Dir         string
	Header      Header // the first
	Config      []byte // nil if the file is gone
	Steps       []Step
	Failures    []Failure
	Recoveries  []Recovery
	Views       []View
	Checkpoints []Checkpoint
	Partials    []Partial
	Exposures   []Exposure
	Reworks     []Rework
	Presences   []Presence
	Lives       []Life
	Timelines   []Timeline
	Evaluations []Evaluation
	Faults      []Fault
	Notes       []Note

	// Summary is summary.json if the run ended, else what the events add up to.
	Summary Summary

	// Skipped counts lines that could not be read: a hole that a full disk left, or a torn end.
	Skipped int

	latest  Header // the newest
	whole   int64  // bytes of the events up to the last whole line
	account *Account
	outline bool
	size    int64 // of the file
}

// maxLine bounds a line of events: a step that counted 100,000 gradients is well below.
const maxLine = 4 << 20

// Has reports whether dir holds the events of a run.
func Has(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, eventsFile))
	return err == nil
}

// ReadRun reads the run in dir. A run that is still going on, or whose launcher died, can be read as
// well. Lines that are torn or of a kind from a later version are skipped. A format of a later version
// wraps kintsugi.ErrOtherModel, a directory without events kintsugi.ErrUsage.
func ReadRun(dir string) (*Run, error) { return readRun(dir, true) }

// ReadOutline is ReadRun without what each gradient took (Step.Times), of which there is a number for each worker and step.
func ReadOutline(dir string) (*Run, error) { return readRun(dir, false) }

func readRun(dir string, times bool) (*Run, error) {
	f, err := os.Open(filepath.Join(dir, eventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read run %q: it holds no %s; name the directory that --out named: %w", dir, eventsFile, kintsugi.ErrUsage)
	}
	if err != nil {
		return nil, fmt.Errorf("read run: %w", err)
	}
	run := &Run{Dir: dir, account: &Account{}, outline: !times}
	if info, err := f.Stat(); err == nil {
		run.size = info.Size()
	}
	err = errors.Join(run.readEvents(f), f.Close())
	if err != nil {
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

// NewRun returns the run that the events make, as if they had been recorded: for tests and for runs
// that exist only in memory, such as simulated ones.
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
	run.Summary = run.account.Summary()
	run.Summary.Format, run.Summary.Config = Format, string(config)
	return run
}

func (run *Run) readEvents(f io.Reader) error {
	in := bufio.NewReaderSize(f, 64<<10)
	for {
		line, n, err := readLine(in)
		if errors.Is(err, io.EOF) {
			if n > 0 {
				run.Skipped++ // without its newline it may be cut anywhere, also where it still parses
			}
			return nil
		}
		if err != nil {
			return err
		}
		run.whole += n
		e, err := parseEvent(bytes.TrimSpace(line))
		if err != nil {
			run.Skipped++
			continue
		}
		if e == nil {
			continue
		}
		if h, ok := e.(*Header); ok && h.Format > Format {
			return fmt.Errorf("its format is %d and this version reads up to %d; use a newer kintsugi: %w", h.Format, Format, kintsugi.ErrOtherModel)
		}
		run.add(e)
	}
}

// readLine returns the next line with its newline, and its length. Of a line above maxLine, such as zeros that a crash of the machine has left, it
// returns only the length.
func readLine(in *bufio.Reader) (line []byte, n int64, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if n += int64(len(part)); n <= maxLine {
			line = append(line, part...)
		} else {
			line = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, n, err
		}
	}
}

// kept returns what is kept of a step. Lists that are those of the step before, as most are, are kept once.
func (run *Run) kept(s Step) Step {
	if run.outline {
		s.Times = nil
	}
	if n := len(run.Steps); n > 0 {
		if before := run.Steps[n-1].Counted; len(before) > 0 && slices.Equal(before, s.Counted) {
			s.Counted = before
		}
		if before := run.Steps[n-1].Stalenesses; len(before) > 0 && slices.Equal(before, s.Stalenesses) {
			s.Stalenesses = before
		}
	}
	return s
}

func (run *Run) add(e Event) []*Recovery {
	switch e := e.(type) {
	case *Header:
		run.latest = *e
		if run.Header.Format == 0 {
			run.Header = *e
		}
	case *Step:
		if n := len(run.Steps); n == cap(run.Steps) && n > 1<<16 && run.size > run.whole { // room for those to come, or all would be copied again and again
			rest := float64(n) / float64(run.whole) * float64(run.size-run.whole)
			run.Steps = slices.Grow(run.Steps, int(min(1<<20, rest))+1)
		}
		run.Steps = append(run.Steps, run.kept(*e))
	case *Failure:
		run.Failures = append(run.Failures, *e)
	case *Recovery:
		run.Recoveries = append(run.Recoveries, *e)
	case *View:
		run.Views = append(run.Views, *e)
	case *Checkpoint:
		run.Checkpoints = append(run.Checkpoints, *e)
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
		run.Summary = run.account.Summary()
		run.Summary.Format, run.Summary.Config = Format, string(run.Config)
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
