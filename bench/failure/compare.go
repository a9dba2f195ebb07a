package failure

import (
	"math"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// compare computes how far a row is above the undisturbed runs of its preset, and above the
// checkpoint.
func (r *Row) compare(rows []Row) {
	other := func(kills int, presets ...string) *Row {
		for _, p := range presets {
			for i := range rows {
				if o := &rows[i]; o.Model == r.Model && o.Workers == r.Workers && o.Kills == kills && o.Preset == p {
					return o
				}
			}
		}
		return nil
	}
	byCount := func(p Point) float64 { return float64(p.Counted) }
	bySeconds := func(p Point) float64 { return p.Seconds }
	r.OfUndisturbed, r.OfUndisturbedError = r.above(other(0, r.Preset, "wait"), byCount)
	against := []string{"checkpoint"}
	if r.runs[0].Async {
		against = []string{"checkpoint/async", "checkpoint"}
	}
	r.OfCheckpoint, r.OfCheckpointError = r.above(other(r.Kills, against...), bySeconds)
}

// above returns by how many hundredths of accuracy the runs are above those of another row with the
// same seeds, and the standard error.
func (r *Row) above(o *Row, by func(Point) float64) (points, deviation record.Number) {
	points, deviation = record.Unknown(), record.Unknown()
	if o == nil || o == r {
		return points, deviation
	}
	var list []float64
	for _, a := range r.runs {
		for _, b := range o.runs {
			if a.Seed == b.Seed {
				if d := ahead(a.Curve, b.Curve, by); !math.IsNaN(d) {
					list = append(list, 100*d)
				}
			}
		}
	}
	if len(list) > 0 {
		points = record.Number(bench.Mean(list))
	}
	_, deviation = bench.MeanDeviation(list)
	return points, deviation / record.Number(math.Sqrt(float64(len(list))))
}

// lastPart is the fraction of a run after which its evaluations count as its end: a single one is
// noisy.
const lastPart = 0.8

// ahead returns the mean height of curve a above curve b, at the points of b in the last fifth of
// their common range.
func ahead(a, b []Point, by func(Point) float64) float64 {
	if len(a) == 0 || len(b) == 0 {
		return math.NaN()
	}
	end := min(by(a[len(a)-1]), by(b[len(b)-1]))
	sum, n := 0.0, 0
	for _, p := range b {
		if x := by(p); x >= lastPart*end && x <= end {
			if y := heightAt(a, x, by); !math.IsNaN(y) {
				sum, n = sum+y-p.Accuracy, n+1
			}
		}
	}
	if n == 0 { // the other one was away during all that time: use its last value
		return heightAt(a, end, by) - heightAt(b, end, by)
	}
	return sum / float64(n)
}

// heightAt returns the accuracy of a curve at x: linearly interpolated between two points, constant
// after the last, and NaN before the first.
func heightAt(curve []Point, x float64, by func(Point) float64) float64 {
	for i, p := range curve {
		switch {
		case by(p) < x:
		case by(p) == x:
			return p.Accuracy
		case i == 0:
			return math.NaN()
		default:
			q := curve[i-1]
			return q.Accuracy + (p.Accuracy-q.Accuracy)*(x-by(q))/(by(p)-by(q))
		}
	}
	return curve[len(curve)-1].Accuracy
}
