package ledger

import "math"

// Of a real failure it is not known where the run would have been without it. What can be measured is by how much its
// losses lie above the curve that they followed before.

const (
	// least is how many losses Behind needs on each side of a failure.
	least = 12

	// likely is by how many standard errors the loss must fall. It need not be as sure as for a
	// prediction: what is measured has an error beside it, and as little weight as that says.
	likely = 2
)

// Behind measures what a failure has cost that took no step back: the losses after it lie on the
// curve of those before, by so many steps later. losses are those of consecutive steps; the first
// of after is of the first step behind the failure. The curve is fitted on both sides at once, by
// least squares: a parabola, of the logarithm where all losses are positive, with a jump at the
// failure. deviation is the standard error, of the jump and of the slope that it is divided by; the
// losses of single batches are noise, so it may be larger than what is measured. ok is false where
// there are fewer than 12 losses on a side, or where the slope is not below zero by two standard
// errors: what is divided by a slope that may be none can be any number of steps.
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
	var normal [4][5]float64 // of 1, t, t² and the jump; the last column is the right side
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
	fall := -fit[1] / scale // in a step, at the failure
	if !(fall*scale > likely*math.Sqrt(rest*inverse[1][1])) {
		return 0, 0, false
	}
	steps = fit[3] / fall
	variance := inverse[3][3] + 2*steps/scale*inverse[1][3] + steps*steps/(scale*scale)*inverse[1][1] // of jump − steps·fall, over rest
	return steps, math.Sqrt(rest*max(0, variance)) / fall, true
}

// invert returns the inverse of the first four columns, by Gauss and Jordan; they are a positive definite matrix.
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
