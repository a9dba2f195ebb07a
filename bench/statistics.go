package bench

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Mean returns the mean, which is NaN if there are no values.
func Mean(x []float64) float64 { return stat.Mean(x, nil) }

// MeanDeviation returns the mean and the sample standard deviation, which is unknown if there are
// fewer than two values.
func MeanDeviation(x []float64) (mean float64, deviation record.Number) {
	mean, d := stat.MeanStdDev(x, nil)
	return mean, record.Number(d)
}

// Median returns the median, which is NaN if there are no values.
func Median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// Quartiles returns the interpolated quartiles of x, which must not be empty.
func Quartiles(x []float64) (lower, median, upper float64) {
	x = slices.Sorted(slices.Values(x))
	at := func(p float64) float64 {
		whole, part := math.Modf(p * float64(len(x)-1))
		i := int(whole)
		if i+1 == len(x) {
			return x[i]
		}
		return x[i] + part*(x[i+1]-x[i])
	}
	return at(0.25), at(0.5), at(0.75)
}
