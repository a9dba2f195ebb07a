package bench

import (
	"context"
	"math"
	"slices"
	"time"
)

// Row is what a benchmark of one operation found: one flat object in JSON.
type Row struct {
	Name     string `json:"name"`     // of the operation
	Device   string `json:"device"`   // of kernels.Devices, or "memory" for a bound
	Variant  string `json:"variant"`  // which of the ways to do it
	K        int    `json:"k"`        // gradients that go in, or streams of a bound
	DType    string `json:"dtype"`    // of the gradients
	Threads  int    `json:"threads"`  // at once, each with chunks of its own
	Elements int    `json:"elements"` // values of the model

	Bytes       int64   `json:"bytes"`        // that must move: each array read or written once, nothing else
	Seconds     float64 `json:"seconds"`      // median of the rounds
	SecondsLow  float64 `json:"seconds_low"`  // lower quartile
	SecondsHigh float64 `json:"seconds_high"` // upper quartile

	GBPerS      float64 `json:"gb_per_s"` // Bytes/10⁹ each second, of the median
	BoundGBPerS float64 `json:"bound_gb_per_s"`
	Fraction    float64 `json:"fraction"` // of the bound: the median of the rounds' fractions; 0 where there is no bound

	// How many times faster it is than what Versus names, by the seconds of each element: the median of the
	// rounds' ratios, and its quartiles. BytesRatio is the same of bytes.
	Versus     string  `json:"versus,omitempty"`
	Ratio      float64 `json:"ratio,omitempty"`
	RatioLow   float64 `json:"ratio_low,omitempty"`
	RatioHigh  float64 `json:"ratio_high,omitempty"`
	BytesRatio float64 `json:"bytes_ratio,omitempty"`

	Goal float64 `json:"goal,omitempty"` // of Fraction, where the rows of a benchmark have one each
}

// Timed is an operation whose speed is asked for. Its methods give answers after [Interleave].
type Timed struct {
	Row // the labels and Bytes

	// Before, unless nil, prepares for a measurement, unmeasured.
	Before func()

	// Run does the operation so many times.
	Run func(times int)

	// Clock, unless nil, is called in place of Run: it does the operation so many times and returns
	// the seconds of one, by a clock that is not this machine's.
	Clock func(times int) float64

	// Bound, unless nil, returns the seconds that this machine needed in that round to move Bytes and do nothing
	// else; see [Fastest].
	Bound func(round int) float64

	// Over, unless nil, is the operation that Ratio compares with.
	Over *Timed

	seconds []float64 // of one time, by round
}

// At returns the seconds of one time in that round.
func (t *Timed) At(round int) float64 { return t.seconds[round] }

// Rate returns the bytes that moved each second of that round.
func (t *Timed) Rate(round int) float64 { return float64(t.Bytes) / t.seconds[round] }

// Fastest returns the bound by the fastest of the operations in a round: the seconds in which it would move that
// many bytes.
func Fastest(bytes int64, operations ...*Timed) func(round int) float64 {
	return func(round int) float64 {
		least := math.Inf(1)
		for _, o := range operations {
			least = min(least, float64(bytes)/o.Rate(round))
		}
		return least
	}
}

// Interleave measures the operations in rounds and returns their rows. A round runs each of them once, for at
// least that long, forward and backward in turn, so that a machine which slows down slows all of them; what is
// compared is compared within a round. Before the first round each runs once unmeasured.
func Interleave(ctx context.Context, rounds int, atLeast time.Duration, operations []*Timed) ([]Row, error) {
	times := make([]int, len(operations))
	for i, o := range operations {
		o.measure(1)
		once := o.measure(1)
		times[i] = max(1, int(math.Ceil(atLeast.Seconds()/max(once, 1e-9))))
		o.seconds = make([]float64, 0, rounds)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	for round := range rounds {
		for i := range operations {
			if round%2 == 1 {
				i = len(operations) - 1 - i
			}
			o := operations[i]
			o.seconds = append(o.seconds, o.measure(times[i]))
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
	}
	rows := make([]Row, len(operations))
	for i, o := range operations {
		rows[i] = o.row()
	}
	return rows, nil
}

func (t *Timed) measure(times int) float64 {
	if t.Before != nil {
		t.Before()
	}
	if t.Clock != nil {
		return t.Clock(times)
	}
	start := time.Now()
	t.Run(times)
	return time.Since(start).Seconds() / float64(times)
}

// row fills the measured fields in.
func (t *Timed) row() Row {
	r := t.Row
	r.SecondsLow, r.Seconds, r.SecondsHigh = quartiles(t.seconds)
	r.GBPerS = float64(r.Bytes) / r.Seconds / 1e9
	rounds := len(t.seconds)
	if t.Bound != nil {
		bounds, fractions := make([]float64, rounds), make([]float64, rounds)
		for i := range rounds {
			bounds[i] = t.Bound(i)
			fractions[i] = bounds[i] / t.seconds[i]
		}
		_, bound, _ := quartiles(bounds)
		r.BoundGBPerS = float64(r.Bytes) / bound / 1e9
		_, r.Fraction, _ = quartiles(fractions)
	}
	if v := t.Over; v != nil {
		ratios, elements := make([]float64, rounds), float64(t.Elements)/float64(v.Elements)
		for i := range rounds {
			ratios[i] = v.seconds[i] / t.seconds[i] * elements
		}
		r.RatioLow, r.Ratio, r.RatioHigh = quartiles(ratios)
		r.Versus = v.Variant + " " + v.DType
		r.BytesRatio = float64(v.Bytes) / float64(t.Bytes) * elements
	}
	return r
}

// quartiles returns the quartiles of x, which is not empty, interpolated.
func quartiles(x []float64) (lower, median, upper float64) {
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
