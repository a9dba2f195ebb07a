package ledger

import "math"

// After a real failure, it is not known where the run would be without it. But it can be measured
// how far its losses lie above the curve that they followed before.

const (
	// least is how many losses Behind needs on each side of a failure.
	least = 12

	// likely is by how many standard errors the loss must fall. That need not be as certain as for
	// a prediction: a measurement has its error beside it, and its weight follows from that.
	likely = 2
)

// Behind measures the cost of a failure that took no step back. It assumes that the losses after
// the failure lie on the curve of those before, later by that number of steps. The losses are those
// of consecutive steps; the first one in after is of the first step after the failure. The curve is
// fitted by least squares on both sides at once: a parabola, of the logarithm if all losses are
// positive, with a jump at the failure. deviation is the standard error in steps, which comes from
// the jump and from the slope that it is divided by. The losses of single batches are noisy, so it
// may be larger than steps. ok is false if a side has fewer than 12 losses, or if the slope is not
// below zero by two standard errors: a division by a slope that may be zero can give any number of
// steps.
func Behind(before, after []float64) (steps, deviation float64, ok bool) {
	if len(before) < least || len(after) < least {
		return 0, 0, false
	}
	all := append(append([]float64(nil), before...), after...)
	logs := true
	for _, l := range all {
		if !finite(l) {
			return 0, 0, false
		}
		logs = logs && l > 0
	}
	var normal [4][5]float64 // of 1, t, t² and the jump; the last column is the right-hand side
	scale := float64(len(all))
	row := func(i int) [4]float64 {
		t := (float64(i-len(before)) + 0.5) / scale // 0 at the failure
		jump := 0.0
		if i >= len(before) {
			jump = 1
		}
		return [4]float64{1, t, t * t, jump}
	}
	value := func(i int) float64 {
		if logs {
			return math.Log(all[i])
		}
		return all[i]
	}
	for i := range all {
		x := row(i)
		for a := range x {
			for b := range x {
				normal[a][b] += x[a] * x[b]
			}
			normal[a][4] += x[a] * value(i)
		}
	}
	inverse, ok := invert(normal)
	if !ok {
		return 0, 0, false
	}
	var fit [4]float64
	for a := range fit {
		for b := range fit {
			fit[a] += inverse[a][b] * normal[b][4]
		}
	}
	rest := 0.0
	for i := range all {
		e := value(i)
		for a, x := range row(i) {
			e -= fit[a] * x
		}
		rest += e * e
	}
	rest /= scale - 4
	fall := -fit[1] / scale // per step, at the failure
	if !(fall*scale > likely*math.Sqrt(rest*inverse[1][1])) {
		return 0, 0, false
	}
	steps = fit[3] / fall
	variance := inverse[3][3] + 2*steps/scale*inverse[1][3] + steps*steps/(scale*scale)*inverse[1][1] // of jump − steps·fall, divided by rest
	return steps, math.Sqrt(rest*max(0, variance)) / fall, true
}

// invert returns the inverse of the first four columns, which must be a positive definite matrix,
// by Gauss-Jordan elimination.
func invert(m [4][5]float64) (inverse [4][4]float64, ok bool) {
	for i := range inverse {
		inverse[i][i] = 1
	}
	for i := range m {
		pivot := m[i][i]
		if !(pivot > 1e-12) {
			return inverse, false
		}
		for j := range 4 {
			m[i][j] /= pivot
			inverse[i][j] /= pivot
		}
		for k := range m {
			if f := m[k][i]; k != i {
				for j := range 4 {
					m[k][j] -= f * m[i][j]
					inverse[k][j] -= f * inverse[i][j]
				}
			}
		}
	}
	return inverse, true
}
