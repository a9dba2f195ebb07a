package bench

import (
	_ "embed" // for failure.html
	"fmt"
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

//go:embed failure.html
var failurePageText string

// WriteFailure writes table.json and report.html to a folder and returns the path of the page.
func WriteFailure(dir string, about Experiment, cfg *FailureConfig, rows []FailureRow, tables []Table) (page string, err error) {
	var runs []*FailureRun
	for _, r := range rows {
		runs = append(runs, r.runs...)
	}
	table := struct {
		Experiment
		Rows []FailureRow  `json:"rows"`
		Runs []*FailureRun `json:"runs"`
	}{about, rows, runs}
	view := failureView{About: about, Tables: tables, Settings: cfg.settings()}
	for _, g := range failureGroups(rows) {
		view.Groups = append(view.Groups, failureGroup{Title: groupTitle(g[0]), Figures: failureFigures(g)})
	}
	return writeExperiment(dir, failurePageText, table, view)
}

// failureView is the data of failure.html.
type failureView struct {
	About    Experiment
	Settings string
	Groups   []failureGroup
	Tables   []Table
}

type failureGroup struct {
	Title   string
	Figures []figure
}

// settings describes the runs in one sentence.
func (cfg *FailureConfig) settings() string {
	return fmt.Sprintf("%d updates of each worker with SGD, a learning rate of 0.01 and batches of 32; a checkpoint every %d; kills after the updates %v, each for %v; a gradient takes %v at least.",
		cfg.Updates, cfg.SaveEvery, cfg.KillAt, cfg.Outage, cfg.GradientTime)
}

// failureColours are the colours of the presets in all figures.
var failureColours = map[string]string{
	"checkpoint": "#0072b2", "checkpoint/async": "#56b4e9", "checkpoint:shipped": "#444444", "checkpoint:shipped/async": "#999999",
	"chain": "#009e73", "chain/async": "#7bc8a4", "chain:paper": "#8c6bb1", "chain:paper/async": "#c3a9dd", "stateless": "#e69f00", "stateless/async": "#d55e00",
	"stateless:paper/async": "#cc79a7", "gold": "#b8860b", "gold/async": "#e6ab02", "gold:lost": "#7a5c1e", "gold:lost/async": "#a6761d",
	"wait": "#56b4e9", "local": "#222222", "decay": "#d55e00", "average": "#009e73", "sum": "#cc79a7",
}

func failureColour(preset string) string {
	if c := failureColours[preset]; c != "" {
		return c
	}
	return "#222222"
}

func failureFigures(rows []FailureRow) (figures []figure) {
	for kills := 2; kills >= 0; kills-- {
		some := slices.DeleteFunc(slices.Clone(rows), func(r FailureRow) bool { return r.Kills != kills })
		if len(some) == 0 {
			continue
		}
		what := map[int]string{0: "undisturbed", 1: "one kill", 2: "two kills"}[kills]
		figures = append(figures,
			curvesFigure(some, "Accuracy over time, "+what, "seconds", true),
			curvesFigure(some, "Accuracy over gradients, "+what, "counted pushes", false))
		if kills > 0 {
			figures = append(figures, killsFigure(some, "Before and after, "+what))
		}
	}
	most := slices.DeleteFunc(slices.Clone(rows), func(r FailureRow) bool {
		return r.Kills != slices.MaxFunc(rows, func(a, b FailureRow) int { return a.Kills - b.Kills }).Kills
	})
	one := func(f func(p *FailurePaper) float64) func(r FailureRow) float64 {
		return func(r FailureRow) float64 {
			for _, kills := range []int{r.Kills, 1, 2} {
				if p := paperOf(r.Preset, kills); p != nil && f(p) > 0 {
					return f(p)
				}
			}
			return math.NaN()
		}
	}
	return append(figures,
		besideFigure(most, "Gradients that workers have computed", "The paper counts what was processed.", func(r FailureRow) record.Number { return r.Gradients },
			one(func(p *FailurePaper) float64 { return float64(p.Gradients) })),
		besideFigure(most, "How busy they were", "Here the share of the workers' time in which they were at a gradient, in the paper the use of the processor.",
			func(r FailureRow) record.Number { return r.Busy }, one(func(p *FailurePaper) float64 { return p.Busy })),
		besideFigure(most, "Megabytes", "Here the most that all servers have held, programs and libraries included; in the paper the mean of the object store.",
			func(r FailureRow) record.Number { return r.ServerMB }, one(func(p *FailurePaper) float64 { return p.MB })))
}

// curvesFigure draws the mean accuracy over the seeds, for each preset.
func curvesFigure(rows []FailureRow, title, label string, byTime bool) figure {
	f := figure{Title: title, XLabel: label, Text: fmt.Sprintf("Mean over the seeds, of which there are %d.", rows[0].Seeds)}
	if byTime {
		f.Text += " A line is level while nothing is evaluated."
	} else {
		f.Text += " Pushes of steps that were lost count as well."
	}
	var all []series
	for _, r := range rows {
		s := series{name: r.Preset, colour: failureColour(r.Preset), dashed: r.Preset == "checkpoint:shipped" || r.Preset == "checkpoint:shipped/async"}
		s.x, s.y = r.curve(byTime)
		all = append(all, s)
	}
	y := span(append(ys(all), 0.1), false, false)
	f.draw(span(xs(all), false, true), y, all)
	return f
}

// curve returns the mean of a row's curves.
func (r *FailureRow) curve(byTime bool) (x, y []float64) {
	by, at := func(p FailurePoint) float64 { return float64(p.Counted) }, heightAt
	if byTime {
		by = func(p FailurePoint) float64 { return p.Seconds }
		at = lastAt
	}
	end := 0.0
	for _, run := range r.runs {
		if n := len(run.Curve); n > 0 {
			end = max(end, by(run.Curve[n-1]))
		}
	}
	const points = 120
	for i := 1; i <= points; i++ {
		at0 := end * float64(i) / points
		heights := r.of(func(run *FailureRun) float64 {
			if len(run.Curve) == 0 {
				return math.NaN()
			}
			return at(run.Curve, at0, by)
		})
		if len(heights) == len(r.runs) {
			x, y = append(x, at0), append(y, mean(heights))
		}
	}
	return x, y
}

// lastAt returns the accuracy at the last point of a curve up to x, or NaN before the first.
func lastAt(curve []FailurePoint, x float64, by func(FailurePoint) float64) float64 {
	height := math.NaN()
	for _, p := range curve {
		if by(p) <= x {
			height = p.Accuracy
		}
	}
	return height
}

// killsFigure draws the accuracy before and after each kill, with the values of the paper beside
// them.
func killsFigure(rows []FailureRow, title string) figure {
	f := figure{Title: title, XLabel: "preset · kill", Slanted: 210, Text: "Accuracy at the last evaluation before a kill and the first after it. The pair to the right is the paper's, where it has such a run."}
	before, after := series{name: "before", colour: "#56b4e9", dots: true}, series{name: "after", colour: "#0072b2", dots: true}
	theirBefore, theirAfter := series{name: "the paper's, before", colour: "#f0b088", dots: true}, series{name: "the paper's, after", colour: "#d55e00", dots: true}
	var labels []string
	put := func(s *series, x float64, v float64, what string) {
		s.x, s.y, s.titles = append(s.x, x), append(s.y, v), append(s.titles, fmt.Sprintf("%s: %.3f", what, v))
	}
	for _, r := range rows {
		for k := range r.Before {
			x := float64(len(labels))
			labels = append(labels, fmt.Sprintf("%s · %d", r.Preset, k+1))
			put(&before, x-0.12, float64(r.Before[k]), r.Preset+" before")
			put(&after, x-0.12, float64(r.After[k]), r.Preset+" after")
			if p := r.Paper; p != nil && k < len(p.Before) {
				put(&theirBefore, x+0.12, p.Before[k], "paper before")
				put(&theirAfter, x+0.12, p.After[k], "paper after")
			}
		}
	}
	f.draw(places(labels), span([]float64{0, 1}, false, true), []series{after, before, theirAfter, theirBefore})
	return f
}

// besideFigure draws one number of each preset beside that of the paper.
func besideFigure(rows []FailureRow, title, text string, of func(FailureRow) record.Number, paper func(FailureRow) float64) figure {
	f := figure{Title: title, XLabel: "preset", Slanted: 210, Text: text}
	ours, theirs := series{name: "here", colour: "#0072b2", dots: true}, series{name: "the paper", colour: "#d55e00", dots: true}
	var labels []string
	for _, r := range rows {
		x := float64(len(labels))
		labels = append(labels, r.Preset)
		ours.x, ours.y = append(ours.x, x-0.08), append(ours.y, float64(of(r)))
		theirs.x, theirs.y = append(theirs.x, x+0.08), append(theirs.y, paper(r))
	}
	f.draw(places(labels), span(slices.Concat(ours.y, theirs.y), false, true), []series{ours, theirs})
	return f
}

// places returns an axis with a label at each integer.
func places(labels []string) axis {
	x := axis{lo: -0.6, hi: float64(len(labels)) - 0.4, label: func(v float64) string { return labels[int(v)] }}
	for i := range labels {
		x.ticks = append(x.ticks, float64(i))
	}
	return x
}
