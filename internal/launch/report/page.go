package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"strings"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/words"
)

//go:embed page.html compare.html style.css pointer.js
var files embed.FS

// maxTableRows is the limit on rows in the table of failures.
const maxTableRows = 100

// page is the data of page.html.
type page struct {
	Style  template.CSS
	Script template.JS

	Title    string
	Subtitle []string
	Verdict  string // a sentence about what failures cost
	Tiles    []tile
	Failures []failureRow
	More     int // number of failures that the table leaves out
	Steps    template.HTML
	Time     template.HTML
	Counted  template.HTML
	Quotas   []quotaRow // for some steps, why they waited for as many gradients as they did
	OneStep  template.HTML
	StepKeys []stepKey
	Costs    template.HTML
	Bill     []billRow
	Priced   bool
	Paid     string // a sentence about the parts of the bill
	Foretold string // a sentence that compares predicted and measured costs, and says how often there was no prediction
	Legend   bool   // steps were lost and repeated
	Settings []setting
	Config   string // if it cannot be shown as a table
	Notes    []note
	Footer   []string
}

type tile struct{ Label, Value, Unit string }

type failureRow struct {
	When, Step, What, Cause          string
	Recovery, Back, Rework, CaughtUp string
	Mended                           bool
}

type note struct{ When, Level, Text string }

// Draw reads the run in dir and writes its report.html atomically. It returns the path.
func Draw(dir string) (string, error) {
	run, err := record.ReadOutline(dir)
	if err != nil {
		return "", err
	}
	return DrawRun(run)
}

// DrawRun is Draw for a run that is already in memory.
func DrawRun(run *record.Run) (string, error) {
	path := filepath.Join(run.Dir, record.ReportFile)
	if err := record.WriteFile(path, func(w io.Writer) error { return Write(w, run) }); err != nil {
		return "", fmt.Errorf("draw report of %q: %w", run.Dir, err)
	}
	return path, nil
}

// Write writes the page of a run to w. It does not change the run.
func Write(w io.Writer, run *record.Run) error {
	t, err := template.ParseFS(files, "page.html")
	if err != nil {
		return err
	}
	p := newPage(run)
	if p.Style, p.Script, err = dress(); err != nil {
		return err
	}
	return t.Execute(w, p)
}

// dress returns the styles and the script that all pages share.
func dress() (template.CSS, template.JS, error) {
	style, err := files.ReadFile("style.css")
	if err != nil {
		return "", "", err
	}
	script, err := files.ReadFile("pointer.js")
	return template.CSS(style), template.JS(script), err
}

func newPage(run *record.Run) *page {
	h, s := run.Header, run.Summary
	p := &page{Title: heading(h), Subtitle: subtitle(h), Verdict: verdict(s), Tiles: tiles(s)}
	p.Legend = s.ReworkSteps > 0
	p.bill(run)
	for i, c := range s.Failures {
		if i == maxTableRows {
			p.More = len(s.Failures) - maxTableRows
			break
		}
		p.Failures = append(p.Failures, rowOf(c))
	}
	if run.Outline.Steps > 0 {
		story := tell(run)
		p.Steps, p.Time, p.Counted = story.lossOverSteps(), story.overTime(), story.whoCounted()
		p.Quotas = story.quotas()
		p.OneStep, p.StepKeys = story.oneStep()
		p.Costs, p.Foretold = story.whatLossesCost(), unknown(run.Exposures)+foretold(run.Reworks)
	}
	config := string(run.Config)
	if config == "" {
		config = s.Config
	}
	if p.Settings = settings(config); p.Settings == nil {
		p.Config = config
	}
	for _, n := range run.Notes {
		if n.Level != "info" {
			p.Notes = append(p.Notes, note{seconds(n.Seconds), n.Level, n.Text})
		}
	}
	p.Footer = footer(run)
	return p
}

func heading(h record.Header) string {
	switch {
	case h.Model != "" && h.Data != "":
		return h.Model + " on " + h.Data
	case h.Model != "":
		return h.Model
	}
	return "a run without a name"
}

func subtitle(h record.Header) []string {
	var parts []string
	add := func(shown bool, text string) {
		if shown {
			parts = append(parts, text)
		}
	}
	add(h.Parameters > 0, plural(h.Parameters, "parameter"))
	add(h.Workers > 0, plural(h.Workers, "worker"))
	add(h.Servers > 0, plural(h.Servers, "server"))
	add(h.Replicas > 1, count(h.Replicas)+" replicas")
	add(h.LocalSteps > 1, count(h.LocalSteps)+" local steps")
	add(h.Consistency != "", h.Consistency)
	add(h.Recovery != "", "recovery "+h.Recovery)
	add(h.Codec != "", "codec "+h.Codec)
	add(h.Device != "", h.Device)
	add(!h.Start.IsZero(), h.Start.UTC().Format("2 January 2006, 15:04 UTC"))
	return parts
}

// verdict returns a sentence about what failures cost.
func verdict(s record.Summary) string {
	n := len(s.Failures)
	if n == 0 {
		return "Nothing failed."
	}
	unmended, older := 0, false // older: parts of the model came back with older values
	for _, c := range s.Failures {
		older = older || c.PartialChunks > 0
		if !c.CaughtUpSeconds.Known() {
			unmended++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s cost %s without a step", plural(n, "failure"), seconds(s.OutageSeconds))
	switch {
	case s.ReworkSteps > 0:
		fmt.Fprintf(&b, " and %s of doing %s again", seconds(s.ReworkSeconds), plural(s.ReworkSteps, "step"))
	case older:
		b.WriteString("; no step was taken back")
	default:
		b.WriteString("; no step was lost")
	}
	if s.WallSeconds > 0 {
		fmt.Fprintf(&b, ": %s of the run", percent((s.OutageSeconds+s.ReworkSeconds)/s.WallSeconds))
	}
	b.WriteString(".")
	if s.ResidualsLost > 0 {
		fmt.Fprintf(&b, " Lost: %s of error feedback.", plural(s.ResidualsLost, "residual"))
	}
	if kept := s.KeptGradients + s.DroppedGradients; kept > 0 {
		fmt.Fprintf(&b, " Workers went on without servers: of %s that they kept, %s counted.", plural(kept, "gradient"), count(s.KeptGradients))
	}
	if unmended > 0 {
		fmt.Fprintf(&b, " %s not mended when it ended.", map[bool]string{true: "One was", false: count(unmended) + " were"}[unmended == 1])
	}
	return b.String()
}

func tiles(s record.Summary) []tile {
	split := func(label, text string) tile {
		value, unit, _ := strings.Cut(text, " ")
		return tile{label, value, unit}
	}
	long, rest := seconds(s.WallSeconds), ""
	if words := strings.Fields(long); len(words) > 2 { // show the rest in small type, and leave out the minutes of days, which would reach into the next tile
		long, rest = words[0]+" "+words[1], words[2]+" "+words[3]
	}
	ts := []tile{{"steps", count(s.Steps), ""}, {"final loss", digits(float64(s.FinalLoss)), ""}}
	if s.FinalAccuracy.Known() {
		ts = append(ts, split("final accuracy", percent(float64(s.FinalAccuracy))))
	}
	return append(ts,
		tile{"time", long, rest},
		tile{"samples/s", digits3(s.SamplesPerSecond), ""},
		split("pushed", words.Bytes(float64(s.BytesPushed))),
		split("pulled", words.Bytes(float64(s.BytesPulled))),
		split("checkpoints, "+count(s.Checkpoints), words.Bytes(float64(s.CheckpointBytes))),
	)
}

func rowOf(c record.FailureCost) failureRow {
	r := failureRow{When: seconds(c.Seconds), Step: count(c.Step), What: c.Part, Cause: c.Cause,
		Recovery: seconds(float64(c.RecoverySeconds)), Back: none, Rework: "0", CaughtUp: seconds(float64(c.CaughtUpSeconds)),
		Mended: c.CaughtUpSeconds.Known()}
	if c.Moved != "" {
		r.Cause += "; it stayed away: " + c.Moved
	}
	if c.LostSteps > 0 {
		r.Back, r.Rework = "step "+count(c.RestoredStep), count(c.LostSteps)
	}
	if c.PartialChunks > 0 {
		r.Back = plural(c.PartialChunks, "chunk")
		if c.PartialAge > 0 {
			r.Back += ", " + digits3(c.PartialAge) + " steps old"
		}
		switch {
		case c.PartialRework.Known():
			r.Rework = "≈ " + digits3(float64(c.PartialRework))
		case c.LostSteps == 0 && c.PartialAge > 0:
			r.Rework = "unknown"
		}
		if c.MeasuredRework.Known() {
			r.Rework += " (" + digits3(float64(c.MeasuredRework)) + " ± " + digits3(float64(c.MeasuredError)) + ")"
		}
	}
	return r
}

func footer(run *record.Run) []string {
	var parts []string
	if run.Header.Version != "" {
		parts = append(parts, "kintsugi "+run.Header.Version)
	}
	if run.Summary.Reason != "" {
		parts = append(parts, "ended: "+run.Summary.Reason)
	} else {
		parts = append(parts, "not ended when this page was drawn")
	}
	parts = append(parts, plural(run.Outline.Steps, "released step"))
	if run.Skipped > 0 {
		parts = append(parts, plural(run.Skipped, "line")+" of the record could not be read")
	}
	return parts
}
