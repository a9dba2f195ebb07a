package bench

import (
	_ "embed" // for rates.html
	"fmt"
	"math"
)

//go:embed rates.html
var ratesPageText string

// WriteRates writes table.json and report.html to a folder and returns the path of the page.
func WriteRates(dir string, about Experiment, row RatesRow) (page string, err error) {
	table := struct {
		Experiment
		Rows []RatesRow `json:"rows"`
	}{about, []RatesRow{row}}
	return writeExperiment(dir, ratesPageText, table, newRatesView(about, row))
}

// ratesView is the data of rates.html.
type ratesView struct {
	About       Experiment
	Row         RatesRow
	Raw, Smooth string // paths
	X, Y        []codecsTick
	Marks       []ratesMark
}

// ratesMark is a rate in the table.
type ratesMark struct {
	What, Colour string
	Rate, At     float64
}

func newRatesView(about Experiment, row RatesRow) ratesView {
	v := ratesView{About: about, Row: row}
	points := row.Curve
	lo, hi := points[0].Rate, max(points[len(points)-1].Rate, row.BlowUp, row.Usual)
	least, most := math.Inf(1), math.Inf(-1)
	for _, p := range points {
		least, most = min(least, p.Loss, p.Smooth), max(most, p.Loss, p.Smooth)
	}
	if !(most > least) {
		most = least + 1
	}
	x := logScale(lo, hi, plotLeft, plotRight)
	y := func(loss float64) float64 { return plotBottom - (loss-least)/(most-least)*(plotBottom-plotTop) }
	for i, p := range points {
		v.Raw += fmt.Sprintf("%c%.1f %.1f", "ML"[min(i, 1)], x(p.Rate), y(p.Loss))
		v.Smooth += fmt.Sprintf("%c%.1f %.1f", "ML"[min(i, 1)], x(p.Rate), y(p.Smooth))
	}
	for _, r := range ticks(lo, hi, []float64{1}) {
		v.X = append(v.X, codecsTick{x(r), fmt.Sprintf("%.4g", r)})
	}
	for i := range 5 {
		loss := least + (most-least)*float64(i)/4
		v.Y = append(v.Y, codecsTick{y(loss), fmt.Sprintf("%.3g", loss)})
	}
	for _, m := range []ratesMark{
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
