package report

import (
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
	"unicode/utf8"
)

// Geometry of a figure, in units of its view box.
const (
	figureWidth = 1000
	plotLeft    = 76
	plotRight   = 918
	curvePoints = 420 // over the whole width: two units each
)

// figure is a stack of panels over one x axis.
type figure struct {
	canvas
	name   string
	x      scale
	ticks  []tick
	unit   string // of x, for the value at the pointer: "step" or "s"
	marks  func(f *figure, top, bottom float64)
	bottom float64 // of the last panel
	named  float64 // x at which the title of the last panel ends, plus a space
	curves []curve
}

// curve is the data of a curve for the pointer: values, not coordinates.
type curve struct {
	Name   string       `json:"name"`
	Points [][2]float64 `json:"points"`
	Places int          `json:"places"` // number of decimal places
	Unit   string       `json:"unit"`
	Factor float64      `json:"factor"` // factor for showing a value
}

// panel is one plot of a figure.
type panel struct {
	*figure
	top, bottom float64
	y           scale
}

// panel adds a plot of the given height with a title. Marks are drawn first, so that curves lie
// over them.
func (f *figure) panel(name string, height float64) *panel {
	top := f.bottom + 30
	f.bottom = top + height
	f.text("name", plotLeft, top-9, name)
	f.named = plotLeft + 20 + 7*float64(utf8.RuneCountInString(name))
	if f.marks != nil {
		f.marks(f, top, f.bottom)
	}
	return &panel{figure: f, top: top, bottom: f.bottom}
}

// scaleY sets the y axis and draws its grid.
func (p *panel) scaleY(s scale, ticks func(scale) []tick) {
	s.from, s.to = p.bottom, p.top
	p.y = s
	for _, t := range ticks(s) {
		y := s.at(t.v)
		p.line("grid", plotLeft, y, plotRight, y)
		p.text("tick end", plotLeft-8, y+4, t.label)
	}
}

// place converts values to coordinates.
func (p *panel) place(points []point) []point {
	placed := make([]point, len(points))
	for i, v := range points {
		placed[i] = point{p.x.at(v.x), p.y.at(v.y)}
	}
	return placed
}

// clip clips what draw draws to the panel: curves may exceed their scale.
func (p *panel) clip(draw func()) {
	id := fmt.Sprintf("clip-%s-%d", p.name, int(p.top))
	fmt.Fprintf(p, `<clipPath id="%s"><rect x="%d" y="%s" width="%d" height="%s"/></clipPath><g clip-path="url(#%s)">`,
		id, plotLeft, px(p.top-1), plotRight-plotLeft, px(p.bottom-p.top+2), id)
	draw()
	p.WriteString(`</g>`)
}

// label writes a value beside the end of its curve.
func (p *panel) label(class string, v float64, text string) {
	y := min(p.bottom, max(p.top+6, p.y.at(v)))
	p.text("value "+class, plotRight+8, y+4, text)
}

// track adds a curve to the values at the pointer.
func (f *figure) track(name, unit string, places int, factor float64, points []point) {
	c := curve{Name: name, Unit: unit, Places: places, Factor: factor}
	for _, v := range points {
		if !math.IsNaN(v.y) && !math.IsInf(v.y, 0) {
			// Six digits are more than are shown.
			c.Points = append(c.Points, [2]float64{short(v.x), short(v.y)})
		}
	}
	if len(c.Points) > 0 {
		f.curves = append(f.curves, c)
	}
}

func short(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-5)
	return math.Round(v/unit) * unit
}

// svg completes the figure: x axis, frame, and the values for the pointer.
func (f *figure) svg(description string) template.HTML {
	f.line("axis", plotLeft, f.bottom, plotRight, f.bottom)
	for _, t := range f.ticks {
		x := f.x.at(t.v)
		f.line("axis", x, f.bottom, x, f.bottom+5)
		f.text("tick middle", x, f.bottom+20, t.label)
	}
	height := f.bottom + 30
	curves, err := json.Marshal(f.curves)
	if err != nil {
		curves = []byte("[]") // the picture is complete without values at the pointer
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="figure" viewBox="0 0 %d %s" role="img" aria-label="%s" data-lo="%g" data-hi="%g" data-left="%d" data-right="%d" data-unit="%s" data-curves="%s">`,
		figureWidth, px(height), html.EscapeString(description), f.x.lo, f.x.hi, plotLeft, plotRight, f.unit, html.EscapeString(string(curves)))
	b.WriteString(f.String())
	fmt.Fprintf(&b, `<line class="cursor" y1="20" y2="%s"/></svg>`, px(f.bottom))
	return template.HTML(b.String()) // every text in it has been escaped by html.EscapeString
}
