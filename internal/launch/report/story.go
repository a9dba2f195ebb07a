package report

import (
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// story is a run as one history: which of its steps count in the end, which were lost, and which
// were repeated.
type story struct {
	run    *record.Run
	spans  []record.Span // single steps if the run is not very long
	smooth []float64     // by span: moving average of the loss along the history that led to it
	lost   []bool        // by span: a restore took its last step back
}

// tell computes the history. After a restore, the moving average continues from the step that the
// restore went back to, so that the curve of the repeated steps starts where that of the lost steps
// started.
func tell(run *record.Run) *story {
	spans := run.Outline.Spans
	s := &story{run: run, spans: spans, smooth: make([]float64, len(spans)), lost: make([]bool, len(spans))}
	calm := 150 / (150 + float64(run.Outline.Steps)) // weight of a step, so that the curve is equally smooth for any length
	var history []int
	for i, e := range spans {
		for len(history) > 0 && spans[history[len(history)-1]].Last >= e.First {
			s.lost[history[len(history)-1]] = true
			history = history[:len(history)-1]
		}
		before := math.NaN()
		if len(history) > 0 {
			before = s.smooth[history[len(history)-1]]
		}
		s.smooth[i] = blend(before, float64(e.Loss), 1-math.Pow(1-calm, float64(e.Steps)))
		history = append(history, i)
	}
	return s
}

// blend moves an average towards a value; either may be NaN.
func blend(average, value, weight float64) float64 {
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return average
	case math.IsNaN(average):
		return value
	}
	return average + weight*(value-average)
}

// kind says what became of a step.
type kind uint8

const (
	kept kind = iota
	lostSteps
	mended
)

func (s *story) kindOf(i int) kind {
	switch {
	case s.lost[i]:
		return lostSteps
	case s.spans[i].Again:
		return mended
	}
	return kept
}

// runs divides the spans into maximal pieces [lo, hi) of one kind and one line, in order.
func (s *story) runs() (pieces []piece) {
	for lo := 0; lo < len(s.spans); {
		hi := lo + 1
		for hi < len(s.spans) && s.kindOf(hi) == s.kindOf(lo) && s.spans[hi].Line == s.spans[lo].Line {
			hi++
		}
		pieces = append(pieces, piece{lo, hi, s.kindOf(lo)})
		lo = hi
	}
	return pieces
}

type piece struct {
	lo, hi int
	kind   kind
}

// survivors returns the indices of the spans that count in the end, ascending by step.
func (s *story) survivors() []int {
	var is []int
	for i := range s.spans {
		if !s.lost[i] {
			is = append(is, i)
		}
	}
	return is
}

// envelope is a curve of many values, reduced to the mean, minimum and maximum in buckets of x.
type envelope struct{ mean, low, high []point }

// thin divides n values into at most limit buckets of equal width over [lo, hi]. It drops NaN
// values and empty buckets.
func thin(n, limit int, lo, hi float64, x, y func(i int) float64) envelope {
	type bucket struct {
		sumX, sumY, low, high float64
		n                     int
	}
	buckets := make([]bucket, limit)
	for i := range n {
		v := y(i)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		b := &buckets[max(0, min(limit-1, int((x(i)-lo)/(hi-lo)*float64(limit))))]
		if b.n == 0 {
			b.low, b.high = v, v
		}
		b.low, b.high = min(b.low, v), max(b.high, v)
		b.sumX += x(i)
		b.sumY += v
		b.n++
	}
	var e envelope
	for _, b := range buckets {
		if b.n == 0 {
			continue
		}
		at := b.sumX / float64(b.n)
		e.mean = append(e.mean, point{at, b.sumY / float64(b.n)})
		e.low = append(e.low, point{at, b.low})
		e.high = append(e.high, point{at, b.high})
	}
	return e
}

// between returns the quantiles q and 1−q of the finite values, or false if there are none.
func between(values []float64, q float64) (lo, hi float64, ok bool) {
	finite := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	if len(finite) == 0 {
		return 0, 0, false
	}
	slices.Sort(finite)
	cut := int(q * float64(len(finite)-1))
	return finite[cut], finite[len(finite)-1-cut], true
}
