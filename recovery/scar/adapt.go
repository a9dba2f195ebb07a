package scar

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
)

// Conditions are what a run has measured, in steps and bytes.
type Conditions struct {
	FailureEvery float64 // mean steps between two failures; +Inf: none was seen

	// ReworkPerAge is how many steps a failure costs for each step that C is long, with full saves:
	// the ledger's calibrated estimate over the period that it was measured with. Without a ledger
	// it is half the lost share of the model.
	ReworkPerAge float64

	// Uneven is the share of ReworkPerAge that disappears when saves are spread evenly and what moves most is
	// saved most often; see Planner.Uneven.
	Uneven float64

	ModelCost float64 // steps that saving every byte of the model once takes from training
	SaveCost  float64 // steps that each save takes from it besides, however few its bytes

	Bytes        int64   // of the model when it is saved
	BytesPerStep float64 // that the store takes within a step; 0: unknown
	StepsPerSave float64 // that a save lasts, however few its bytes
}

// Adapt returns the period C and the fraction r that cost least. With saves every I = r·C steps, a
// step of training costs
//
//	ModelCost/C + SaveCost/I + (ReworkPerAge/FailureEvery)·((1 − Uneven)·C + Uneven·I)
//
// more than a step, which is least where the parts in C are equal, and those in I; with a full
// restore and full saves this is Young's formula. Saves are at least twice as far apart as one
// lasts that has no bytes, the period is not shorter than the store needs for the bytes besides,
// nor longer than longest. why says in words what decided.
func Adapt(c Conditions, longest kintsugi.Step) (period kintsugi.Step, fraction float64, why string) {
	perStep := c.ReworkPerAge / c.FailureEvery // what a step of age costs in each step
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

// Uneven returns which share of the distance to the saved values can be avoided by saving often what moves fast, as
// far as the distances at a step tell: chunks that move by v per byte and step are best saved at a rate that goes
// with √v, and then the mean distance is (Σb√v)²/(Σb·Σbv) of that of saving all at the same rate. It is 0 where all
// chunks move alike, and below 1.
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
