package bench

import (
	"context"
	"math"
	"time"
)

// Row is the result of a benchmark of one operation: one flat object in JSON.
type Row struct {
	Name     string `json:"name"`     // of the operation
	Device   string `json:"device"`   // of kernels.Devices, or "memory" for a bound
	Variant  string `json:"variant"`  // variant of the operation
	K        int    `json:"k"`        // number of input gradients, or of streams of a bound
	DType    string `json:"dtype"`    // of the gradients
	Threads  int    `json:"threads"`  // number of threads, each with its own chunks
	Elements int    `json:"elements"` // number of values of the model

	Bytes       int64   `json:"bytes"`        // that must be moved: each array read or written once
	Seconds     float64 `json:"seconds"`      // median of the rounds
	SecondsLow  float64 `json:"seconds_low"`  // lower quartile
	SecondsHigh float64 `json:"seconds_high"` // upper quartile

	GBPerS      float64 `json:"gb_per_s"` // Bytes/10⁹ per second, from the median
	BoundGBPerS float64 `json:"bound_gb_per_s"`
	Fraction    float64 `json:"fraction"` // of the bound: median of the fractions in each round; 0: no bound

	// Ratio is how many times faster it is than Versus, by the seconds per element: the median of
	// the ratios in each round, with its quartiles. BytesRatio is the same for bytes.
	Versus     string  `json:"versus,omitempty"`
	Ratio      float64 `json:"ratio,omitempty"`
	RatioLow   float64 `json:"ratio_low,omitempty"`
	RatioHigh  float64 `json:"ratio_high,omitempty"`
	BytesRatio float64 `json:"bytes_ratio,omitempty"`

	Goal float64 `json:"goal,omitempty"` // for Fraction, in benchmarks with a goal for each row
}

// Timed is an operation to measure. Its methods return results after [Interleave].
type Timed struct {
	Row // labels, and Bytes

	// Before, if not nil, is called before each measurement, outside the measured time.
	Before func()

	// Run repeats the operation times times.
	Run func(times int)

	// Clock, if not nil, is called instead of Run. It repeats the operation times times, and
	// returns the seconds of one repetition by another clock than that of this machine.
	Clock func(times int) float64

	// Bound, if not nil, returns the seconds that this machine needed in the given round to move
	// Bytes and do nothing else; see [Fastest].
	Bound func(round int) float64

	// Over, if not nil, is the operation that Ratio compares with.
	Over *Timed

	seconds []float64 // of one repetition, by round
}

// At returns the seconds of one repetition in the given round.
func (t *Timed) At(round int) float64 { return t.seconds[round] }

// Rate returns the bytes per second in the given round.
func (t *Timed) Rate(round int) float64 { return float64(t.Bytes) / t.seconds[round] }

// Fastest returns the bound from the fastest of the operations in a round: the seconds in which
// that operation would move the given bytes.
func Fastest(bytes int64, operations ...*Timed) func(round int) float64 {
	return func(round int) float64 {
		least := math.Inf(1)
		for _, o := range operations {
			least = min(least, float64(bytes)/o.Rate(round))
		}
		return least
	}
}

// Interleave measures the operations in rounds and returns their rows. A round runs each of them
// once, for at least atLeast. Rounds go forward and backward in turn, so that a machine that slows
// down slows all operations. Comparisons are made within a round. Before the first round, each
// operation runs once unmeasured.
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

// row fills in the measured fields.
func (t *Timed) row() Row {
	r := t.Row
	r.SecondsLow, r.Seconds, r.SecondsHigh = Quartiles(t.seconds)
	r.GBPerS = float64(r.Bytes) / r.Seconds / 1e9
	rounds := len(t.seconds)
	if t.Bound != nil {
		bounds, fractions := make([]float64, rounds), make([]float64, rounds)
		for i := range rounds {
			bounds[i] = t.Bound(i)
			fractions[i] = bounds[i] / t.seconds[i]
		}
		_, bound, _ := Quartiles(bounds)
		r.BoundGBPerS = float64(r.Bytes) / bound / 1e9
		_, r.Fraction, _ = Quartiles(fractions)
	}
	if v := t.Over; v != nil {
		ratios, elements := make([]float64, rounds), float64(t.Elements)/float64(v.Elements)
		for i := range rounds {
			ratios[i] = v.seconds[i] / t.seconds[i] * elements
		}
		r.RatioLow, r.Ratio, r.RatioHigh = Quartiles(ratios)
		r.Versus = v.Variant + " " + v.DType
		r.BytesRatio = float64(v.Bytes) / float64(t.Bytes) * elements
	}
	return r
}
