package dbw

import "math"

// change detects that a sequence of logarithms has moved away from its mean. It keeps two cumulated
// sums (CUSUM) of the deviations beyond half a standard deviation, one upwards and one downwards,
// and reports a change when one of them is too large to be chance.
type change struct {
	n              int
	mean, variance float64
	up, down       float64
}

const (
	settling  = 12   // values before it reports anything
	slack     = 0.5  // standard deviations that are no sign of a change
	alarm     = 8.0  // of the cumulated sum
	noise     = 0.1  // least standard deviation: a tenth slower is worth no alarm
	remembers = 0.02 // weight of a new value in mean and variance
)

// seen takes a value and reports whether the sequence has changed. After a change it begins anew.
func (c *change) seen(v float64) bool {
	c.n++
	if c.n <= settling {
		d := v - c.mean
		c.mean += d / float64(c.n)
		c.variance += (d*(v-c.mean) - c.variance) / float64(c.n)
		return false
	}
	z := (v - c.mean) / max(noise, math.Sqrt(c.variance))
	z = max(-3, min(3, z)) // no single step is a change
	c.up, c.down = max(0, c.up+z-slack), max(0, c.down-z-slack)
	if c.up > alarm || c.down > alarm {
		*c = change{}
		return true
	}
	d := v - c.mean
	c.mean += remembers * d
	c.variance += remembers * (d*d - c.variance)
	return false
}
