package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

var begin = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return begin.Add(time.Duration(seconds * float64(time.Second)))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, dir string) *Recorder {
	t.Helper()
	r, err := Create(dir, []byte("workers: 2\n"), Header{Start: begin, Model: "lenet", Workers: 2})
	must(t, err)
	return r
}

// released is a step as a watcher of a run sees it.
func released(line, step int, seconds float64) kintsugi.StepEvent {
	return kintsugi.StepEvent{
		Line: kintsugi.Line(line), Step: kintsugi.Step(step), Time: at(seconds), Loss: 1 / float64(step),
		Counted: []kintsugi.PushID{{Slot: 0}, {Slot: 1}}, Workers: 2, Quota: 2, Examples: 64, Norm: math.NaN(),
		Apply: time.Millisecond, Pushed: 1000, Pulled: 2000,
	}
}

// A run goes on while its monitor is away. Steps that the monitor hears of later have their own
// times, and nodes were paid for meanwhile.
func TestTheTimeOfARunThatWentOnWithoutItsRecordGoesOn(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	at := func(second float64) time.Time { return start.Add(time.Duration(second * float64(time.Second))) }
	for wentOn, want := range map[bool][]float64{true: {60, 110}, false: {20, 70}} {
		dir := t.TempDir()
		r, err := Create(dir, nil, Header{Start: start, Servers: 1, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		r.Record(at(10), &Step{Line: 1, Step: 1})
		r.Record(at(10), &Life{Part: "worker/0"})
		if _, err := r.Finish(at(10), ""); err != nil {
			t.Fatal(err)
		}
		r, _, err = Resume(dir, Header{Start: at(50), Servers: 1, Workers: 1}, func(*Run) bool { return wentOn })
		if err != nil {
			t.Fatal(err)
		}
		r.Record(at(11), &Step{Line: 1, Step: 2}) // with the conductor's number
		r.Record(at(60), &Step{Line: 1, Step: 3})
		r.Record(at(110), &Life{Part: "worker/0", BeganSeconds: r.Seconds(at(100))})
		ended, err := r.Finish(at(110), "")
		if err != nil {
			t.Fatal(err)
		}
		s := ended.Summary
		run, err := ReadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		if missed := run.Steps[1].Seconds; wentOn && missed != 11 {
			t.Errorf("the step at 11 s was at %v s", missed)
		}
		if got := []float64{run.Steps[2].Seconds, s.WallSeconds}; !slices.Equal(got, want) {
			t.Errorf("it went on: %v: steps and the end at %v, want %v", wentOn, got, want)
		}
		away := 0.0
		if wentOn {
			away = 90 // from 10 to 100
		}
		if all, workers := s.Cost.NodeSeconds, s.Cost.AbsentSeconds.Worker; all.Server != want[1] || all.Worker != want[1] || workers != away {
			t.Errorf("it went on: %v: node-seconds %+v, of workers %v absent; want %v of each role and %v", wentOn, all, workers, want[1], away)
		}
	}
}

func TestWhatIsRecordedIsReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "demo")
	r := create(t, dir)
	took := []kintsugi.GradientTime{
		{Slot: 1, Compute: 1234 * time.Microsecond, Transfer: 56 * time.Microsecond},
		{Slot: 0, Compute: time.Hour, Transfer: time.Second, Fate: kintsugi.Late},
		{Slot: 1 << 31, Compute: 1999 * time.Nanosecond, Fate: kintsugi.GivenUp},
	}
	for i := 1; i <= 5; i++ {
		e := released(1, i, float64(i))
		if i == 2 {
			e.Times = took
		}
		r.Step(e)
	}
	r.Record(at(5.5), &Failure{Part: "server/0", Cause: "killed by a fault", Incarnation: 1, Injected: true})
	r.Record(at(6), ViewOf(kintsugi.View{Number: 2, Line: 2, RestoreStep: 3, Reason: "server/0 died",
		Servers: []kintsugi.Member{{Server: 0, Incarnation: 2}}}))
	for i := 4; i <= 6; i++ {
		r.Step(released(2, i, float64(i)+3))
	}
	r.Step(released(2, 7, 10))
	r.Record(at(10), CheckpointOf(kintsugi.CheckpointEvent{Line: 2, Step: 7, Manifest: "m7", Bytes: 99, Took: time.Second}))
	r.Record(at(10), &Evaluation{Line: 2, Step: 7, Loss: 0.1, Accuracy: 0.9, Examples: 100})
	r.Record(at(10), &Fault{Action: "kill", Part: "server/0", Fault: "kill server/0 at step 5"})
	r.Record(at(10), &Partial{Part: "server/0", Chunks: 3, OldestStep: 2, ReworkSteps: Unknown()})
	ended, err := r.Finish(at(11), "done")
	must(t, err)
	summary := ended.Summary

	run, err := ReadRun(dir)
	must(t, err)
	if len(run.Steps) != 9 || len(run.Failures) != 1 || len(run.Views) != 1 || len(run.Checkpoints) != 1 || len(run.Recoveries) != 2 ||
		len(run.Evaluations) != 1 || len(run.Faults) != 1 || len(run.Partials) != 1 || len(run.Notes) != 1 || run.Skipped != 0 {
		t.Errorf("read %+v", run)
	}
	if f := run.Failures[0]; f.Step != 5 || f.Seconds != 5.5 {
		t.Errorf("failure %+v, want step 5 at 5.5 s", f)
	}
	if run.Header.Model != "lenet" || run.Header.Format != Format || !run.Header.Start.Equal(begin) || string(run.Config) != "workers: 2\n" {
		t.Errorf("header %+v, config %q", run.Header, run.Config)
	}
	if s := run.Steps[0]; s.Norm.Known() || s.Loss != 1 || !reflect.DeepEqual(s.Counted, []uint32{0, 1}) || s.ApplySeconds != 0.001 {
		t.Errorf("first step %+v", s)
	}
	took[2].Compute = time.Microsecond // cut off
	if got := run.Steps[1].Times; len(run.Steps[0].Times) > 0 || !reflect.DeepEqual(got, tookOf(took)) {
		t.Errorf("times %+v, then %+v; want none, then %+v", run.Steps[0].Times, got, tookOf(took))
	}
	if got := asJSON(t, run.Summary); got != asJSON(t, summary) {
		t.Errorf("summary read back as\n%s\nwant\n%s", got, asJSON(t, summary))
	}

	// Without the summary, the events alone give the same numbers.
	must(t, os.Remove(filepath.Join(dir, "summary.json")))
	run, err = ReadRun(dir)
	must(t, err)
	run.Summary.Reason = "done"
	if got := asJSON(t, run.Summary); got != asJSON(t, summary) {
		t.Errorf("summary from the events\n%s\nwant\n%s", got, asJSON(t, summary))
	}
}

func TestTimesOfGradientsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, text := range []string{`[]`, `[1,2]`, `[-1,2,3]`, `[4294967296,2,3]`, `[1,-2,3]`, `[1,2,9223372036854775807]`, `[1,2,3,256]`, `[1,2.5,3]`, `{}`, `null`} {
		var got Took
		if err := got.UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%s is read as %+v", text, got)
		}
	}
	var got Took
	if err := got.UnmarshalJSON([]byte(`[7,1000,20,2,"later"]`)); err == nil {
		t.Errorf("a text among the numbers is read as %+v", got)
	}
	if err := got.UnmarshalJSON([]byte(`[7,1000,20,2,99]`)); err != nil || got != (Took{7, time.Millisecond, 20 * time.Microsecond, kintsugi.GivenUp}) {
		t.Errorf("what a later version added: %+v, %v", got, err)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	must(t, err)
	return string(text)
}

func TestSummaryHasItsPromisedFields(t *testing.T) {
	var fields map[string]any
	must(t, json.Unmarshal([]byte(asJSON(t, (&Account{}).Summary())), &fields))
	for _, name := range []string{"steps", "final_loss", "final_test_loss", "final_accuracy", "wall_seconds", "samples_per_second", "failures",
		"rework_steps", "recovery_seconds", "bytes_pushed", "bytes_pulled", "checkpoint_bytes", "config"} {
		if _, found := fields[name]; !found {
			t.Errorf("summary.json has no %s", name)
		}
	}
	if fields["failures"] == nil || fields["recovery_seconds"] == nil {
		t.Error("empty lists are null; want []")
	}
}

func TestADirectoryInUseIsRefusedWithAWayOut(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o666))
	_, err := Create(dir, nil, Header{})
	if !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), "thesis.tex") || !strings.Contains(err.Error(), "--out") {
		t.Errorf("got %v", err)
	}
	if strings.Contains(err.Error(), "--resume") {
		t.Errorf("a folder that holds no run cannot be resumed: %v", err)
	}

	dir = filepath.Join(t.TempDir(), "run")
	r := create(t, dir)
	if _, err := Create(dir, nil, Header{}); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), "--resume") {
		t.Errorf("got %v", err)
	}
	if _, err := Hold(dir); err == nil || !strings.Contains(err.Error(), "its run is running") {
		t.Errorf("hold a run that is running: %v", err)
	}
	if _, _, err := Resume(dir, Header{Start: begin}, nil); err == nil || !strings.Contains(err.Error(), "another process is writing") {
		t.Errorf("resume of a run that goes on: %v", err)
	}
	_, err = r.Finish(at(1), "done")
	must(t, err)
	release, err := Hold(dir)
	must(t, err)
	if _, _, err := Resume(dir, Header{Start: begin}, nil); err == nil {
		t.Error("a run that is held goes on")
	}
	must(t, release())
	r, _, err = Resume(dir, Header{Start: begin}, nil)
	must(t, err)
	_, err = r.Finish(at(2), "done")
	must(t, err)
}

func TestADirectoryThatCannotBeWrittenIsSaidToBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o666))
	if _, err := Create(filepath.Join(file, "run"), nil, Header{}); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("got %v", err)
	}
}

func TestAResumedRunGoesOnWhereItStopped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r := create(t, dir)
	r.Step(released(1, 1, 1))
	r.Step(released(1, 2, 2))
	_, err := r.Finish(at(3), "interrupted")
	must(t, err)
	// The launcher dies while it writes a line.
	f, err := os.OpenFile(filepath.Join(dir, "events.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(`{"kind":"step","seconds":3,"li`)
	must(t, err)
	must(t, f.Close())

	r, before, err := Resume(dir, Header{Start: at(1000)}, nil)
	must(t, err)
	r.Step(released(2, 3, 1001))
	if before.Outline.Steps != 2 || len(before.Outline.Spans) != 2 || before.Newest.Step != 2 || before.Skipped != 1 {
		t.Errorf("before: %d steps, %d lines skipped; want 2 and 1", before.Outline.Steps, before.Skipped)
	}
	ended, err := r.Finish(at(1001), "done")
	must(t, err)
	if s := ended.Summary; s.Steps != 3 || s.WallSeconds != 4 || s.BytesPushed != 3000 {
		t.Errorf("summary: step %d, %v s, %d bytes pushed; want 3, 4, 3000", s.Steps, s.WallSeconds, s.BytesPushed)
	}
	run, err := ReadRun(dir)
	must(t, err)
	if len(run.Steps) != 3 || run.Steps[2].Seconds != 4 || run.Skipped != 0 || run.Header.Resumed {
		t.Errorf("read %d steps, the last at %v s, %d lines skipped", len(run.Steps), run.Steps[2].Seconds, run.Skipped)
	}
}

func TestResumeNeedsARun(t *testing.T) {
	if _, _, err := Resume(t.TempDir(), Header{}, nil); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("got %v, want ErrUsage", err)
	}
	if _, err := ReadRun(t.TempDir()); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("got %v, want ErrUsage", err)
	}
}

// A machine that goes down may leave any number of zeros where events were.
func TestALineWithoutAnEndIsSkipped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r, err := Create(dir, nil, Header{Start: begin})
	must(t, err)
	r.Record(at(1), &Step{Line: 1, Step: 1})
	_, err = r.Finish(at(1), "done")
	must(t, err)
	path := filepath.Join(dir, eventsFile)
	events, err := os.ReadFile(path)
	must(t, err)
	zeros := make([]byte, maxLine+maxLine/2)
	must(t, os.WriteFile(path, slices.Concat(events, zeros, []byte("\n"), events, zeros), 0o666))
	run, err := ReadRun(dir)
	must(t, err)
	if len(run.Steps) != 2 || run.Skipped != 2 {
		t.Errorf("read %d steps, skipped %d lines; want 2 and 2", len(run.Steps), run.Skipped)
	}
	r, _, err = Resume(dir, Header{Start: at(5)}, nil)
	must(t, err)
	_, err = r.Finish(at(6), "done")
	must(t, err)
	if run, err = ReadRun(dir); err != nil || len(run.Steps) != 2 || run.Skipped != 1 {
		t.Errorf("%d steps and %d lines skipped after it was resumed, %v; want 2 and 1", len(run.Steps), run.Skipped, err)
	}
}

func TestLinesOfLaterVersionsAreSkippedAndLaterFormatsRefused(t *testing.T) {
	dir := t.TempDir()
	events := filepath.Join(dir, "events.jsonl")
	must(t, os.WriteFile(events, []byte(`{"kind":"run","seconds":0,"format":1}
{"kind":"omen","seconds":1}
{"seconds":2,"line":1,"step":1,"loss":0.5,"kind":"step","colour":"gold"}
not json
`), 0o666))
	run, err := ReadRun(dir)
	must(t, err)
	if len(run.Steps) != 1 || run.Steps[0].Loss != 0.5 || run.Skipped != 1 {
		t.Errorf("read %d steps, skipped %d; want 1 and 1", len(run.Steps), run.Skipped)
	}
	must(t, os.WriteFile(events, []byte(`{"kind":"run","seconds":0,"format":2}`+"\n"), 0o666))
	if _, err := ReadRun(dir); !errors.Is(err, kintsugi.ErrOtherModel) {
		t.Errorf("format 2: %v, want ErrOtherModel", err)
	}
}

func TestAFullDiskDoesNotEndTheAccounting(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r := create(t, dir)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this machine has no /dev/full")
	}
	good := r.file
	r.file = full
	r.w.Reset(full)
	r.Step(released(1, 1, 1))
	r.Step(released(1, 2, 3)) // more than a second later, so it is flushed
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("error %v, want no space left", err)
	}
	r.file = good // there is room on the disk again
	r.w.Reset(good)
	must(t, full.Close())
	r.Step(released(1, 3, 5))
	ended, err := r.Finish(at(6), "done")
	if s := ended.Summary; err == nil || s.Steps != 3 || s.BytesPushed != 3000 {
		t.Errorf("step %d, %d bytes, error %v; want 3, 3000 and the first error", ended.Summary.Steps, ended.Summary.BytesPushed, err)
	}
	run, err := ReadRun(dir)
	must(t, err)
	if n := len(run.Steps); n != 1 || run.Steps[n-1].Step != 3 {
		t.Errorf("read %d steps; want the one that was written after there was room", n)
	}
}

// Whatever a file contains, reading it returns a run or an error.
func FuzzParseEvent(f *testing.F) {
	f.Add([]byte(`{"kind":"step","seconds":1,"loss":null,"counted":[0,1]}`))
	f.Add([]byte(`{"kind":"`))
	f.Add([]byte(`{"kind":"run","seconds":1e999}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := parseEvent(line)
		if err != nil || e == nil {
			return
		}
		text, err := appendEvent(nil, e)
		if err != nil {
			t.Fatalf("%q was read and cannot be written: %v", line, err)
		}
		if _, err := parseEvent(text[:len(text)-1]); err != nil {
			t.Fatalf("%q was read, written as %q, and not read again: %v", line, text, err)
		}
	})
}

// FuzzEvents reads arbitrary lines as the events of a run, and adds them up.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"kind":"run","seconds":0,"format":1,"servers":2,"workers":3,"replicas":1,"prices":"server=1"}
{"kind":"view","seconds":0.1,"number":1,"line":1,"fence":1,"heads":[0,1]}
{"kind":"step","seconds":1,"line":1,"step":1,"loss":3,"counted":[0,1],"staleness_each":[0,1],"times":[[0,1,2]]}
{"kind":"failure","seconds":1.5,"part":"server/0","seen_seconds":1.6}
{"kind":"life","seconds":1.6,"part":"server/0","began_seconds":0,"cpu_seconds":1}
{"kind":"view","seconds":2,"number":2,"line":2,"fence":2,"restored_step":0,"heads":[1,1]}
{"kind":"step","seconds":3,"line":2,"step":1,"loss":3,"counted":[0,1]}
{"kind":"partial","seconds":3,"part":"server/0","chunks":3,"mean_age_steps":2}
`))
	f.Add([]byte(`{"kind":"step","seconds":1,"line":1,"step":18446744073709551615,"counted":[0]}
{"kind":"view","line":3,"restored_step":9223372036854775807}
{"kind":"step","line":3,"step":0}
`))
	f.Add([]byte(`{"kind":"step","line":1,"step":1}
{"kind":"failure","part":"server/0"}
{"kind":"view","line":2}
{"kind":"step","seconds":1,"line":2}
{"kind":"partial","part":"server/0"}
`))
	f.Fuzz(func(t *testing.T, lines []byte) {
		run := &Run{account: &Account{}}
		if err := run.readEvents(bytes.NewReader(lines)); err != nil {
			return
		}
		if _, err := json.Marshal(run.account.Summary()); err != nil {
			t.Fatalf("a summary that cannot be written: %v", err)
		}
	})
}

// Times are read as encoding/json reads lists of numbers, however they are written.
func TestTimesAreReadAsJSON(t *testing.T) {
	for _, text := range []string{
		"[0,1,2]", "[4294967295,1091,543]", "[1,2,3,1]", "[1,2,3,4,5,6,7,8,9]", " [1, 2 ,3]", "[1,2,3\n]", "[]", "[1]", "[1e3,2,3]", "[-1,2,3]", "[1,2,9223372036854775807]", "[1,2,9223372036854775808]",
		"[1,[2],3]", "[1,null,3]", "null", "{}", "[1.5,2,3]", `["1",2,3]`,
	} {
		var want []int64
		err := json.Unmarshal([]byte(text), &want)
		if got, ok := numbers([]byte(text)); ok && (err != nil || !slices.Equal(got, want)) {
			t.Errorf("%s is read as %v; json: %v, %v", text, got, want, err)
		}
	}
	if _, ok := numbers([]byte("[1,1091,543,2]")); !ok {
		t.Error("times are not read as they are written")
	}
}
