package bench

import (
	_ "embed" // for dbw.html
	"fmt"
	"slices"
	"strings"
)

//go:embed dbw.html
var dbwPageText string

// WriteDBW writes table.json and report.html to a folder and returns the path of the page.
func WriteDBW(dir string, about Experiment, result *DBWResult) (page string, err error) {
	table := struct {
		Experiment
		*DBWResult
	}{about, result}
	return writeExperiment(dir, dbwPageText, table, dbwPage(about, result))
}

// dbwView is the data of dbw.html.
type dbwView struct {
	About  Experiment
	Claims []Claim
	Sets   []dbwSetView
}

type dbwSetView struct {
	Name    string
	Figures []figure
	Tables  []Table
}

// dbwColours are the colours of the policies in all figures. Fixed quotas are grey.
var dbwColours = map[string]string{
	"dbw": "#d55e00", "dbw:paper": "#0072b2", "bdbw": "#009e73", "adasync:1": "#cc79a7", "adasync:4": "#56b4e9", "dbw:joint": "#b8860b",
}

func dbwColour(name string) string {
	if c := dbwColours[name]; c != "" {
		return c
	}
	return "#888888"
}

// fixedColour distinguishes the fixed quotas in one figure.
func fixedColour(i int) string { return []string{"#888888", "#444444", "#bbbbbb"}[i%3] }

func dbwPage(about Experiment, r *DBWResult) dbwView {
	v := dbwView{About: about, Claims: r.Claims}
	for _, s := range r.Sets {
		view := dbwSetView{Name: s.Data, Tables: s.tables(), Figures: []figure{s.ratioFigure()}}
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
func (s *DBWSet) where() string {
	return fmt.Sprintf("batch %d, learning rate %g, alpha %g", s.Ways[0].Batch, s.Ways[0].Rate, s.Runs[0].Alpha)
}

// ratioFigure draws the ratio of each controller in each cell.
func (s *DBWSet) ratioFigure() figure {
	f := figure{Title: "Every cell", XLabel: "batch size · learning rate · alpha", Text: "The time to the target over that of the best fixed quota at the same learning rate, " +
		"which was chosen on other seeds. Below 1 is better than it; 4 stands for 4 and more. The order is that of the table below."}
	names := append([]string{"dbw"}, rivals(s.Cells)...)
	var cells []string
	var all []series
	for i, name := range names {
		line := series{name: name, colour: dbwColour(name), dots: true}
		n := 0
		for _, r := range s.Cells {
			if r.Controller != name {
				continue
			}
			if i == 0 {
				cells = append(cells, fmt.Sprintf("%d·%g·%g", r.Batch, r.Rate, r.Alpha))
			}
			line.x = append(line.x, float64(n)+0.1*(float64(i)-float64(len(names)-1)/2))
			line.y = append(line.y, known(r.Ratio))
			line.titles = append(line.titles, fmt.Sprintf("%s: %s, %s", name, r.cell(), ratio(r.Ratio)))
			n++
		}
		all = append(all, line)
	}
	x := axis{lo: -0.6, hi: float64(len(cells)) - 0.4, label: func(v float64) string { return strings.ReplaceAll(cells[int(v)], "·", " ") }}
	for i := range cells {
		x.ticks = append(x.ticks, float64(i))
	}
	y := axis{lo: 0.7, hi: 4, log: true, ticks: []float64{0.8, 1, 1.2, 1.5, 2, 3, 4}, label: func(v float64) string { return fmt.Sprintf("%.1f", v) }}
	f.draw(x, y, all)
	f.Slanted = 90
	return f
}

// fixedFigure draws the time of each fixed quota: the sweep that dbw makes unnecessary.
func (s *DBWSet) fixedFigure() figure {
	f := figure{Title: "Every fixed quota", XLabel: "gradients that a step waits for", Text: "Seconds to the target with the same quota in every step, for each spread of times. " +
		"Dashed: dbw, which is told none of this. Batch size and learning rate as below."}
	var all []series
	shades := []string{"#999999", "#56b4e9", "#0072b2", "#cc79a7"}
	for _, x := range s.Fixed {
		name := fmt.Sprintf("alpha %g", x.Alpha)
		if len(all) == 0 || all[len(all)-1].name != name {
			all = append(all, series{name: name, colour: shades[len(all)%len(shades)]})
		}
		line := &all[len(all)-1]
		line.x, line.y = append(line.x, float64(x.Quota)), append(line.y, known(x.Seconds))
	}
	x := axis{lo: 0, hi: slices.Max(xs(all)), label: number}
	x.ticks = append(x.ticks, all[0].x...)
	n := len(all)
	for i := range n {
		for _, r := range s.Cells {
			if r.Controller == "dbw" && r.Batch == s.Ways[0].Batch && r.Rate == s.Ways[0].Rate && fmt.Sprintf("alpha %g", r.Alpha) == all[i].name {
				all = append(all, series{name: "dbw, " + all[i].name, colour: all[i].colour, dashed: true, x: []float64{x.lo, x.hi}, y: []float64{known(r.Seconds), known(r.Seconds)}})
			}
		}
	}
	f.draw(x, span(ys(all), true, false), all)
	return f
}

// lossFigure draws the loss of each policy over time.
func (s *DBWSet) lossFigure() figure {
	f := figure{Title: "The loss over time", XLabel: "seconds", Text: s.where() + ", one seed. Each line ends at the target. The loss is that of all examples."}
	var all []series
	fixed := 0
	for _, r := range s.Runs {
		line := series{name: r.Controller, colour: dbwColour(r.Controller)}
		if strings.HasPrefix(r.Controller, "fixed") {
			line.dashed, line.colour = true, fixedColour(fixed)
			fixed++
		}
		for _, p := range r.Points {
			line.x, line.y = append(line.x, p.Seconds), append(line.y, float64(p.Loss))
		}
		all = append(all, line)
	}
	f.draw(span(xs(all), false, true), span(ys(all), true, false), all)
	return f
}

// quotaFigure draws the quota of each policy over time.
func (s *DBWSet) quotaFigure() figure {
	f := figure{Title: "The quota over time", XLabel: "seconds", Text: "The same runs: for how many gradients each step waits, as a running mean of eleven steps."}
	var all []series
	for _, r := range s.Runs {
		if strings.HasPrefix(r.Controller, "fixed") {
			continue
		}
		line := series{name: r.Controller, colour: dbwColour(r.Controller)}
		for _, p := range r.Points {
			line.x, line.y = append(line.x, p.Seconds), append(line.y, float64(p.Quota))
		}
		line.y = smoothed(line.y, 5)
		all = append(all, line)
	}
	f.draw(span(xs(all), false, true), span(ys(all), false, true), all)
	return f
}

// estimateFigures draw the estimates beside the true values, in the situation of the runs.
func (s *DBWSet) estimateFigures() (figures []figure) {
	for _, e := range s.Estimates {
		if e.Alpha != s.Runs[0].Alpha {
			continue
		}
		f := figure{Title: "Estimate: " + e.Estimate, XLabel: "steps", Text: fmt.Sprintf("dbw's estimate and the truth, alpha %g: bias %+.0f %%, median relative error %.0f %%.",
			e.Alpha, 100*float64(e.Bias), 100*float64(e.Error))}
		truth := series{name: "truth", colour: "#888888", dashed: true}
		estimate := series{name: "estimate", colour: dbwColour("dbw")}
		for _, l := range e.Looks {
			truth.x, truth.y = append(truth.x, float64(l.Step)), append(truth.y, l.Truth)
			estimate.x, estimate.y = append(estimate.x, float64(l.Step)), append(estimate.y, l.Estimate)
		}
		all := []series{estimate, truth}
		f.draw(span(xs(all), false, true), span(ys(all), e.Estimate != "seconds of a step", true), all)
		figures = append(figures, f)
	}
	f := figure{Title: "Estimates: relative errors", XLabel: "alpha", Text: "The median over the steps of |estimate − truth| / truth, for each spread of times."}
	var all []series
	for _, e := range s.Estimates {
		i := slices.IndexFunc(all, func(x series) bool { return x.name == e.Estimate })
		if i < 0 {
			i = len(all)
			all = append(all, series{name: e.Estimate, colour: codecsColours[1+2*len(all)]})
		}
		all[i].x, all[i].y = append(all[i].x, e.Alpha), append(all[i].y, float64(e.Error))
	}
	y := span(ys(all), false, true)
	y.label = func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
	f.draw(span(xs(all), false, true), y, all)
	return append(figures, f)
}

// slowdownFigure draws the quota while half of the workers slow down, with the reasons at the
// pointer.
func (s *DBWSet) slowdownFigure() figure {
	f := figure{Title: "Half of the workers slow down", XLabel: "seconds", Text: fmt.Sprintf("Half of the workers become %g times slower after %g s. The quota of each step of dbw, one seed; "+
		"the reason that it gave is under the pointer.", slowFactor, slowFrom)}
	var all []series
	for i, x := range s.Slowdown {
		line := series{name: x.Controller, colour: dbwColour(x.Controller), dots: true}
		if x.Controller != "dbw" {
			line.dots, line.dashed, line.colour = false, true, fixedColour(i)
		}
		reason := ""
		for _, p := range x.Points {
			if p.Reason != "" {
				reason = p.Reason
			}
			line.x, line.y = append(line.x, p.Seconds), append(line.y, float64(p.Quota))
			line.titles = append(line.titles, fmt.Sprintf("%.1f s: %s", p.Seconds, reason))
		}
		all = append(all, line)
	}
	end := 0.0
	for _, v := range all[0].x {
		end = max(end, v)
	}
	f.draw(span([]float64{0, 1.5 * end}, false, true), span(ys(all), false, true), all)
	return f
}

// slowdownLossFigure draws the losses of the same runs.
func (s *DBWSet) slowdownLossFigure() figure {
	f := figure{Title: "The loss meanwhile", XLabel: "seconds", Text: "The same run of dbw, beside the fixed quotas of all workers, of the best before and of the best after."}
	var all []series
	for i, x := range s.Slowdown {
		line := series{name: x.Controller, colour: fixedColour(i), dashed: true}
		if x.Controller == "dbw" {
			line.colour, line.dashed = dbwColour("dbw"), false
		}
		for _, p := range x.Points {
			line.x, line.y = append(line.x, p.Seconds), append(line.y, float64(p.Loss))
		}
		all = append(all, line)
	}
	f.draw(span(xs(all), false, true), span(ys(all), true, false), all)
	return f
}
