package scar

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
)

// Conditions are measurements of a run, in steps and bytes.
type Conditions struct {
	FailureEvery float64 // mean steps between two failures; +Inf: none has been seen

	// ReworkPerAge is how many steps a failure costs for each step of the period C, with full
	// saves: the ledger's calibrated estimate, divided by the period during which it was measured.
	// Without a ledger, it is half the lost share of the model.
	ReworkPerAge float64

	// Uneven is the share of ReworkPerAge that disappears if saves are spread evenly and the chunks
	// that move most are saved most often; see Planner.Uneven.
	Uneven float64

	ModelCost float64 // steps of training that it costs to save every byte of the model once
	SaveCost  float64 // steps that each save costs in addition, however few its bytes are

	Bytes        int64   // of the model when it is saved
	BytesPerStep float64 // that the store takes within a step; 0: unknown
	StepsPerSave float64 // steps that a save takes, however few its bytes are
}

// Adapt returns the period C, in steps, and the fraction r that cost least. With saves every I =
// r·C steps, the extra cost of a step of training is, in steps,
//
//	ModelCost/C + SaveCost/I + (ReworkPerAge/FailureEvery)·((1 − Uneven)·C + Uneven·I)
//
// It is least where the two terms in C are equal, and the two in I. With a full restore and full
// saves this is Young's formula. Three bounds apply. Saves are at least twice as far apart as a
// save without bytes takes. The period is at least as long as the store needs for the bytes in the
// remaining time. And the period is at most longest. why says in words what decided.
func Adapt(c Conditions, longest kintsugi.Step) (period kintsugi.Step, fraction float64, why string) {
	perStep := c.ReworkPerAge / c.FailureEvery // cost in each step of one step of age
	length, interval := math.Sqrt(c.ModelCost/(perStep*(1-c.Uneven))), math.Sqrt(c.SaveCost/(perStep*c.Uneven))
	if !(interval < length) { // also 0/0
		length = math.Sqrt((c.ModelCost + c.SaveCost) / perStep)
		interval = length
	}
	why = "saving costs as much as failures"
	interval = max(1, interval, 2*c.StepsPerSave)
	if floor := float64(c.Bytes) / c.BytesPerStep * interval / (interval - c.StepsPerSave); c.BytesPerStep > 0 && length < floor {
		length, why = floor, "the store takes no more bytes"
	}
	if length < interval {
		length, why = interval, "saves last"
	}
	if !(length < float64(longest)) {
		length, why = float64(longest), "failures are too rare to save more often"
	}
	period = kintsugi.Step(max(1, math.Ceil(length)))
	fraction = min(1, interval/float64(period))
	if !(fraction > 0) {
		fraction = 1
	}
	return period, fraction, fmt.Sprintf("%s: all bytes in %d steps, %.3g of them at a time", why, period, fraction)
}

// Uneven returns the share of the distance to the saved values that can be avoided by saving fast
// chunks more often, as estimated from the squared distances at a step. If chunks move by v per
// byte and step, it is best to save each at a rate proportional to √v. The mean distance is then
// (Σb√v)²/(Σb·Σbv) of that with equal rates, where b are bytes. The result is in [0, 1), and 0 if
// all chunks move alike.
func (p *Planner) Uneven(step kintsugi.Step, distances []float64) float64 {
	var roots, speeds float64
	for c, d := range distances {
		b := float64(p.cfg.Bytes[c])
		v := d / b / float64(max(1, step-p.saved[c]))
		roots += b * math.Sqrt(v)
		speeds += b * v
	}
	if !(speeds > 0) {
		return 0
	}
	return max(0, 1-roots/float64(p.total)*(roots/speeds))
}
