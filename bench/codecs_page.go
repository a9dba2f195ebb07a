package bench

import (
	"fmt"
	"math"
	"slices"
)

// WriteCodecs writes table.json and report.html to a folder and returns the path of the page.
func WriteCodecs(dir string, about Experiment, rows []CodecsRow) (page string, err error) {
	table := struct {
		Experiment
		Rows []CodecsRow `json:"rows"`
	}{about, rows}
	return writeExperiment(dir, "codecs.html", table, codecsPage(about, rows))
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

type codecsTick struct {
	At    float64
	Label string
}

// Colours that people with colour blindness can distinguish (Okabe and Ito 2008), and two more.
var codecsColours = []string{"#444444", "#0072b2", "#56b4e9", "#009e73", "#7bc8a4", "#d55e00", "#f0b088", "#cc79a7", "#e6bcd6", "#b8860b"}

// Coordinates of a panel's plot.
const (
	plotLeft, plotRight = 60.0, 760.0
	plotTop, plotBottom = 14.0, 330.0
)

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

// logScale maps [lo, hi] to [from, to] logarithmically.
func logScale(lo, hi, from, to float64) func(float64) float64 {
	return func(v float64) float64 { return from + math.Log(v/lo)/math.Log(hi/lo)*(to-from) }
}

// ticks returns the products of powers of ten and steps that lie in [lo, hi].
func ticks(lo, hi float64, steps []float64) (list []float64) {
	for power := math.Pow(10, math.Floor(math.Log10(lo))); power <= hi; power *= 10 {
		for _, s := range steps {
			if v := s * power; v >= lo && v <= hi {
				list = append(list, v)
			}
		}
	}
	return list
}
