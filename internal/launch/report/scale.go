package report

import (
	"math"
	"strconv"
)

// scale maps values to coordinates: [lo, hi] to [from, to], linearly or logarithmically.
type scale struct {
	lo, hi   float64 // lo < hi; positive if log
	from, to float64
	log      bool
}

// at returns the coordinate of v.
func (s scale) at(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(max(v, s.lo/10))
	}
	return s.from + (v-lo)/(hi-lo)*(s.to-s.from)
}

// newScale returns a linear scale. An empty or invalid range becomes one of length 1.
func newScale(lo, hi, from, to float64) scale {
	if !(hi > lo) || math.IsInf(hi-lo, 0) {
		if math.IsNaN(lo) || math.IsInf(lo, 0) {
			lo = 0
		}
		hi = lo + 1
	}
	return scale{lo: lo, hi: hi, from: from, to: to}
}

// tick is a tick of an axis.
type tick struct {
	v     float64
	label string
}

// linearTicks returns about n ticks at round values within the scale. Labels are made by format, or
// have as many decimal places as are needed to tell them apart.
func (s scale) linearTicks(n int, format func(float64) string) []tick {
	step := niceStep((s.hi - s.lo) / float64(n))
	if format == nil {
		places := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
		format = func(v float64) string { return strconv.FormatFloat(v, 'f', places, 64) }
	}
	var ts []tick
	for i := math.Ceil(s.lo/step - 1e-9); i*step <= s.hi+step*1e-9 && len(ts) < 3*n; i++ {
		v := i * step
		if i == 0 {
			v = 0 // avoid a minus sign
		}
		ts = append(ts, tick{v, format(v)})
	}
	return ts
}

// niceStep returns the smallest number of the form 1, 2 or 5 times a power of ten that is at least
// raw.
func niceStep(raw float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= raw*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logTicks returns ticks at powers of ten, and also at 2 and 5 times those if there are few.
func (s scale) logTicks() []tick {
	var ts []tick
	multiples := []float64{1, 2, 5}
	if s.hi/s.lo > 1000 {
		multiples = []float64{1}
	}
	for e := math.Floor(math.Log10(s.lo)); e <= math.Log10(s.hi); e++ {
		for _, m := range multiples {
			if v := m * math.Pow(10, e); v >= s.lo && v <= s.hi {
				ts = append(ts, tick{v, strconv.FormatFloat(v, 'g', 3, 64)})
			}
		}
	}
	return ts
}

// stepTicks returns ticks at round step numbers.
func (s scale) stepTicks(n int) []tick {
	whole := s
	if s.hi-s.lo < float64(n) {
		n = max(1, int(s.hi-s.lo)) // no fractions of steps
	}
	return whole.linearTicks(n, func(v float64) string {
		switch {
		case v > 0 && s.hi >= 1e7:
			return strconv.FormatFloat(v/1e6, 'f', -1, 64) + "M"
		case v > 0 && s.hi >= 1e4:
			return strconv.FormatFloat(v/1e3, 'f', -1, 64) + "k"
		}
		return count(int(math.Round(v)))
	})
}

// timeTicks returns ticks at round times, from tenths of seconds to days.
func (s scale) timeTicks(n int) []tick {
	raw := (s.hi - s.lo) / float64(n)
	if raw < 1 {
		return s.linearTicks(n, func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) + " s" })
	}
	steps := []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400}
	step := steps[len(steps)-1]
	for _, candidate := range steps {
		if candidate >= raw {
			step = candidate
			break
		}
	}
	if raw > step {
		step = 86400 * niceStep(raw/86400)
	}
	var ts []tick
	for i := math.Ceil(s.lo / step); i*step <= s.hi; i++ {
		ts = append(ts, tick{i * step, timeLabel(i*step, step)})
	}
	return ts
}

// timeLabel formats a time that is a multiple of step, in a unit that fits the step.
func timeLabel(v, step float64) string {
	text := func(x float64, unit string) string { return strconv.FormatFloat(x, 'f', -1, 64) + unit }
	switch {
	case v == 0:
		return "0"
	case step >= 86400:
		return text(v/86400, " d")
	case step >= 3600 || v >= 3600 && math.Mod(v, 3600) == 0:
		return text(v/3600, " h")
	case v >= 3600:
		return strconv.Itoa(int(v)/3600) + ":" + pad(int(v)%3600/60) + " h"
	case step >= 60 || v >= 60 && math.Mod(v, 60) == 0:
		return text(v/60, " min")
	case v >= 60:
		return strconv.Itoa(int(v)/60) + ":" + pad(int(v)%60) + " min"
	}
	return text(v, " s")
}

func pad(n int) string {
	if n < 10 {
		return "0" + strconv.Itoa(n)
	}
	return strconv.Itoa(n)
}
