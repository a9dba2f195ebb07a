package failure

import (
	_ "embed" // for page.html
	"fmt"
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

//go:embed page.html
var pageText string

// Write writes table.json and report.html to a folder and returns the path of the page.
func Write(dir string, about page.Experiment, cfg *Config, rows []Row, tables []page.Table) (file string, err error) {
	var runs []*Trial
	for _, r := range rows {
		runs = append(runs, r.runs...)
	}
	table := struct {
		page.Experiment
		Rows []Row    `json:"rows"`
		Runs []*Trial `json:"runs"`
	}{about, rows, runs}
	view := pageView{About: about, Tables: tables, Settings: cfg.settings()}
	for _, g := range grouped(rows) {
		view.Groups = append(view.Groups, panel{Title: groupTitle(g[0]), Figures: figuresOf(g)})
	}
	return page.Write(dir, pageText, table, view)
}

// pageView is the data of page.html.
type pageView struct {
	About    page.Experiment
	Settings string
	Groups   []panel
	Tables   []page.Table
}

type panel struct {
	Title   string
	Figures []page.Figure
}

// settings describes the runs in one sentence.
func (cfg *Config) settings() string {
	return fmt.Sprintf("%d updates of each worker with SGD, a learning rate of 0.01 and batches of 32; a checkpoint every %d; kills after the updates %v, each for %v; a gradient takes %v at least.",
		cfg.Updates, cfg.SaveEvery, cfg.KillAt, cfg.Outage, cfg.GradientTime)
}

// colours are the colours of the presets in all figures.
var colours = map[string]string{
	"checkpoint": "#0072b2", "checkpoint/async": "#56b4e9", "checkpoint:shipped": "#444444", "checkpoint:shipped/async": "#999999",
	"chain": "#009e73", "chain/async": "#7bc8a4", "chain:paper": "#8c6bb1", "chain:paper/async": "#c3a9dd", "stateless": "#e69f00", "stateless/async": "#d55e00",
	"stateless:paper/async": "#cc79a7", "gold": "#b8860b", "gold/async": "#e6ab02", "gold:lost": "#7a5c1e", "gold:lost/async": "#a6761d",
	"wait": "#56b4e9", "local": "#222222", "decay": "#d55e00", "average": "#009e73", "sum": "#cc79a7",
}

func colour(preset string) string {
	if c := colours[preset]; c != "" {
		return c
	}
	return "#222222"
}

func figuresOf(rows []Row) (figures []page.Figure) {
	for kills := 2; kills >= 0; kills-- {
		some := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Kills != kills })
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
	most := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
		return r.Kills != slices.MaxFunc(rows, func(a, b Row) int { return a.Kills - b.Kills }).Kills
	})
	one := func(f func(p *Paper) float64) func(r Row) float64 {
		return func(r Row) float64 {
			for _, kills := range []int{r.Kills, 1, 2} {
				if p := paperOf(r.Preset, kills); p != nil && f(p) > 0 {
					return f(p)
				}
			}
			return math.NaN()
		}
	}
	return append(figures,
		besideFigure(most, "Gradients that workers have computed", "The paper counts what was processed.", func(r Row) record.Number { return r.Gradients },
			one(func(p *Paper) float64 { return float64(p.Gradients) })),
		besideFigure(most, "How busy they were", "Here the share of the workers' time in which they were at a gradient, in the paper the use of the processor.",
			func(r Row) record.Number { return r.Busy }, one(func(p *Paper) float64 { return p.Busy })),
		besideFigure(most, "Megabytes", "Here the most that all servers have held, programs and libraries included; in the paper the mean of the object store.",
			func(r Row) record.Number { return r.ServerMB }, one(func(p *Paper) float64 { return p.MB })))
}

// curvesFigure draws the mean accuracy over the seeds, for each preset.
func curvesFigure(rows []Row, title, label string, byTime bool) page.Figure {
	f := page.Figure{Title: title, XLabel: label, Text: fmt.Sprintf("Mean over the seeds, of which there are %d.", rows[0].Seeds)}
	if byTime {
		f.Text += " A line is level while nothing is evaluated."
	} else {
		f.Text += " Pushes of steps that were lost count as well."
	}
	var all []page.Series
	for _, r := range rows {
		s := page.Series{Name: r.Preset, Colour: colour(r.Preset), Dashed: r.Preset == "checkpoint:shipped" || r.Preset == "checkpoint:shipped/async"}
		s.X, s.Y = r.curve(byTime)
		all = append(all, s)
	}
	y := page.Span(append(page.Ys(all), 0.1), false, false)
	f.Draw(page.Span(page.Xs(all), false, true), y, all)
	return f
}

// curve returns the mean of a row's curves.
func (r *Row) curve(byTime bool) (x, y []float64) {
	by, at := func(p Point) float64 { return float64(p.Counted) }, heightAt
	if byTime {
		by = func(p Point) float64 { return p.Seconds }
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
		heights := r.of(func(run *Trial) float64 {
			if len(run.Curve) == 0 {
				return math.NaN()
			}
			return at(run.Curve, at0, by)
		})
		if len(heights) == len(r.runs) {
			x, y = append(x, at0), append(y, bench.Mean(heights))
		}
	}
	return x, y
}

// lastAt returns the accuracy at the last point of a curve up to x, or NaN before the first.
func lastAt(curve []Point, x float64, by func(Point) float64) float64 {
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
func killsFigure(rows []Row, title string) page.Figure {
	f := page.Figure{Title: title, XLabel: "preset · kill", Slanted: 210, Text: "Accuracy at the last evaluation before a kill and the first after it. The pair to the right is the paper's, where it has such a run."}
	before, after := page.Series{Name: "before", Colour: "#56b4e9", Dots: true}, page.Series{Name: "after", Colour: "#0072b2", Dots: true}
	theirBefore, theirAfter := page.Series{Name: "the paper's, before", Colour: "#f0b088", Dots: true}, page.Series{Name: "the paper's, after", Colour: "#d55e00", Dots: true}
	var labels []string
	put := func(s *page.Series, x float64, v float64, what string) {
		s.X, s.Y, s.Titles = append(s.X, x), append(s.Y, v), append(s.Titles, fmt.Sprintf("%s: %.3f", what, v))
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
	f.Draw(places(labels), page.Span([]float64{0, 1}, false, true), []page.Series{after, before, theirAfter, theirBefore})
	return f
}

// besideFigure draws one number of each preset beside that of the paper.
func besideFigure(rows []Row, title, text string, of func(Row) record.Number, paper func(Row) float64) page.Figure {
	f := page.Figure{Title: title, XLabel: "preset", Slanted: 210, Text: text}
	ours, theirs := page.Series{Name: "here", Colour: "#0072b2", Dots: true}, page.Series{Name: "the paper", Colour: "#d55e00", Dots: true}
	var labels []string
	for _, r := range rows {
		x := float64(len(labels))
		labels = append(labels, r.Preset)
		ours.X, ours.Y = append(ours.X, x-0.08), append(ours.Y, float64(of(r)))
		theirs.X, theirs.Y = append(theirs.X, x+0.08), append(theirs.Y, paper(r))
	}
	f.Draw(places(labels), page.Span(slices.Concat(ours.Y, theirs.Y), false, true), []page.Series{ours, theirs})
	return f
}

// places returns an axis with a label at each integer.
func places(labels []string) page.Axis {
	x := page.Axis{Lo: -0.6, Hi: float64(len(labels)) - 0.4, Label: func(v float64) string { return labels[int(v)] }}
	for i := range labels {
		x.Ticks = append(x.Ticks, float64(i))
	}
	return x
}
