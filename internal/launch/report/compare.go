package report

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/words"
)

// MostCompared is the largest number of runs on one page: there are eight colours, each solid and
// dashed.
const MostCompared = 16

// comparison is the data of compare.html.
type comparison struct {
	Style  template.CSS
	Script template.JS

	Title    string
	Subtitle []string
	Accuracy bool // some run has an accuracy
	Rows     []comparedRow
	Steps    template.HTML
	Time     template.HTML
	Settings []setting // settings that all runs share
	Footer   []string
}

type comparedRow struct {
	Class, Name, Differs                    string
	Steps, Loss, Accuracy, Time, Samples    string
	Failures, Outage, Rework, Pushed, Nodes string
}

// compared is one of the compared runs.
type compared struct {
	*story
	name, class string
}

// Compare writes a page that compares several runs, at most MostCompared. It does not change them.
func Compare(w io.Writer, runs []*record.Run) error {
	c := &comparison{}
	var err error
	if c.Style, c.Script, err = dress(); err != nil {
		return err
	}
	t, err := template.ParseFS(files, "compare.html")
	if err != nil {
		return err
	}
	c.fill(runs)
	return t.Execute(w, c)
}

func (c *comparison) fill(runs []*record.Run) {
	common, differ := tellApart(runs)
	c.Title, c.Subtitle, c.Settings = plural(len(runs), "run"), commonParts(runs), common
	names := namesOf(runs)
	var all []compared
	for i, run := range runs {
		all = append(all, compared{tell(run), names[i], fmt.Sprintf("r%d", i)})
		c.Accuracy = c.Accuracy || run.Summary.FinalAccuracy.Known()
		c.Rows = append(c.Rows, comparedRowOf(run, names[i], all[i].class, differ[i]))
		if run.Summary.Reason == "" {
			c.Footer = append(c.Footer, names[i]+" had not ended when this page was drawn")
		}
	}
	all = slices.DeleteFunc(all, func(x compared) bool { return len(x.spans) == 0 })
	if len(all) == 0 {
		return
	}
	highest, end := 1.0, 0.0
	for _, x := range all {
		end = max(end, endOf(x.run))
		for _, s := range x.spans {
			highest = max(highest, float64(s.Last))
		}
	}
	steps := &figure{name: "steps", unit: "step", x: newScale(0, highest, plotLeft, plotRight), bottom: 16}
	steps.ticks = steps.x.stepTicks(10)
	time := &figure{name: "time", unit: "s", x: newScale(0, end, plotLeft, plotRight), bottom: 16}
	time.ticks = time.x.timeTicks(10)
	c.Steps = beside(steps, all, func(x compared, i int) float64 { return float64(x.spans[i].Last) }, func(e record.Evaluation) float64 { return float64(e.Step) }, "loss over steps, by run")
	c.Time = beside(time, all, func(x compared, i int) float64 { return x.spans[i].Seconds }, func(e record.Evaluation) float64 { return e.Seconds }, "loss over time, by run")
}

// beside draws the losses of all runs, and their accuracies if there are any. at returns the x of a
// span, when the x of an evaluation.
func beside(f *figure, all []compared, at func(x compared, i int) float64, when func(record.Evaluation) float64, description string) template.HTML {
	p := f.panel("loss, moving average", 290)
	p.scaleY(comparedScale(all), lossTicks)
	p.clip(func() {
		for _, x := range all {
			base := x.survivors()
			mean := thin(len(base), curvePoints, f.x.lo, f.x.hi, func(j int) float64 { return at(x, base[j]) }, func(j int) float64 { return x.smooth[base[j]] }).mean
			p.path("curve "+x.class, p.place(mean))
			p.track(x.name, "", 4, 1, mean)
		}
	})
	lo, hi := 1.0, 0.0
	curves := make([][]point, len(all))
	for i, x := range all {
		for _, e := range x.run.Evaluations {
			if e.Accuracy.Known() {
				curves[i] = append(curves[i], point{when(e), float64(e.Accuracy)})
				lo, hi = min(lo, float64(e.Accuracy)), max(hi, float64(e.Accuracy))
			}
		}
	}
	if hi < lo {
		return f.svg(description)
	}
	p = f.panel("accuracy", 150)
	p.scaleY(accuracyScale(lo, hi), accuracyTicks)
	for i, points := range curves {
		p.path("curve "+all[i].class, p.place(points))
		p.track(all[i].name, " %", 1, 100, points)
	}
	return f.svg(description)
}

// comparedScale chooses the y axis from all moving averages: logarithmic if they fall by a factor
// of more than 30.
func comparedScale(all []compared) scale {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, x := range all {
		if l, h, ok := between(x.smooth, 0); ok {
			lo, hi = min(lo, l), max(hi, h)
		}
	}
	switch {
	case lo > hi:
		return newScale(0, 1, 0, 0)
	case lo > 0 && hi/lo > 30:
		s := newScale(lo/1.1, hi*1.1, 0, 0)
		s.log = true
		return s
	case lo > 0 && lo < 0.35*hi:
		lo = 0
	}
	margin := 0.04 * (hi - lo)
	if lo != 0 {
		lo -= margin
	}
	return newScale(lo, hi+margin, 0, 0)
}

func comparedRowOf(run *record.Run, name, class, differs string) comparedRow {
	s := run.Summary
	r := comparedRow{Class: class, Name: name, Differs: differs, Steps: count(s.Steps), Loss: digits(float64(s.FinalLoss)), Accuracy: percent(float64(s.FinalAccuracy)),
		Time: seconds(s.WallSeconds), Samples: digits3(s.SamplesPerSecond), Failures: count(len(s.Failures)), Outage: seconds(s.OutageSeconds), Rework: count(s.ReworkSteps),
		Pushed: words.Bytes(float64(s.BytesPushed)), Nodes: none}
	if s.Cost != nil {
		r.Nodes = digits3(s.Cost.NodeSeconds.Sum())
	}
	return r
}

// namesOf returns the names of the runs' folders, with as many parents as are needed to tell them
// apart.
func namesOf(runs []*record.Run) []string {
	names := make([]string, len(runs))
	paths := make([][]string, len(runs))
	for i, run := range runs {
		paths[i] = strings.Split(filepath.ToSlash(filepath.Clean(run.Dir)), "/")
	}
	for i, path := range paths {
		for n := 1; n <= len(path); n++ {
			tail := path[len(path)-n:]
			names[i] = strings.Join(tail, "/")
			if !slices.ContainsFunc(append(slices.Clone(paths[:i]), paths[i+1:]...), func(other []string) bool {
				return len(other) >= n && slices.Equal(other[len(other)-n:], tail)
			}) {
				break
			}
		}
	}
	return names
}

// looking are the settings of how a run is looked at. They tell no runs apart.
var looking = []string{"log-level", "metrics", "tensorboard"}

// tellApart returns the settings that all runs share, and the settings of each run that differ. A
// run whose settings cannot be parsed has none.
func tellApart(runs []*record.Run) (common []setting, differ []string) {
	values := make([]map[string]string, len(runs))
	var names []string
	for i, run := range runs {
		config := string(run.Config)
		if config == "" {
			config = run.Summary.Config
		}
		values[i] = make(map[string]string)
		for _, s := range settings(config) {
			if !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
			values[i][s.Name] = s.Value
		}
	}
	words := make([][]string, len(runs))
	for _, name := range names {
		first, ok := values[0][name]
		if !slices.ContainsFunc(values, func(v map[string]string) bool { value, has := v[name]; return has != ok || value != first }) {
			common = append(common, setting{name, first})
			continue
		}
		if slices.Contains(looking, name) {
			continue
		}
		for i, v := range values {
			if value := v[name]; value != "" && value != "[]" {
				words[i] = append(words[i], strings.TrimSpace(name+" "+value))
			}
		}
	}
	for _, w := range words {
		differ = append(differ, strings.Join(w, ", "))
	}
	return common, differ
}

// commonParts returns the parts of the subtitles that all runs share.
func commonParts(runs []*record.Run) []string {
	parts := []string{heading(runs[0].Header)}
	parts = append(parts, subtitle(runs[0].Header)...)
	for _, run := range runs[1:] {
		others := append(subtitle(run.Header), heading(run.Header))
		parts = slices.DeleteFunc(parts, func(part string) bool { return !slices.Contains(others, part) })
	}
	return parts
}
