package page

import (
	"fmt"
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi/bench"
)

// Figure is a plot on a page.
type Figure struct {
	Title, Text, XLabel string
	Slanted             int // pixels for slanted labels along x; 0: horizontal labels
	X, Y                []Tick
	Lines               []figureLine // in drawing order
	Legend              []figureLine
}

// Height returns the height of the figure in pixels.
func (f Figure) Height() int {
	if f.Slanted > 0 {
		return int(PlotBottom) + f.Slanted
	}
	return int(PlotBottom) + 40
}

// Below returns the y of the name of the x axis.
func (f Figure) Below() int { return f.Height() - 4 }

type figureLine struct {
	Name, Colour, Path string
	Dashed             bool
	Marks              []figureMark
}

type figureMark struct {
	X, Y  float64
	Title string
}

// Series is a line through points, or only points.
type Series struct {
	Name, Colour string
	X, Y         []float64
	Titles       []string // of the points; may be nil
	Dashed, Dots bool
	steps        bool // constant between two points
}

// Axis is the range of values along one axis.
type Axis struct {
	Lo, Hi float64
	Log    bool
	Ticks  []float64
	Label  func(v float64) string
}

// Span returns an axis with room for all values, and ticks at round values. With zero, the range
// includes zero.
func Span(values []float64, log, zero bool) Axis {
	a := Axis{Lo: math.Inf(1), Hi: math.Inf(-1), Log: log, Label: func(v float64) string { return fmt.Sprintf("%.4g", v) }}
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) && (!log || v > 0) {
			a.Lo, a.Hi = min(a.Lo, v), max(a.Hi, v)
		}
	}
	if a.Lo > a.Hi {
		a.Lo, a.Hi = 1, 2
	}
	if log {
		a.Lo, a.Hi = a.Lo/1.15, a.Hi*1.15
		a.Ticks = Ticks(a.Lo, a.Hi, []float64{1, 2, 5})
		if a.Hi/a.Lo < 10 {
			a.Ticks = Ticks(a.Lo, a.Hi, []float64{1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8})
		}
		return a
	}
	if zero {
		a.Lo = min(0, a.Lo)
	}
	if a.Lo == a.Hi {
		a.Hi++
	}
	unit := math.Pow(10, math.Floor(math.Log10((a.Hi-a.Lo)/4)))
	for _, step := range []float64{1, 2, 5, 10} {
		if step *= unit; (a.Hi-a.Lo)/step <= 7 {
			a.Lo = math.Floor(a.Lo/step) * step
			for i := 0; ; i++ {
				a.Ticks = append(a.Ticks, a.Lo+float64(i)*step)
				if a.Ticks[i] >= a.Hi-step*1e-6 {
					break
				}
			}
			a.Hi = max(a.Hi, a.Ticks[len(a.Ticks)-1])
			break
		}
	}
	return a
}

// place maps values on the axis to pixels.
func (a Axis) place(from, to float64) func(float64) float64 {
	scale := func(v float64) float64 { return from + (v-a.Lo)/(a.Hi-a.Lo)*(to-from) }
	if a.Log {
		scale = LogScale(a.Lo, a.Hi, from, to)
	}
	low, high := min(from, to), max(from, to)
	return func(v float64) float64 { return max(low, min(high, scale(v))) } // values beyond the axis lie on the edge
}

// Draw fills the figure. The first series is first in the legend, and is drawn last, over the
// others. It leaves out values that are not finite or that the axis cannot show.
func (f *Figure) Draw(x, y Axis, all []Series) {
	px, py := x.place(PlotLeft, PlotRight), y.place(PlotBottom, PlotTop)
	for _, v := range x.Ticks {
		f.X = append(f.X, Tick{px(v), x.Label(v)})
	}
	for _, v := range y.Ticks {
		f.Y = append(f.Y, Tick{py(v), y.Label(v)})
	}
	for _, s := range all {
		l := figureLine{Name: s.Name, Colour: s.Colour, Dashed: s.Dashed}
		for i, v := range s.Y {
			if math.IsNaN(v) || math.IsInf(v, 0) || (y.Log && v <= 0) || (x.Log && s.X[i] <= 0) {
				continue
			}
			m := figureMark{X: px(s.X[i]), Y: py(v)}
			if s.Dots {
				m.Title = fmt.Sprintf("%s: %.4g", s.Name, v)
				if s.Titles != nil {
					m.Title = s.Titles[i]
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

// Xs returns the x of all points of some series.
func Xs(all []Series) (v []float64) {
	for _, s := range all {
		v = append(v, s.X...)
	}
	return v
}

// Ys is Xs for the other axis.
func Ys(all []Series) (v []float64) {
	for _, s := range all {
		v = append(v, s.Y...)
	}
	return v
}

// Smoothed returns the running mean over reach values on either side.
func Smoothed(v []float64, reach int) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = bench.Mean(v[max(0, i-reach):min(len(v), i+reach+1)])
	}
	return out
}
