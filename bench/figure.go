package bench

import (
	"fmt"
	"math"
	"slices"
)

// figure is a plot on a page.
type figure struct {
	Title, Text, XLabel string
	Slanted             int // pixels for slanted labels along x; 0: horizontal labels
	X, Y                []codecsTick
	Lines               []figureLine // in drawing order
	Legend              []figureLine
}

// Height returns the height of the figure in pixels.
func (f figure) Height() int {
	if f.Slanted > 0 {
		return int(plotBottom) + f.Slanted
	}
	return int(plotBottom) + 40
}

// Below returns the y of the name of the x axis.
func (f figure) Below() int { return f.Height() - 4 }

type figureLine struct {
	Name, Colour, Path string
	Dashed             bool
	Marks              []figureMark
}

type figureMark struct {
	X, Y  float64
	Title string
}

// series is a line through points, or only points.
type series struct {
	name, colour string
	x, y         []float64
	titles       []string // of the points; may be nil
	dashed, dots bool
	steps        bool // constant between two points
}

// axis is the range of values along one axis.
type axis struct {
	lo, hi float64
	log    bool
	ticks  []float64
	label  func(v float64) string
}

// span returns an axis with room for all values, and ticks at round values. With zero, the range
// includes zero.
func span(values []float64, log, zero bool) axis {
	a := axis{lo: math.Inf(1), hi: math.Inf(-1), log: log, label: func(v float64) string { return fmt.Sprintf("%.4g", v) }}
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) && (!log || v > 0) {
			a.lo, a.hi = min(a.lo, v), max(a.hi, v)
		}
	}
	if a.lo > a.hi {
		a.lo, a.hi = 1, 2
	}
	if log {
		a.lo, a.hi = a.lo/1.15, a.hi*1.15
		a.ticks = ticks(a.lo, a.hi, []float64{1, 2, 5})
		if a.hi/a.lo < 10 {
			a.ticks = ticks(a.lo, a.hi, []float64{1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8})
		}
		return a
	}
	if zero {
		a.lo = min(0, a.lo)
	}
	if a.lo == a.hi {
		a.hi++
	}
	unit := math.Pow(10, math.Floor(math.Log10((a.hi-a.lo)/4)))
	for _, step := range []float64{1, 2, 5, 10} {
		if step *= unit; (a.hi-a.lo)/step <= 7 {
			a.lo = math.Floor(a.lo/step) * step
			for i := 0; ; i++ {
				a.ticks = append(a.ticks, a.lo+float64(i)*step)
				if a.ticks[i] >= a.hi-step*1e-6 {
					break
				}
			}
			a.hi = max(a.hi, a.ticks[len(a.ticks)-1])
			break
		}
	}
	return a
}

// place maps values on the axis to pixels.
func (a axis) place(from, to float64) func(float64) float64 {
	scale := func(v float64) float64 { return from + (v-a.lo)/(a.hi-a.lo)*(to-from) }
	if a.log {
		scale = logScale(a.lo, a.hi, from, to)
	}
	low, high := min(from, to), max(from, to)
	return func(v float64) float64 { return max(low, min(high, scale(v))) } // values beyond the axis lie on the edge
}

// draw fills the figure. The first series is first in the legend, and is drawn last, over the
// others. It leaves out values that are not finite or that the axis cannot show.
func (f *figure) draw(x, y axis, all []series) {
	px, py := x.place(plotLeft, plotRight), y.place(plotBottom, plotTop)
	for _, v := range x.ticks {
		f.X = append(f.X, codecsTick{px(v), x.label(v)})
	}
	for _, v := range y.ticks {
		f.Y = append(f.Y, codecsTick{py(v), y.label(v)})
	}
	for _, s := range all {
		l := figureLine{Name: s.name, Colour: s.colour, Dashed: s.dashed}
		for i, v := range s.y {
			if math.IsNaN(v) || math.IsInf(v, 0) || (y.log && v <= 0) || (x.log && s.x[i] <= 0) {
				continue
			}
			m := figureMark{X: px(s.x[i]), Y: py(v)}
			if s.dots {
				m.Title = fmt.Sprintf("%s: %.4g", s.name, v)
				if s.titles != nil {
					m.Title = s.titles[i]
				}
				l.Marks = append(l.Marks, m)
				continue
			}
			switch {
			case l.Path == "":
				l.Path = fmt.Sprintf("M%.1f %.1f", m.X, m.Y)
			case s.steps:
				l.Path += fmt.Sprintf("V%.1fH%.1f", m.Y, m.X)
			default:
				l.Path += fmt.Sprintf("L%.1f %.1f", m.X, m.Y)
			}
		}
		f.Legend = append(f.Legend, l)
	}
	f.Lines = slices.Clone(f.Legend)
	slices.Reverse(f.Lines)
}

// xs and ys return all values of some series.
func xs(all []series) (v []float64) {
	for _, s := range all {
		v = append(v, s.x...)
	}
	return v
}

func ys(all []series) (v []float64) {
	for _, s := range all {
		v = append(v, s.y...)
	}
	return v
}

// smoothed returns the running mean over reach values on either side.
func smoothed(v []float64, reach int) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = mean(v[max(0, i-reach):min(len(v), i+reach+1)])
	}
	return out
}
