package page

import "math"

// Tick is a label on an axis.
type Tick struct {
	At    float64 // pixels
	Label string
}

// Colours that people with colour blindness can distinguish (Okabe and Ito 2008), and two more.
var Colours = []string{"#444444", "#0072b2", "#56b4e9", "#009e73", "#7bc8a4", "#d55e00", "#f0b088", "#cc79a7", "#e6bcd6", "#b8860b"}

// Coordinates of a panel's plot, in pixels.
const (
	PlotLeft, PlotRight = 60.0, 760.0
	PlotTop, PlotBottom = 14.0, 330.0
)

// LogScale maps [lo, hi] to [from, to] logarithmically.
func LogScale(lo, hi, from, to float64) func(float64) float64 {
	return func(v float64) float64 { return from + math.Log(v/lo)/math.Log(hi/lo)*(to-from) }
}

// Ticks returns the products of powers of ten and steps that lie in [lo, hi].
func Ticks(lo, hi float64, steps []float64) (list []float64) {
	for power := math.Pow(10, math.Floor(math.Log10(lo))); power <= hi; power *= 10 {
		for _, s := range steps {
			if v := s * power; v >= lo && v <= hi {
				list = append(list, v)
			}
		}
	}
	return list
}
