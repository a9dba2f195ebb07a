package bench

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"
)

func TestQuartilesAreInterpolated(t *testing.T) {
	for _, test := range []struct{ x, want []float64 }{
		{[]float64{3}, []float64{3, 3, 3}},
		{[]float64{2, 1}, []float64{1.25, 1.5, 1.75}},
		{[]float64{5, 1, 4, 2, 3}, []float64{2, 3, 4}},
		{[]float64{8, 1, 4, 2}, []float64{1.75, 3, 5}},
	} {
		lower, median, upper := Quartiles(test.x)
		if got := []float64{lower, median, upper}; !slices.Equal(got, test.want) {
			t.Errorf("quartiles of %v are %v, want %v", test.x, got, test.want)
		}
	}
}

// Ratios are formed within a round, so it does not show that both are slow in the second one.
func TestRowsCompareWithinARound(t *testing.T) {
	bound := &Timed{Row: Row{Bytes: 100}, seconds: []float64{1, 10, 1}}
	slow := &Timed{Row: Row{Variant: "slow", DType: "fp32", Elements: 50, Bytes: 400}, seconds: []float64{6, 60, 3}}
	fast := &Timed{Row: Row{Elements: 100, Bytes: 200}, Over: slow, Bound: Fastest(200, bound, slow), seconds: []float64{4, 40, 4}}
	r := fast.row()
	if r.Ratio != 3 || r.RatioHigh != 3 || r.Versus != "slow fp32" || r.BytesRatio != 4 {
		t.Errorf("compared: %+v", r)
	}
	if r.Seconds != 4 || r.GBPerS != 200/4.0/1e9 || r.Fraction != 0.5 || r.BoundGBPerS != 200/2.0/1e9 {
		t.Errorf("measured: %+v", r)
	}
}

func TestInterleaveAlternatesTheOrder(t *testing.T) {
	var order []string
	operation := func(name string) *Timed {
		return &Timed{Row: Row{Name: name, Elements: 1, Bytes: 1}, Run: func(int) { order = append(order, name) }}
	}
	rows, err := Interleave(t.Context(), 2, 0, []*Timed{operation("a"), operation("b")})
	if err != nil || len(rows) != 2 || rows[0].Name != "a" || rows[1].Seconds <= 0 {
		t.Fatalf("rows %+v, error %v", rows, err)
	}
	if want := []string{"a", "a", "b", "b", "a", "b", "b", "a"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	clocked := &Timed{Row: Row{Bytes: 6e9}, Clock: func(times int) float64 { return 3 * float64(times) }}
	if rows, err := Interleave(t.Context(), 1, 0, []*Timed{clocked}); err != nil || rows[0].Seconds != 3 || rows[0].GBPerS != 2 {
		t.Errorf("by a clock of its own: rows %+v, error %v", rows, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Interleave(ctx, 1, time.Hour, []*Timed{operation("a")}); err == nil {
		t.Error("an interrupted measurement has rows")
	}
}

func TestOneValueHasNoDeviation(t *testing.T) {
	if mean, deviation := MeanDeviation([]float64{0.9}); mean != 0.9 || deviation.Known() {
		t.Errorf("one value has a mean of %v ± %v", mean, deviation)
	}
	if mean, deviation := MeanDeviation([]float64{1, 2, 3}); mean != 2 || deviation != 1 {
		t.Errorf("1, 2 and 3 have a mean of %v ± %v", mean, deviation)
	}
}

func TestNoValuesHaveNoMedian(t *testing.T) {
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
	if a, b := Median([]float64{3, 1, 2}), Median([]float64{4, 1, 2, 3}); a != 2 || b != 2.5 {
		t.Errorf("the medians of 1, 2, 3 and 1, 2, 3, 4 are %v and %v", a, b)
	}
}
