package bench

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Table is a table of a result, as text.
type Table struct {
	Title  string
	Header []string
	Lines  [][]string
}

// Tables returns what was found, the claims last.
func (r *DBWResult) Tables() []Table {
	cells := Table{Title: "Seconds to the target, and their ratio to the best fixed quota at the same learning rate"}
	cells.Header = []string{"BATCH", "RATE", "ALPHA", "BEST FIXED", "ITS SECONDS", "ALL", "RATE ~ QUOTA", "dbw", "RATIO", "MEAN QUOTA"}
	names := rivals(r)
	cells.Header = append(cells.Header, names...)
	for _, c := range r.Cells {
		if c.Controller != "dbw" {
			continue
		}
		line := []string{
			strconv.Itoa(c.Batch), number(c.Rate), number(c.Alpha), strconv.Itoa(c.BestQuota), seconds(c.Best), seconds(c.All), seconds(c.Scaled),
			seconds(c.Seconds), ratio(c.Ratio), fmt.Sprintf("%.1f", c.Quota),
		}
		for _, name := range names {
			for _, o := range r.Cells {
				if o.Controller == name && o.Batch == c.Batch && o.Rate == c.Rate && o.Alpha == c.Alpha {
					line = append(line, ratio(o.Ratio))
				}
			}
		}
		cells.Lines = append(cells.Lines, line)
	}
	ways := Table{Title: "dbw, by what a busy worker does about newer parameters", Header: []string{"BUSY", "BATCH", "RATE", "ALPHA", "BEST FIXED", "ITS SECONDS", "dbw", "RATIO", "MEAN QUOTA"}}
	for _, c := range r.Ways {
		ways.Lines = append(ways.Lines, []string{
			c.Busy, strconv.Itoa(c.Batch), number(c.Rate), number(c.Alpha), strconv.Itoa(c.BestQuota), seconds(c.Best), seconds(c.Seconds), ratio(c.Ratio), fmt.Sprintf("%.1f", c.Quota),
		})
	}
	truth := Table{Title: "Estimates of dbw beside the truth", Header: []string{"ALPHA", "ESTIMATE", "LOOKS", "BIAS", "MEDIAN RELATIVE ERROR"}}
	for _, e := range r.Estimates {
		truth.Lines = append(truth.Lines, []string{number(e.Alpha), e.Estimate, strconv.Itoa(e.Looks), fmt.Sprintf("%+.2f", float64(e.Bias)), ratio(e.Error)})
	}
	slow := Table{Title: "Half of the workers become five times slower after 30 s", Header: []string{"", "SECONDS", "MEDIAN QUOTA BEFORE", "AFTER", "STEPS TO SETTLE"}}
	for _, s := range r.Slowdown {
		slow.Lines = append(slow.Lines, []string{s.Controller, seconds(s.Seconds), number(s.Before), number(s.After), fmt.Sprintf("%.0f", float64(s.Settled))})
	}
	claims := Table{Title: "What is claimed", Header: []string{"HOLDS", "CLAIM", "MEASURED"}}
	for _, c := range r.Claims {
		holds := "yes"
		if !c.Holds {
			holds = "NO"
		}
		claims.Lines = append(claims.Lines, []string{holds, c.Claim, c.Measured})
	}
	return []Table{cells, ways, truth, slow, claims}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

func seconds(v record.Number) string {
	if !v.Known() {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(v))
}

func ratio(v record.Number) string {
	if !v.Known() {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(v))
}

// WriteHTML writes the report: the tables, and two figures.
func (r *DBWResult) WriteHTML(w io.Writer, head string) error {
	return dbwPage.Execute(w, map[string]any{"Head": head, "Tables": r.Tables(), "Ratios": r.ratioFigure(), "Quotas": r.quotaFigure()})
}

var dbwPage = template.Must(template.New("dbw").Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>Dynamic backup workers</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1040px; margin: 2em auto; color: #222; }
table { border-collapse: collapse; margin: 0 0 2em; } th, td { padding: 2px 10px; text-align: right; border-bottom: 1px solid #ddd; font-size: 13px; }
svg { width: 100%; } svg text { font: 12px system-ui, sans-serif; fill: #555; }
</style>
<h1>Dynamic backup workers</h1><p>{{.Head}}</p>
<h2>Ratio to the best fixed quota, in every cell</h2>{{.Ratios}}
<h2>The quota while half of the workers slow down</h2>{{.Quotas}}
{{range .Tables}}<h2>{{.Title}}</h2><table><tr>{{range .Header}}<th>{{.}}</th>{{end}}</tr>
{{range .Lines}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>{{end}}
</html>
`))

const (
	dbwWidth, dbwHeight     = 1000.0, 300.0
	dbwLeft, dbwRight       = 60.0, 850.0
	dbwTop, dbwBottom       = 15.0, 260.0
	dbwLeastRatio, dbwLimit = 0.7, 6.0
)

var dbwColours = []string{"#1f6feb", "#cf222e", "#9a6700", "#1a7f37", "#8250df", "#57606a"}

// ratioFigure draws a dot for each controller in each cell, on a logarithmic scale.
func (r *DBWResult) ratioFigure() template.HTML {
	var b strings.Builder
	names := append([]string{"dbw"}, rivals(r)...)
	y := func(v float64) float64 {
		v = min(dbwLimit, max(dbwLeastRatio, v))
		return dbwBottom - math.Log(v/dbwLeastRatio)/math.Log(dbwLimit/dbwLeastRatio)*(dbwBottom-dbwTop)
	}
	open(&b)
	for _, v := range []float64{0.8, 1, 1.15, 1.3, 1.6, 2, 3, 5} {
		fmt.Fprintf(&b, `<line x1="%g" x2="%g" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%g</text>`, dbwLeft, dbwRight, y(v), y(v), dbwLeft-8, y(v)+4, v)
	}
	per := len(names)
	count := max(1, len(r.Cells)/per)
	for i, c := range r.Cells {
		which := 0
		for j, n := range names {
			if n == c.Controller {
				which = j
			}
		}
		alphas := i / per
		x := dbwLeft + (float64(alphas)+0.5)/float64(count)*(dbwRight-dbwLeft)
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s" fill-opacity="0.75"><title>%s: %s</title></circle>`,
			x, y(float64(c.Ratio)), dbwColours[which%len(dbwColours)], template.HTMLEscapeString(c.Name), ratio(c.Ratio))
		if which == 0 {
			fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle">%g</text>`, x, dbwBottom+16, c.Alpha)
		}
	}
	for i, n := range names {
		fmt.Fprintf(&b, `<circle cx="%g" cy="%g" r="4" fill="%s"/><text x="%g" y="%g">%s</text>`, dbwRight+20, dbwTop+10+20*float64(i), dbwColours[i%len(dbwColours)], dbwRight+32, dbwTop+14+20*float64(i), template.HTMLEscapeString(n))
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g">alpha of each cell; cells in the order of the table</text></svg>`, dbwLeft, dbwHeight-6)
	return template.HTML(b.String()) // names went through HTMLEscapeString, the rest is ours
}

// quotaFigure draws the quota over virtual time, with the reasons under the pointer.
func (r *DBWResult) quotaFigure() template.HTML {
	var b strings.Builder
	open(&b)
	end, most := 1.0, 1.0
	for _, t := range r.Trace {
		end, most = max(end, t.Seconds), max(most, float64(t.Quota))
	}
	x := func(v float64) float64 { return dbwLeft + v/end*(dbwRight-dbwLeft) }
	y := func(v float64) float64 { return dbwBottom - v/most*(dbwBottom-dbwTop) }
	for _, v := range []float64{0, most / 4, most / 2, 3 * most / 4, most} {
		fmt.Fprintf(&b, `<line x1="%g" x2="%g" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%g</text>`, dbwLeft, dbwRight, y(v), y(v), dbwLeft-8, y(v)+4, v)
	}
	reason := ""
	for _, t := range r.Trace {
		if t.Reason != "" {
			reason = t.Reason
		}
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%.1f s: %s</title></circle>`, x(t.Seconds), y(float64(t.Quota)), dbwColours[0], t.Seconds, template.HTMLEscapeString(reason))
	}
	for i := range 6 {
		v := end * float64(i) / 5
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle">%.0f s</text>`, x(v), dbwBottom+16, v)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

func open(b *strings.Builder) {
	fmt.Fprintf(b, `<svg viewBox="0 0 %g %g" role="img">`, dbwWidth, dbwHeight)
}
