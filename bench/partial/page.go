package partial

import (
	_ "embed" // for page.html
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/kintsugi-ml/kintsugi/bench/page"
)

//go:embed page.html
var pageText string

// Write writes table.json and report.html to a folder and returns the path of the page. bound may be nil.
func Write(dir string, about page.Experiment, rows []Row, bound *Bound) (file string, err error) {
	table := struct {
		page.Experiment
		Rows  []Row  `json:"rows"`
		Bound *Bound `json:"bound,omitempty"`
	}{about, rows, bound}
	return page.Write(dir, pageText, table, newView(about, rows, bound))
}

// view is the data of page.html.
type view struct {
	About  page.Experiment
	Panels []panel
	Bound  *boundView
}

// panel is one workload with one lost share.
type panel struct {
	Title, Subtitle string
	Periods         []page.Tick
	Y               []page.Tick
	Lines           []line
}

// line is a strategy: a point, and a cell of the table, for each period.
type line struct {
	Strategy, Colour, Path, Paper string
	Marks                         []mark
	Cells                         []tableCell
}

type mark struct {
	X, Y, Low, High float64
	Title           string
}

type tableCell struct {
	Row  Row
	Text string
}

// colours are those of codecs and twelve more, by index in Strategies.
var colours = append(slices.Clone(page.Colours), "#8c6bb1", "#e6ab02", "#1b9e77", "#e7298a", "#7f0000", "#a6761d", "#000000", "#66a61e", "#7570b3", "#d95f02", "#a6cee3", "#b15928")

func newView(about page.Experiment, rows []Row, bound *Bound) view {
	v := view{About: about, Bound: newBoundView(bound)}
	for len(rows) > 0 {
		first := rows[0]
		n := slices.IndexFunc(rows, func(r Row) bool {
			return r.Workload != first.Workload || r.Data != first.Data || r.Lost != first.Lost
		})
		if n < 0 {
			n = len(rows)
		}
		v.Panels = append(v.Panels, newPanel(rows[:n]))
		rows = rows[n:]
	}
	return v
}

// newPanel draws the reduction over the period. Strategies that cost 1.4 times the baseline or
// more are drawn on the lower edge.
func newPanel(rows []Row) panel {
	first := rows[0]
	p := panel{Title: fmt.Sprintf("%s: %s lost", first.Workload, Share(first.Lost)),
		Subtitle: fmt.Sprintf("%s, %d values in %d blocks, %d steps undisturbed", first.Data, first.Values, first.Blocks, first.Steps)}
	var periods []int
	least := 0.0
	for _, r := range rows {
		if !slices.Contains(periods, r.Period) {
			periods = append(periods, r.Period)
		}
		if r.Missing == "" {
			least = max(-0.4, min(least, math.Floor(r.Low*5)/5))
		}
	}
	x := func(period int) float64 {
		return page.PlotLeft + (float64(slices.Index(periods, period))+0.5)/float64(len(periods))*(page.PlotRight-page.PlotLeft)
	}
	y := func(v float64) float64 {
		return page.PlotBottom + (min(1.05, max(least, v))-least)/(1.05-least)*(page.PlotTop-page.PlotBottom)
	}
	for _, c := range periods {
		p.Periods = append(p.Periods, page.Tick{At: x(c), Label: fmt.Sprintf("C = %d", c)})
	}
	for percent := int(math.Round(100 * least)); percent <= 100; percent += 20 {
		p.Y = append(p.Y, page.Tick{At: y(float64(percent) / 100), Label: fmt.Sprintf("%d %%", percent)})
	}
	for _, r := range rows {
		at := slices.IndexFunc(p.Lines, func(l line) bool { return l.Strategy == r.Strategy })
		if at < 0 {
			at = len(p.Lines)
			colour := colours[max(0, slices.Index(Strategies, r.Strategy))%len(colours)]
			p.Lines = append(p.Lines, line{Strategy: r.Strategy, Colour: colour, Paper: r.Paper})
		}
		p.Lines[at].add(r, x(r.Period)+(float64(at)-11)*7, y)
	}
	return p
}

func (l *line) add(r Row, x float64, y func(float64) float64) {
	if r.Missing != "" {
		l.Cells = append(l.Cells, tableCell{r, "n/a"})
		return
	}
	text := fmt.Sprintf("%.1f steps", r.Rework)
	if r.Strategy != "full" {
		text = fmt.Sprintf("%s %% (%s to %s)", whole(100*r.Reduction), whole(100*r.Low), whole(100*r.High))
		l.Marks = append(l.Marks, mark{x, y(r.Reduction), y(r.Low), y(r.High), fmt.Sprintf("%s, C = %d: %s", r.Strategy, r.Period, text)})
		l.Path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(len(l.Path), 1)], x, y(r.Reduction))
	}
	l.Cells = append(l.Cells, tableCell{r, text})
}

// whole formats a number without decimals; numbers that round to zero have no sign.
func whole(v float64) string { return strconv.Itoa(int(math.Round(v))) }

// Share formats a share, as a fraction if it is a simple one.
func Share(v float64) string {
	for _, n := range []int{2, 3, 4, 8} {
		for i := 1; i < n; i++ {
			if v == float64(i)/float64(n) {
				return fmt.Sprintf("%d/%d", i, n)
			}
		}
	}
	return fmt.Sprintf("%.3g %%", 100*v)
}
