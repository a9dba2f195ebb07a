package codecs

import (
	_ "embed" // for page.html
	"fmt"
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi/bench/page"
	"github.com/kintsugi-ml/kintsugi/internal/words"
)

//go:embed page.html
var pageText string

// Write writes table.json and report.html to a folder and returns the path of the page.
func Write(dir string, about page.Experiment, rows []Row) (file string, err error) {
	table := struct {
		page.Experiment
		Rows []Row `json:"rows"`
	}{about, rows}
	return page.Write(dir, pageText, table, newView(about, rows))
}

// view is the data of page.html.
type view struct {
	About  page.Experiment
	Panels []panel
}

// panel is one model on one data set.
type panel struct {
	Title, Subtitle string
	Lines           []curve
	X, Y            []page.Tick
}

type curve struct {
	Row     Row
	Colour  string
	Path    string
	X, Y    float64 // of its end
	Pushed  string
	Smaller float64
	Percent float64
}

func newView(about page.Experiment, rows []Row) view {
	v := view{About: about}
	for len(rows) > 0 {
		n := slices.IndexFunc(rows, func(r Row) bool { return r.Model != rows[0].Model || r.Data != rows[0].Data })
		if n < 0 {
			n = len(rows)
		}
		v.Panels = append(v.Panels, newPanel(rows[:n]))
		rows = rows[n:]
	}
	return v
}

// newPanel draws the error over the bytes, both on logarithmic axes.
func newPanel(rows []Row) panel {
	first := rows[0]
	p := panel{Title: first.Model + " on " + first.Data, Subtitle: fmt.Sprintf("%d parameters, %d workers, %d steps, means of %d seeds", first.Parameters, first.Workers, first.Steps, first.Seeds)}
	lo, hi, least, most := math.Inf(1), 0.0, 1.0, 0.0
	for _, r := range rows {
		for _, m := range r.Curve {
			lo, hi = min(lo, m.Bytes), max(hi, m.Bytes)
			least, most = min(least, wrong(m)), max(most, wrong(m))
		}
	}
	x := page.LogScale(lo/1.2, hi*1.2, page.PlotLeft, page.PlotRight)
	y := page.LogScale(least/1.15, min(1, most*1.1), page.PlotTop, page.PlotBottom)
	for i, r := range rows {
		c := curve{Row: r, Colour: page.Colours[i%len(page.Colours)], Pushed: words.Bytes(float64(r.BytesPushed)),
			Smaller: float64(r.FP32Bytes) / float64(r.BytesPushed), Percent: 100 * r.Mean}
		for j, m := range r.Curve {
			c.X, c.Y = x(m.Bytes), y(wrong(m))
			c.Path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(j, 1)], c.X, c.Y)
		}
		p.Lines = append(p.Lines, c)
	}
	for _, b := range page.Ticks(lo/1.2, hi*1.2, []float64{1}) {
		p.X = append(p.X, page.Tick{At: x(b), Label: words.Bytes(b)})
	}
	for _, e := range page.Ticks(least/1.15, min(1, most*1.1), []float64{1, 2, 5}) {
		p.Y = append(p.Y, page.Tick{At: y(e), Label: fmt.Sprintf("%.4g %%", 100*(1-e))})
	}
	return p
}

// wrong returns the error rate on the test set, but at least 1e-4, since 0 has no logarithm.
func wrong(m Moment) float64 { return max(1e-4, 1-m.Accuracy) }
