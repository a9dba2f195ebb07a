package rates

import (
	_ "embed" // for page.html
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi/bench/page"
)

//go:embed page.html
var pageText string

// Write writes table.json and report.html to a folder and returns the path of the page.
func Write(dir string, about page.Experiment, row Row) (file string, err error) {
	table := struct {
		page.Experiment
		Rows []Row `json:"rows"`
	}{about, []Row{row}}
	return page.Write(dir, pageText, table, newView(about, row))
}

// view is the data of page.html.
type view struct {
	About       page.Experiment
	Row         Row
	Raw, Smooth string // paths
	X, Y        []page.Tick
	Marks       []mark
}

// mark is a rate in the table.
type mark struct {
	What, Colour string
	Rate, At     float64
}

func newView(about page.Experiment, row Row) view {
	v := view{About: about, Row: row}
	points := row.Curve
	lo, hi := points[0].Rate, max(points[len(points)-1].Rate, row.BlowUp, row.Usual)
	least, most := math.Inf(1), math.Inf(-1)
	for _, p := range points {
		least, most = min(least, p.Loss, p.Smooth), max(most, p.Loss, p.Smooth)
	}
	if !(most > least) {
		most = least + 1
	}
	x := page.LogScale(lo, hi, page.PlotLeft, page.PlotRight)
	y := func(loss float64) float64 {
		return page.PlotBottom - (loss-least)/(most-least)*(page.PlotBottom-page.PlotTop)
	}
	for i, p := range points {
		v.Raw += fmt.Sprintf("%c%.1f %.1f", "ML"[min(i, 1)], x(p.Rate), y(p.Loss))
		v.Smooth += fmt.Sprintf("%c%.1f %.1f", "ML"[min(i, 1)], x(p.Rate), y(p.Smooth))
	}
	for _, r := range page.Ticks(lo, hi, []float64{1}) {
		v.X = append(v.X, page.Tick{At: x(r), Label: fmt.Sprintf("%.4g", r)})
	}
	for i := range 5 {
		loss := least + (most-least)*float64(i)/4
		v.Y = append(v.Y, page.Tick{At: y(loss), Label: fmt.Sprintf("%.3g", loss)})
	}
	for _, m := range []mark{
		{What: "chosen: " + row.Rule, Colour: "#009e73", Rate: row.Chosen}, {What: "the loss falls fastest", Colour: "#56b4e9", Rate: row.Steepest},
		{What: "the loss is lowest", Colour: "#e69f00", Rate: row.Lowest},
		{What: "a pass has diverged", Colour: "#d55e00", Rate: row.BlowUp}, {What: "train without --learning-rate", Colour: "#888888", Rate: row.Usual},
	} {
		if m.Rate >= lo {
			m.At = x(m.Rate)
			v.Marks = append(v.Marks, m)
		}
	}
	return v
}
