package bench

import (
	_ "embed" // for codecs.html
	"fmt"
	"math"
	"slices"
)

//go:embed codecs.html
var codecsPageText string

// WriteCodecs writes table.json and report.html to a folder and returns the path of the page.
func WriteCodecs(dir string, about Experiment, rows []CodecsRow) (page string, err error) {
	table := struct {
		Experiment
		Rows []CodecsRow `json:"rows"`
	}{about, rows}
	return writeExperiment(dir, codecsPageText, table, codecsPage(about, rows))
}

// codecsView is the data of codecs.html.
type codecsView struct {
	About  Experiment
	Panels []codecsPanel
}

// codecsPanel is one model on one data set.
type codecsPanel struct {
	Title, Subtitle string
	Lines           []codecsCurve
	X, Y            []codecsTick
}

type codecsCurve struct {
	Row     CodecsRow
	Colour  string
	Path    string
	X, Y    float64 // of its end
	Pushed  string
	Smaller float64
	Percent float64
}

func codecsPage(about Experiment, rows []CodecsRow) codecsView {
	v := codecsView{About: about}
	for len(rows) > 0 {
		n := slices.IndexFunc(rows, func(r CodecsRow) bool { return r.Model != rows[0].Model || r.Data != rows[0].Data })
		if n < 0 {
			n = len(rows)
		}
		v.Panels = append(v.Panels, newCodecsPanel(rows[:n]))
		rows = rows[n:]
	}
	return v
}

// newCodecsPanel draws the error over the bytes, both on logarithmic axes.
func newCodecsPanel(rows []CodecsRow) codecsPanel {
	first := rows[0]
	p := codecsPanel{Title: first.Model + " on " + first.Data, Subtitle: fmt.Sprintf("%d parameters, %d workers, %d steps, means of %d seeds", first.Parameters, first.Workers, first.Steps, first.Seeds)}
	lo, hi, least, most := math.Inf(1), 0.0, 1.0, 0.0
	for _, r := range rows {
		for _, m := range r.Curve {
			lo, hi = min(lo, m.Bytes), max(hi, m.Bytes)
			least, most = min(least, wrong(m)), max(most, wrong(m))
		}
	}
	x := logScale(lo/1.2, hi*1.2, plotLeft, plotRight)
	y := logScale(least/1.15, min(1, most*1.1), plotTop, plotBottom)
	for i, r := range rows {
		c := codecsCurve{Row: r, Colour: codecsColours[i%len(codecsColours)], Pushed: Bytes(float64(r.BytesPushed)),
			Smaller: float64(r.FP32Bytes) / float64(r.BytesPushed), Percent: 100 * r.Mean}
		for j, m := range r.Curve {
			c.X, c.Y = x(m.Bytes), y(wrong(m))
			c.Path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(j, 1)], c.X, c.Y)
		}
		p.Lines = append(p.Lines, c)
	}
	for _, b := range ticks(lo/1.2, hi*1.2, []float64{1}) {
		p.X = append(p.X, codecsTick{x(b), Bytes(b)})
	}
	for _, e := range ticks(least/1.15, min(1, most*1.1), []float64{1, 2, 5}) {
		p.Y = append(p.Y, codecsTick{y(e), fmt.Sprintf("%.4g %%", 100*(1-e))})
	}
	return p
}

// wrong returns the error rate on the test set, but at least 1e-4, since 0 has no logarithm.
func wrong(m CodecsMoment) float64 { return max(1e-4, 1-m.Accuracy) }
