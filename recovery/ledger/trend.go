package ledger

import "math"

// trend fits a line to a series, by least squares with weights that halve every halfLife steps.
// Times are relative to the newest one, so that no sum grows.
type trend struct {
	halfLife                float64
	last                    float64
	w, t, y, tt, ty, yy, ww float64 // sums of weights, times and values, and of their products; ww of the squares of the weights
}

func (r *trend) add(at, y float64) {
	if !tame(y) {
		return
	}
	if r.w > 0 {
		d := at - r.last
		r.tt += d * (d*r.w - 2*r.t)
		r.ty -= d * r.y
		r.t -= d * r.w
		f := math.Exp2(-d / r.halfLife)
		r.w, r.t, r.y, r.tt, r.ty, r.yy, r.ww = r.w*f, r.t*f, r.y*f, r.tt*f, r.ty*f, r.yy*f, r.ww*f*f
	}
	r.last = at
	r.w, r.y, r.yy, r.ww = r.w+1, r.y+y, r.yy+y*y, r.ww+1
}

const (
	// sure is by how many standard errors a slope must lie below zero to count as a fall. Near
	// convergence, the loss hardly changes from step to step, and a cost is divided by the slope.
	// With one standard error, a plateau would count as a fall in one of six looks, and a cost
	// would be hundreds of steps; with three, in one of several hundred.
	sure = 3

	fewest = 8 // points; with fewer, the standard error is itself noise
)

// falls returns the slope of the line. ok is false unless it certainly falls.
func (r *trend) falls() (slope float64, ok bool) {
	slope, deviation, ok := r.slope()
	return slope, ok && r.points() >= fewest && -slope > sure*deviation
}

// points returns the number of points of equal weight that would be as informative.
func (r *trend) points() float64 { return r.w * r.w / r.ww }

// slope returns the slope of the line and its standard error. ok is false before there is a line.
func (r *trend) slope() (slope, deviation float64, ok bool) {
	times := r.tt - r.t*r.t/r.w
	points := r.points()
	if points < 3 || !(times > 0) {
		return 0, 0, false
	}
	products, values := r.ty-r.t*r.y/r.w, r.yy-r.y*r.y/r.w
	slope = products / times
	rest := max(0, values-slope*products) / r.w * points / (points - 2)
	return slope, math.Sqrt(rest / (times / r.w * points)), true
}

// now returns the value at the newest time of the line with that slope.
func (r *trend) now(slope float64) float64 { return (r.y - slope*r.t) / r.w }
