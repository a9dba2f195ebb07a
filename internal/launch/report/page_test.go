package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

var keep = flag.String("keep", "", "write the demo page to this file, to look at it")

func draw(t *testing.T, run *record.Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, run); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// namesAreFree checks that no label of a failure is written over the name of a panel in the same
// line. In a wide font, letters of a name are 6.4 pixels wide.
func namesAreFree(t *testing.T, page string) {
	t.Helper()
	texts := regexp.MustCompile(`<text class="(name|mark)" x="([0-9.]+)" y="([0-9.]+)">([^<]*)`)
	marks := 0
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1) {
		ends := map[string]float64{} // of names, by line
		for _, m := range texts.FindAllStringSubmatch(svg, -1) {
			x, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			if m[1] == "name" {
				ends[m[3]] = x + 6.4*float64(len(m[4]))
				continue
			}
			marks++
			if x < ends[m[3]] {
				t.Errorf("%q begins at %v, where the name of the panel ends at %v", m[4], x, ends[m[3]])
			}
		}
	}
	if marks == 0 {
		t.Error("no failure has a label")
	}
}

// wellFormed checks every SVG of the page as XML, which is stricter than a browser.
func wellFormed(t *testing.T, page string) {
	t.Helper()
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1) {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %.300s", err, svg)
			}
		}
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if strings.Contains(page, bad) {
			i := strings.Index(page, bad)
			t.Errorf("the page holds %q: %s", bad, page[max(0, i-80):min(len(page), i+40)])
		}
	}
}

func TestTheDemoRunTellsWhatItsFailuresCost(t *testing.T) {
	page := draw(t, record.NewRun(demo(600, 1)))
	if *keep != "" {
		if err := os.WriteFile(*keep, []byte(page), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	wellFormed(t, page)
	for _, want := range []string{
		"lenet on digits", "3 failures cost 4.72 s without a step and 2.55 s of doing 42 steps again: 16.0 % of the run.",
		`class="curve lost"`, `class="curve gold"`, `class="outage"`, `class="again"`, `class="mended"`, `class="checkpoint"`,
		"server/0, 42 steps again", "worker/5", "optimizer.learning-rate", "prefers-color-scheme: dark",
		"step 108", "worker/5 is 4.0 times slower than the median",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
}

func TestThePageNeedsNoNetwork(t *testing.T) {
	page := draw(t, record.NewRun(demo(300, 2)))
	for _, bad := range []string{"http:", "https:", "//cdn", "@import", "url(http", " src=", "<link"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}

func TestALongRunMakesASmallPage(t *testing.T) {
	run := record.NewRun(demo(100_000, 3))
	start := time.Now()
	page := draw(t, run)
	t.Logf("%d steps: %d bytes in %v", len(run.Steps), len(page), time.Since(start))
	if len(page) > 1_500_000 {
		t.Errorf("the page has %d bytes, want less than 1.5 MB", len(page))
	}
	wellFormed(t, page)
}

func TestTextFromOutsideIsEscaped(t *testing.T) {
	const evil = `<script>alert("x")</script>' onload="y`
	events, _ := demo(100, 4)
	events[0].(*record.Header).Model = evil
	events = append(events,
		&record.Failure{At: record.At{Seconds: 40}, Part: evil, Cause: evil},
		&record.Checkpoint{At: record.At{Seconds: 41}, Step: 100, Error: evil},
		&record.Note{Level: evil, Text: evil})
	for _, config := range []string{"model: " + evil + "\n", "{" + evil + "}"} {
		page := draw(t, record.NewRun(events, []byte(config)))
		if strings.Contains(page, "<script>alert") || strings.Contains(page, `onload="y`) {
			t.Errorf("text from outside became markup")
		}
		wellFormed(t, page)
	}
}

func TestStrangeRunsCanBeDrawn(t *testing.T) {
	unknown := record.Unknown()
	tests := map[string][]record.Event{
		"no events": nil,
		"no steps":  {&record.Header{Format: 1, Model: "lenet"}, &record.Failure{Part: "server/0"}},
		"one step":  {&record.Step{Line: 1, Step: 1, Loss: 1, Counted: []uint32{0}, Workers: 1, Quota: 1}},
		"no losses": {&record.Step{Line: 1, Step: 1, Loss: unknown}, &record.Step{At: record.At{Seconds: 1}, Line: 1, Step: 2, Loss: unknown}},
		"constant loss": {&record.Step{At: record.At{Seconds: 1}, Line: 1, Step: 1, Loss: 3},
			&record.Step{At: record.At{Seconds: 2}, Line: 1, Step: 2, Loss: 3}},
		"infinite loss": {&record.Step{At: record.At{Seconds: 1}, Line: 1, Step: 1, Loss: record.Number(math.Inf(1))},
			&record.Step{At: record.At{Seconds: 2}, Line: 1, Step: 2, Loss: 1e300}, &record.Step{At: record.At{Seconds: 3}, Line: 1, Step: 3, Loss: -1e300}},
		"same time":  {&record.Step{Line: 1, Step: 1, Loss: 2}, &record.Step{Line: 1, Step: 2, Loss: 1}},
		"large slot": {&record.Step{Line: 1, Step: 1, Loss: 2, Counted: []uint32{500}, Workers: 3}},
	}
	for name, events := range tests {
		t.Run(name, func(t *testing.T) {
			wellFormed(t, draw(t, record.NewRun(events, nil)))
		})
	}
}

func TestDrawWritesThePageIntoTheRunDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	start := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	r, err := record.Create(dir, []byte("model: lenet\n"), record.Header{Start: start, Model: "lenet"})
	if err != nil {
		t.Fatal(err)
	}
	r.Record(start.Add(time.Second), &record.Step{Line: 1, Step: 1, Loss: 0.5})
	if _, err := r.Finish(start.Add(2*time.Second), "done"); err != nil {
		t.Fatal(err)
	}
	path, err := Draw(dir)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil || path != filepath.Join(dir, "report.html") || !strings.Contains(string(page), "ended: done") {
		t.Errorf("%s: %v, %d bytes", path, err, len(page))
	}
}

func TestWhatWasLostAndWhatWasDoneAgainIsKnownByStep(t *testing.T) {
	var events []record.Event
	add := func(line uint64, lo, hi uint64) {
		for s := lo; s <= hi; s++ {
			events = append(events, &record.Step{Line: line, Step: s, Loss: record.Number(s)})
		}
	}
	add(1, 1, 5)
	add(2, 3, 6) // back to 2
	add(3, 5, 7) // back to 4
	s := tell(record.NewRun(events, nil))
	var b strings.Builder
	for _, p := range s.runs() {
		fmt.Fprintf(&b, "%d…%d %s; ", s.spans[p.lo].First, s.spans[p.hi-1].Last, [...]string{"kept", "lost", "again"}[p.kind])
	}
	want := "1…2 kept; 3…5 lost; 3…4 again; 5…6 lost; 5…6 again; 7…7 kept; "
	if b.String() != want {
		t.Errorf("got  %s\nwant %s", b.String(), want)
	}
	for i, at := range s.survivors() {
		if got := s.spans[at].Last; got != uint64(i+1) {
			t.Errorf("survivor %d is step %d", i+1, got)
		}
	}
	// Equal losses on equal histories have equal averages, whatever was lost in between.
	if s.smooth[5] != s.smooth[2] || s.smooth[6] != s.smooth[3] {
		t.Errorf("averages %v: the redone steps 3 and 4 differ from the lost ones", s.smooth)
	}
}

// silent returns a run whose quota has its reason only once, as a fixed quota does.
func silent(events []record.Event, config []byte) *record.Run {
	said := false
	for _, e := range events {
		if s, ok := e.(*record.Step); ok {
			if s.Reason = ""; !said {
				s.Reason, said = "all members", true
			}
		}
	}
	return record.NewRun(events, config)
}

// A quota that changes has its reasons on the page: not at every step, but at enough of them, and
// as text.
func TestTheQuotaSaysItsReasons(t *testing.T) {
	events, config := demo(600, 1)
	for _, e := range events {
		if s, ok := e.(*record.Step); ok {
			s.Reason = fmt.Sprintf("%d of <%d>", s.Quota, s.Workers)
		}
	}
	page := draw(t, record.NewRun(events, config))
	wellFormed(t, page)
	marks := strings.Count(page, `class="dot reason"`)
	if marks < reasonMarks/2 || marks > reasonMarks+1 || !strings.Contains(page, "of &lt;6&gt;") {
		t.Errorf("%d marks for reasons", marks)
	}
	if rows := strings.Count(page, `<td class="how">`) - strings.Count(draw(t, silent(events, config)), `<td class="how">`); rows < quotaRows/2 || rows > quotaRows {
		t.Errorf("%d rows of reasons, want at most %d", rows, quotaRows)
	}
}

// A shard that came back as it was saved has lost progress, although no step was taken back. The
// page must not say that nothing was lost.
func TestThePageTellsHowOldIsWhatCameBack(t *testing.T) {
	s := record.Summary{WallSeconds: 10, OutageSeconds: 1, Failures: []record.FailureCost{{Part: "server/1", PartialChunks: 3, PartialAge: 4.5, PartialRework: record.Unknown(), MeasuredRework: record.Unknown()}}}
	if got, want := verdict(s), "1 failure cost 1.00 s without a step; no step was taken back: 10.0 % of the run."; got != want {
		t.Errorf("verdict %q, want %q", got, want)
	}
	if got := rowOf(s.Failures[0]); got.Back != "3 chunks, 4.5 steps old" || got.Rework != "unknown" {
		t.Errorf("back to %q, rework %q; want 3 chunks, 4.5 steps old, and unknown", got.Back, got.Rework)
	}
}

// The page draws for each server what its loss would have cost. Real losses are dots, with the
// predictions beside the measurements.
func TestThePageTellsWhatALossWouldCost(t *testing.T) {
	events, config := demo(600, 1)
	for i := range 20 {
		e := &record.Exposure{At: record.At{Seconds: float64(2 * i)}, Step: uint64(15 * i), Calibration: 1, AgeSeconds: record.Number(i % 7), AgeSteps: record.Number(3 * i)}
		for s := range 3 {
			c := record.ServerCost{Part: fmt.Sprintf("server/%d", s), Steps: record.Number(float64(i%5) + float64(s)), Seconds: 1}
			if i < 3 || s == 2 {
				c.Steps = record.Unknown()
			}
			e.Servers = append(e.Servers, c)
		}
		events = append(events, e)
	}
	events = append(events, &record.Partial{At: record.At{Seconds: 35}, Part: "server/1", Chunks: 3, MeanAge: 4, Distance: 1, ReworkSteps: 3},
		&record.Rework{At: record.At{Seconds: 36}, Part: "server/1", Predicted: 3, Measured: 2, Deviation: 0.5, Calibration: 0.83, Failures: 1})
	page := draw(t, record.NewRun(events, config))
	wellFormed(t, page)
	for _, want := range []string{"What a loss would cost", "1 partial restore predicted to cost 3 steps, measured 2 ± 0.5; predictions are now multiplied by 0.83.",
		"3 chunks, 4 steps old", "≈ 3 (2 ± 0.5)", "server/0", `class="dot reason"`, "since the version that the newest checkpoint has"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not tell %q", want)
		}
	}
	namesAreFree(t, page)
	events, config = demo(100, 1)
	events = append(events, &record.Exposure{At: record.At{Seconds: 1}, Servers: []record.ServerCost{{Part: "server/0", Steps: record.Unknown(), Why: "the loss does not fall"}}})
	if page := draw(t, record.NewRun(events, config)); !strings.Contains(page, "Not known in 1 of 1 looks; at last: the loss does not fall.") {
		t.Error("the page does not tell that a cost is unknown")
	}
	if strings.Contains(draw(t, record.NewRun(demo(100, 1))), "What a loss would cost") {
		t.Error("nothing is known of costs, and they are drawn")
	}
}
