package bench

import (
	_ "embed" // for scar.html
	"fmt"
	"math"
	"slices"
	"strconv"
)

//go:embed scar.html
var scarPageText string

// WriteScar writes table.json and report.html to a folder and returns the path of the page. bound may be nil.
func WriteScar(dir string, about Experiment, rows []ScarRow, bound *ScarBound) (page string, err error) {
	table := struct {
		Experiment
		Rows  []ScarRow  `json:"rows"`
		Bound *ScarBound `json:"bound,omitempty"`
	}{about, rows, bound}
	return writeExperiment(dir, scarPageText, table, scarPage(about, rows, bound))
}

// scarView is the data of scar.html.
type scarView struct {
	About  Experiment
	Panels []scarPanel
	Bound  *scarBoundView
}

// scarPanel is one workload with one lost share.
type scarPanel struct {
	Title, Subtitle string
	Periods         []codecsTick
	Y               []codecsTick
	Lines           []scarLine
}

// scarLine is a strategy: a point, and a cell of the table, for each period.
type scarLine struct {
	Strategy, Colour, Path, Paper string
	Marks                         []scarMark
	Cells                         []scarTableCell
}

type scarMark struct {
	X, Y, Low, High float64
	Title           string
}

type scarTableCell struct {
	Row  ScarRow
	Text string
}

// scarColours are those of codecs and twelve more, by index in ScarStrategies.
var scarColours = append(slices.Clone(codecsColours), "#8c6bb1", "#e6ab02", "#1b9e77", "#e7298a", "#7f0000", "#a6761d", "#000000", "#66a61e", "#7570b3", "#d95f02", "#a6cee3", "#b15928")

func scarPage(about Experiment, rows []ScarRow, bound *ScarBound) scarView {
	v := scarView{About: about, Bound: newScarBoundView(bound)}
	for len(rows) > 0 {
		first := rows[0]
		n := slices.IndexFunc(rows, func(r ScarRow) bool {
			return r.Workload != first.Workload || r.Data != first.Data || r.Lost != first.Lost
		})
		if n < 0 {
			n = len(rows)
		}
		v.Panels = append(v.Panels, newScarPanel(rows[:n]))
		rows = rows[n:]
	}
	return v
}

// newScarPanel draws the reduction over the period. Strategies that cost 1.4 times the baseline or
// more are drawn on the lower edge.
func newScarPanel(rows []ScarRow) scarPanel {
	first := rows[0]
	p := scarPanel{Title: fmt.Sprintf("%s: %s lost", first.Workload, Share(first.Lost)),
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
		return plotLeft + (float64(slices.Index(periods, period))+0.5)/float64(len(periods))*(plotRight-plotLeft)
	}
	y := func(v float64) float64 {
		return plotBottom + (min(1.05, max(least, v))-least)/(1.05-least)*(plotTop-plotBottom)
	}
	for _, c := range periods {
		p.Periods = append(p.Periods, codecsTick{x(c), fmt.Sprintf("C = %d", c)})
	}
	for percent := int(math.Round(100 * least)); percent <= 100; percent += 20 {
		p.Y = append(p.Y, codecsTick{y(float64(percent) / 100), fmt.Sprintf("%d %%", percent)})
	}
	for _, r := range rows {
		at := slices.IndexFunc(p.Lines, func(l scarLine) bool { return l.Strategy == r.Strategy })
		if at < 0 {
			at = len(p.Lines)
			colour := scarColours[max(0, slices.Index(ScarStrategies, r.Strategy))%len(scarColours)]
			p.Lines = append(p.Lines, scarLine{Strategy: r.Strategy, Colour: colour, Paper: r.Paper})
		}
		p.Lines[at].add(r, x(r.Period)+(float64(at)-11)*7, y)
	}
	return p
}

func (l *scarLine) add(r ScarRow, x float64, y func(float64) float64) {
	if r.Missing != "" {
		l.Cells = append(l.Cells, scarTableCell{r, "n/a"})
		return
	}
	text := fmt.Sprintf("%.1f steps", r.Rework)
	if r.Strategy != "full" {
		text = fmt.Sprintf("%s %% (%s to %s)", whole(100*r.Reduction), whole(100*r.Low), whole(100*r.High))
		l.Marks = append(l.Marks, scarMark{x, y(r.Reduction), y(r.Low), y(r.High), fmt.Sprintf("%s, C = %d: %s", r.Strategy, r.Period, text)})
		l.Path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(len(l.Path), 1)], x, y(r.Reduction))
	}
	l.Cells = append(l.Cells, scarTableCell{r, text})
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
