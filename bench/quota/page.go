package quota

import (
	_ "embed" // for page.html
	"fmt"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi/bench/page"
)

//go:embed page.html
var pageText string

// Write writes table.json and report.html to a folder and returns the path of the page.
func Write(dir string, about page.Experiment, result *Result) (file string, err error) {
	table := struct {
		page.Experiment
		*Result
	}{about, result}
	return page.Write(dir, pageText, table, newView(about, result))
}

// pageView is the data of page.html.
type pageView struct {
	About  page.Experiment
	Claims []Claim
	Sets   []setView
}

type setView struct {
	Name    string
	Figures []page.Figure
	Tables  []page.Table
}

// colours are the colours of the policies in all figures. Fixed quotas are grey.
var colours = map[string]string{
	"dbw": "#d55e00", "dbw:paper": "#0072b2", "bdbw": "#009e73", "adasync:1": "#cc79a7", "adasync:4": "#56b4e9", "dbw:joint": "#b8860b",
}

func colour(name string) string {
	if c := colours[name]; c != "" {
		return c
	}
	return "#888888"
}

// fixedColour distinguishes the fixed quotas in one figure.
func fixedColour(i int) string { return []string{"#888888", "#444444", "#bbbbbb"}[i%3] }

func newView(about page.Experiment, r *Result) pageView {
	v := pageView{About: about, Claims: r.Claims}
	for _, s := range r.Sets {
		view := setView{Name: s.Data, Tables: s.tables(), Figures: []page.Figure{s.ratioFigure()}}
		if len(s.Runs) > 0 {
			view.Figures = append(view.Figures, s.fixedFigure(), s.lossFigure(), s.quotaFigure())
			view.Figures = append(view.Figures, s.estimateFigures()...)
			view.Figures = append(view.Figures, s.slowdownFigure(), s.slowdownLossFigure())
		}
		v.Sets = append(v.Sets, view)
	}
	return v
}

// where names the cell of the additional measurements.
func (s *Set) where() string {
	return fmt.Sprintf("batch %d, learning rate %g, alpha %g", s.Ways[0].Batch, s.Ways[0].Rate, s.Runs[0].Alpha)
}

// ratioFigure draws the ratio of each controller in each cell.
func (s *Set) ratioFigure() page.Figure {
	f := page.Figure{Title: "Every cell", XLabel: "batch size · learning rate · alpha", Text: "The time to the target over that of the best fixed quota at the same learning rate, " +
		"which was chosen on other seeds. Below 1 is better than it; 4 stands for 4 and more. The order is that of the table below."}
	names := append([]string{"dbw"}, rivals(s.Cells)...)
	var cells []string
	var all []page.Series
	for i, name := range names {
		line := page.Series{Name: name, Colour: colour(name), Dots: true}
		n := 0
		for _, r := range s.Cells {
			if r.Controller != name {
				continue
			}
			if i == 0 {
				cells = append(cells, fmt.Sprintf("%d·%g·%g", r.Batch, r.Rate, r.Alpha))
			}
			line.X = append(line.X, float64(n)+0.1*(float64(i)-float64(len(names)-1)/2))
			line.Y = append(line.Y, known(r.Ratio))
			line.Titles = append(line.Titles, fmt.Sprintf("%s: %s, %s", name, r.cell(), ratio(r.Ratio)))
			n++
		}
		all = append(all, line)
	}
	x := page.Axis{Lo: -0.6, Hi: float64(len(cells)) - 0.4, Label: func(v float64) string { return strings.ReplaceAll(cells[int(v)], "·", " ") }}
	for i := range cells {
		x.Ticks = append(x.Ticks, float64(i))
	}
	y := page.Axis{Lo: 0.7, Hi: 4, Log: true, Ticks: []float64{0.8, 1, 1.2, 1.5, 2, 3, 4}, Label: func(v float64) string { return fmt.Sprintf("%.1f", v) }}
	f.Draw(x, y, all)
	f.Slanted = 90
	return f
}

// fixedFigure draws the time of each fixed quota: the sweep that dbw makes unnecessary.
func (s *Set) fixedFigure() page.Figure {
	f := page.Figure{Title: "Every fixed quota", XLabel: "gradients that a step waits for", Text: "Seconds to the target with the same quota in every step, for each spread of times. " +
		"Dashed: dbw, which is told none of this. Batch size and learning rate as below."}
	var all []page.Series
	shades := []string{"#999999", "#56b4e9", "#0072b2", "#cc79a7"}
	for _, x := range s.Fixed {
		name := fmt.Sprintf("alpha %g", x.Alpha)
		if len(all) == 0 || all[len(all)-1].Name != name {
			all = append(all, page.Series{Name: name, Colour: shades[len(all)%len(shades)]})
		}
		line := &all[len(all)-1]
		line.X, line.Y = append(line.X, float64(x.Quota)), append(line.Y, known(x.Seconds))
	}
	x := page.Axis{Lo: 0, Hi: slices.Max(page.Xs(all)), Label: number}
	x.Ticks = append(x.Ticks, all[0].X...)
	n := len(all)
	for i := range n {
		for _, r := range s.Cells {
			if r.Controller == "dbw" && r.Batch == s.Ways[0].Batch && r.Rate == s.Ways[0].Rate && fmt.Sprintf("alpha %g", r.Alpha) == all[i].Name {
				all = append(all, page.Series{Name: "dbw, " + all[i].Name, Colour: all[i].Colour, Dashed: true, X: []float64{x.Lo, x.Hi}, Y: []float64{known(r.Seconds), known(r.Seconds)}})
			}
		}
	}
	f.Draw(x, page.Span(page.Ys(all), true, false), all)
	return f
}

// lossFigure draws the loss of each policy over time.
func (s *Set) lossFigure() page.Figure {
	f := page.Figure{Title: "The loss over time", XLabel: "seconds", Text: s.where() + ", one seed. Each line ends at the target. The loss is that of all examples."}
	var all []page.Series
	fixed := 0
	for _, r := range s.Runs {
		line := page.Series{Name: r.Controller, Colour: colour(r.Controller)}
		if strings.HasPrefix(r.Controller, "fixed") {
			line.Dashed, line.Colour = true, fixedColour(fixed)
			fixed++
		}
		for _, p := range r.Points {
			line.X, line.Y = append(line.X, p.Seconds), append(line.Y, float64(p.Loss))
		}
		all = append(all, line)
	}
	f.Draw(page.Span(page.Xs(all), false, true), page.Span(page.Ys(all), true, false), all)
	return f
}

// quotaFigure draws the quota of each policy over time.
func (s *Set) quotaFigure() page.Figure {
	f := page.Figure{Title: "The quota over time", XLabel: "seconds", Text: "The same runs: for how many gradients each step waits, as a running mean of eleven steps."}
	var all []page.Series
	for _, r := range s.Runs {
		if strings.HasPrefix(r.Controller, "fixed") {
			continue
		}
		line := page.Series{Name: r.Controller, Colour: colour(r.Controller)}
		for _, p := range r.Points {
			line.X, line.Y = append(line.X, p.Seconds), append(line.Y, float64(p.Quota))
		}
		line.Y = page.Smoothed(line.Y, 5)
		all = append(all, line)
	}
	f.Draw(page.Span(page.Xs(all), false, true), page.Span(page.Ys(all), false, true), all)
	return f
}

// estimateFigures draw the estimates beside the true values, in the situation of the runs.
func (s *Set) estimateFigures() (figures []page.Figure) {
	for _, e := range s.Estimates {
		if e.Alpha != s.Runs[0].Alpha {
			continue
		}
		f := page.Figure{Title: "Estimate: " + e.Estimate, XLabel: "steps", Text: fmt.Sprintf("dbw's estimate and the truth, alpha %g: bias %+.0f %%, median relative error %.0f %%.",
			e.Alpha, 100*float64(e.Bias), 100*float64(e.Error))}
		truth := page.Series{Name: "truth", Colour: "#888888", Dashed: true}
		estimate := page.Series{Name: "estimate", Colour: colour("dbw")}
		for _, l := range e.Looks {
			truth.X, truth.Y = append(truth.X, float64(l.Step)), append(truth.Y, l.Truth)
			estimate.X, estimate.Y = append(estimate.X, float64(l.Step)), append(estimate.Y, l.Estimate)
		}
		all := []page.Series{estimate, truth}
		f.Draw(page.Span(page.Xs(all), false, true), page.Span(page.Ys(all), e.Estimate != "seconds of a step", true), all)
		figures = append(figures, f)
	}
	f := page.Figure{Title: "Estimates: relative errors", XLabel: "alpha", Text: "The median over the steps of |estimate − truth| / truth, for each spread of times."}
	var all []page.Series
	for _, e := range s.Estimates {
		i := slices.IndexFunc(all, func(x page.Series) bool { return x.Name == e.Estimate })
		if i < 0 {
			i = len(all)
			all = append(all, page.Series{Name: e.Estimate, Colour: page.Colours[1+2*len(all)]})
		}
		all[i].X, all[i].Y = append(all[i].X, e.Alpha), append(all[i].Y, float64(e.Error))
	}
	y := page.Span(page.Ys(all), false, true)
	y.Label = func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
	f.Draw(page.Span(page.Xs(all), false, true), y, all)
	return append(figures, f)
}

// slowdownFigure draws the quota while half of the workers slow down, with the reasons at the
// pointer.
func (s *Set) slowdownFigure() page.Figure {
	f := page.Figure{Title: "Half of the workers slow down", XLabel: "seconds", Text: fmt.Sprintf("Half of the workers become %g times slower after %g s. The quota of each step of dbw, one seed; "+
		"the reason that it gave is under the pointer.", slowFactor, slowFrom)}
	var all []page.Series
	for i, x := range s.Slowdown {
		line := page.Series{Name: x.Controller, Colour: colour(x.Controller), Dots: true}
		if x.Controller != "dbw" {
			line.Dots, line.Dashed, line.Colour = false, true, fixedColour(i)
		}
		reason := ""
		for _, p := range x.Points {
			if p.Reason != "" {
				reason = p.Reason
			}
			line.X, line.Y = append(line.X, p.Seconds), append(line.Y, float64(p.Quota))
			line.Titles = append(line.Titles, fmt.Sprintf("%.1f s: %s", p.Seconds, reason))
		}
		all = append(all, line)
	}
	end := 0.0
	for _, v := range all[0].X {
		end = max(end, v)
	}
	f.Draw(page.Span([]float64{0, 1.5 * end}, false, true), page.Span(page.Ys(all), false, true), all)
	return f
}

// slowdownLossFigure draws the losses of the same runs.
func (s *Set) slowdownLossFigure() page.Figure {
	f := page.Figure{Title: "The loss meanwhile", XLabel: "seconds", Text: "The same run of dbw, beside the fixed quotas of all workers, of the best before and of the best after."}
	var all []page.Series
	for i, x := range s.Slowdown {
		line := page.Series{Name: x.Controller, Colour: fixedColour(i), Dashed: true}
		if x.Controller == "dbw" {
			line.Colour, line.Dashed = colour("dbw"), false
		}
		for _, p := range x.Points {
			line.X, line.Y = append(line.X, p.Seconds), append(line.Y, float64(p.Loss))
		}
		all = append(all, line)
	}
	f.Draw(page.Span(page.Xs(all), false, true), page.Span(page.Ys(all), true, false), all)
	return f
}
