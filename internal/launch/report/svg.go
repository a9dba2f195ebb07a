package report

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// canvas collects the elements of an SVG picture. It escapes all text and attributes that do not
// come from this package's code.
type canvas struct{ strings.Builder }

// px formats a coordinate with a tenth of a unit, which is precise enough and short in the file.
func px(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, px(x1), px(y1), px(x2), px(y2))
}

func (c *canvas) rect(class string, x, y, w, h float64) {
	fmt.Fprintf(c, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`, class, px(x), px(y), px(max(0, w)), px(max(0, h)))
}

func (c *canvas) circle(class string, x, y, r float64) {
	fmt.Fprintf(c, `<circle class="%s" cx="%s" cy="%s" r="%s"/>`, class, px(x), px(y), px(r))
}

// text writes a label; its class determines the anchor.
func (c *canvas) text(class string, x, y float64, label string) {
	fmt.Fprintf(c, `<text class="%s" x="%s" y="%s">%s</text>`, class, px(x), px(y), html.EscapeString(label))
}

// title returns an element whose text a browser shows when the pointer rests on it.
func title(label string) string { return "<title>" + html.EscapeString(label) + "</title>" }

// path draws a curve through points. A NaN interrupts the curve.
func (c *canvas) path(class string, points []point) {
	if d := pathData(points); d != "" {
		fmt.Fprintf(c, `<path class="%s" d="%s"/>`, class, d)
	}
}

func pathData(points []point) string {
	var b strings.Builder
	open := false
	for i, p := range points {
		if math.IsNaN(p.y) {
			open = false
			continue
		}
		switch {
		case !open:
			alone := i+1 == len(points) || math.IsNaN(points[i+1].y)
			fmt.Fprintf(&b, "M%s %s", px(p.x), px(p.y))
			if alone {
				b.WriteString("h0.1") // otherwise a single point would not be drawn
			}
		default:
			fmt.Fprintf(&b, "L%s %s", px(p.x), px(p.y))
		}
		open = true
	}
	return b.String()
}

// area fills the area between two curves over the same x.
func (c *canvas) area(class string, upper, lower []point) {
	for lo := 0; lo < len(upper); {
		hi := lo
		for hi < len(upper) && !math.IsNaN(upper[hi].y) && !math.IsNaN(lower[hi].y) {
			hi++
		}
		if hi-lo > 1 {
			var b strings.Builder
			b.WriteString(pathData(upper[lo:hi]))
			for i := hi - 1; i >= lo; i-- {
				fmt.Fprintf(&b, "L%s %s", px(lower[i].x), px(lower[i].y))
			}
			fmt.Fprintf(c, `<path class="%s" d="%sZ"/>`, class, b.String())
		}
		lo = max(hi, lo) + 1
	}
}

// point is a position in the picture, or a value that is not scaled yet.
type point struct{ x, y float64 }
