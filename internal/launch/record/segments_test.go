package record

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// long records n steps, from step first on, in a folder whose file is cut every few steps.
func long(t *testing.T, r *Recorder, first, n int) {
	t.Helper()
	r.limit = 4 << 10
	for i := first + 1; i <= first+n; i++ {
		r.Record(at(float64(2*i)), &Step{Line: 1, Step: uint64(i), Loss: 1, Counted: []uint32{0, 1}}) // two seconds apart, so that each is flushed
	}
}

// hasSteps fails unless the run in dir has steps 1 to n, in order, and nothing else.
func hasSteps(t *testing.T, dir string, n int) {
	t.Helper()
	run, err := ReadRun(dir)
	must(t, err)
	if len(run.Steps) != n || run.Skipped != 0 {
		t.Fatalf("%d steps are read, and %d lines skipped; want %d and 0", len(run.Steps), run.Skipped, n)
	}
	for i, s := range run.Steps {
		if s.Step != uint64(i+1) {
			t.Fatalf("step %d is read where step %d should be", s.Step, i+1)
		}
	}
}

// filesOf returns the names of the files of events in dir.
func filesOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "events") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestALongRecordIsCutAndPacked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r, err := Create(dir, nil, Header{Start: begin, Servers: 1, Workers: 2})
	must(t, err)
	long(t, r, 0, 200)
	ended, err := r.Finish(at(500), "interrupted")
	must(t, err)
	hasSteps(t, dir, 200)
	first := filesOf(t, dir)
	if !slices.Contains(first, "events-000001.jsonl.zst") || !slices.Contains(first, "events.jsonl") || len(first) < 8 {
		t.Fatalf("its files are %q", first)
	}
	for _, name := range first {
		if name != eventsFile && !strings.HasSuffix(name, ".jsonl.zst") {
			t.Errorf("%s is left", name)
		}
	}
	same(t, dir, ended)

	r, _, err = Resume(dir, Header{Start: at(1000), Servers: 1, Workers: 2}, nil)
	must(t, err)
	r.start = begin
	long(t, r, 200, 100)
	_, err = r.Finish(at(900), "done")
	must(t, err)
	hasSteps(t, dir, 300)
	if now := filesOf(t, dir); len(now) <= len(first) {
		t.Errorf("files %q after it went on, %q before", now, first)
	}
}

// Wherever a process dies while it cuts the file, each event is found once, by readers and by the
// run when it goes on.
func TestACutThatIsNotEndedLosesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(dir string) error
		files []string // files after the run went on
	}{
		"a file to take its place": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "events.jsonl.next"), nil, 0o666)
		}, []string{"events-000001.jsonl.zst", "events.jsonl"}},
		"the new name beside the old": {func(dir string) error {
			return os.Link(filepath.Join(dir, "events.jsonl"), filepath.Join(dir, "events-000002.jsonl"))
		}, []string{"events-000001.jsonl.zst", "events.jsonl"}},
		"cut, and not packed": {func(dir string) error {
			path := filepath.Join(dir, "events.jsonl")
			return firstOf(os.Rename(path, filepath.Join(dir, "events-000002.jsonl")), os.WriteFile(path, nil, 0o666))
		}, []string{"events-000001.jsonl.zst", "events-000002.jsonl.zst", "events.jsonl"}},
		"half packed": {func(dir string) error {
			path := filepath.Join(dir, "events.jsonl")
			return firstOf(os.Rename(path, filepath.Join(dir, "events-000002.jsonl")), os.WriteFile(path, nil, 0o666),
				os.WriteFile(filepath.Join(dir, "events-000002.jsonl.zst.tmp123"), []byte("half"), 0o666))
		}, []string{"events-000001.jsonl.zst", "events-000002.jsonl.zst", "events.jsonl"}},
		"packed, and not removed": {func(dir string) error {
			path := filepath.Join(dir, "events-000001.jsonl")
			text, err := readPacked(dir, segment{number: 1})
			return firstOf(err, os.WriteFile(path, text, 0o666))
		}, []string{"events-000001.jsonl.zst", "events.jsonl"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			r, err := Create(dir, nil, Header{Start: begin, Servers: 1, Workers: 2})
			must(t, err)
			long(t, r, 0, 20)
			_, err = r.Finish(at(100), "interrupted")
			must(t, err)
			if got := filesOf(t, dir); !slices.Equal(got, []string{"events-000001.jsonl.zst", "events.jsonl"}) {
				t.Fatalf("its files are %q", got)
			}
			must(t, c.leave(dir))
			hasSteps(t, dir, 20)
			r, run, err := Resume(dir, Header{Start: at(1000), Servers: 1, Workers: 2}, nil)
			must(t, err)
			if run.Outline.Steps != 20 || run.Skipped != 0 {
				t.Fatalf("it goes on with %d steps", run.Outline.Steps)
			}
			r.start = begin
			r.Record(at(101), &Step{Line: 1, Step: 21})
			_, err = r.Finish(at(102), "done")
			must(t, err)
			hasSteps(t, dir, 21)
			if got := filesOf(t, dir); !slices.Equal(got, c.files) {
				t.Errorf("its files are %q, want %q", got, c.files)
			}
		})
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func readPacked(dir string, s segment) ([]byte, error) {
	f, err := s.open(dir, true)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var text []byte
	buf := make([]byte, 1<<10)
	for {
		n, err := f.Read(buf)
		if text = append(text, buf[:n]...); err != nil {
			return text, nil
		}
	}
}

// A segment that is damaged or missing leaves a gap.
func TestADamagedSegmentIsAHole(t *testing.T) {
	race.Skip(t)
	dir := filepath.Join(t.TempDir(), "run")
	r, err := Create(dir, nil, Header{Start: begin, Servers: 1, Workers: 2})
	must(t, err)
	long(t, r, 0, 100)
	_, err = r.Finish(at(300), "done")
	must(t, err)
	path := filepath.Join(dir, "events-000002.jsonl.zst")
	text, err := os.ReadFile(path)
	must(t, err)
	for i := range text {
		damaged := slices.Clone(text)
		damaged[i] ^= 0x20
		must(t, os.WriteFile(path, damaged, 0o666))
		run, err := ReadRun(dir)
		if err != nil || run.Newest.Step != 100 || run.First.Step != 1 {
			t.Fatalf("byte %d: steps %d to %d are read, %v", i, run.First.Step, run.Newest.Step, err)
		}
		if len(run.Steps) < 100 && run.Skipped == 0 {
			t.Errorf("byte %d: %d steps are missing without a word", i, 100-len(run.Steps))
		}
	}
	must(t, os.Remove(path))
	if run, err := ReadRun(dir); err != nil || run.Newest.Step != 100 || len(run.Steps) >= 100 {
		t.Errorf("without it %d steps are read, %v", len(run.Steps), err)
	}
}

// A reader of a run that goes on finds all steps up to one, each once.
func TestARunIsReadWhileItIsCut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r, err := Create(dir, nil, Header{Start: begin, Servers: 1, Workers: 2})
	must(t, err)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for before := 0; ; {
				select {
				case <-done:
					return
				default:
				}
				run, err := ReadRun(dir)
				if err != nil {
					t.Error(err)
					return
				}
				for i, s := range run.Steps {
					if s.Step != uint64(i+1) {
						t.Errorf("step %d is read where step %d should be", s.Step, i+1)
						return
					}
				}
				if len(run.Steps) < before {
					t.Errorf("%d steps are read, and were %d", len(run.Steps), before)
				}
				before = len(run.Steps)
			}
		})
	}
	long(t, r, 0, 3000)
	close(done)
	wg.Wait()
	_, err = r.Finish(at(7000), "done")
	must(t, err)
	hasSteps(t, dir, 3000)
	if names := filesOf(t, dir); len(names) < 50 {
		t.Errorf("its files are %q", names)
	}
}

// If the file system has no links, or allows no new files, a folder has a single long file.
func TestARecordThatCannotBeCutGrowsOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r, err := Create(dir, nil, Header{Start: begin, Servers: 1, Workers: 2})
	must(t, err)
	for i := range 100 { // the names are taken
		must(t, os.Mkdir(filepath.Join(dir, fmt.Sprintf(segmentForm, i+1)), 0o777))
	}
	long(t, r, 0, 200)
	_, err = r.Finish(at(500), "done")
	must(t, err)
	for i := range 100 {
		must(t, os.Remove(filepath.Join(dir, fmt.Sprintf(segmentForm, i+1))))
	}
	if got := filesOf(t, dir); !slices.Equal(got, []string{"events.jsonl"}) {
		t.Errorf("its files are %q", got)
	}
	hasSteps(t, dir, 200)
}
