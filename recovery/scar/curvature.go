package scar

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
)

// A distance says nothing of the loss: near an optimum it rises by ½·Σ hᵢ(xᵢ − savedᵢ)² when saved
// values take the place of x, where h is the diagonal of the curvature. The mean square of a
// gradient stands for h where the loss is a negative log-likelihood: both are the Fisher
// information there. Optimizers that divide by its root keep it; Curvature estimates it for whole
// chunks.
//
// Limitation: what bends most is also what training repairs soonest. The rise is not the steps that it costs.

// least keeps a rise above 0 wherever values differ: a Planner takes a chunk at distance 0 for one that is saved.
const least = 0x1p-149

// most is far above any square of a gradient in float32: sums of what is below it stay finite.
const most = 1e300

// Rise returns ½·Σ hᵢ(xᵢ − savedᵢ)². Negative curvature counts as none; the rise is positive unless
// all values are the same. It panics if the lengths differ.
func Rise(h, x, saved []float32) (rise float64) {
	if len(h) != len(x) || len(x) != len(saved) {
		panic(fmt.Sprintf("scar: the curvature of %d values, of which there are %d, and %d saved ones", len(h), len(x), len(saved)))
	}
	for i, v := range x {
		d := float64(v) - float64(saved[i])
		rise += math.Max(float64(h[i]), least) * d * d
	}
	return rise / 2
}

// Curvature estimates how the loss bends along each chunk: a ratio of two sums over steps, of which
// each counts half as much as one that is a half-life younger. It takes two numbers a chunk. One
// goroutine owns it.
type Curvature struct {
	over, under []float64
	keep        float64 // the part of a sum that is left after a step
}

// NewCurvature returns an estimate that knows nothing. It panics unless the half-life, in steps, is positive.
func NewCurvature(chunks int, halfLife kintsugi.Step) *Curvature {
	if halfLife == 0 {
		panic("scar: curvature with a half-life of 0 steps")
	}
	return &Curvature{over: make([]float64, chunks), under: make([]float64, chunks), keep: math.Exp2(-1 / float64(halfLife))}
}

// Observe adds what a step shows of a chunk: the mean square of its gradient and 1; or, of the
// secant, ⟨Δg, Δx⟩ and ‖Δx‖², where both gradients are of one batch, since the noise of the one
// that made the step would look like curvature. It is called once for each step and chunk. What is
// not finite, such as the square of a gradient that has overflowed, shows nothing, and no more does
// what is as large.
func (k *Curvature) Observe(c kintsugi.ChunkID, over, under float64) {
	if !(math.Abs(over) < most && math.Abs(under) < most) {
		return
	}
	k.over[c] = k.keep*k.over[c] + over
	k.under[c] = k.keep*k.under[c] + under
}

// Weigh makes of distances, by chunk, what saved values would lift the loss by. A chunk that bends
// by less than a hundredth of the mean counts with that hundredth, and so does one of which nothing
// is known: what is far away is saved some day. While nothing at all is known distances stay as
// they are.
func (k *Curvature) Weigh(distances []float64) {
	mean, known := 0.0, 0
	for c := range k.over {
		if h := k.over[c] / k.under[c]; h > 0 && !math.IsInf(h, 1) {
			mean, known = mean+h, known+1
		}
	}
	if known == 0 {
		return
	}
	mean /= float64(known)
	for c := range distances {
		h := k.over[c] / k.under[c]
		if !(h > mean/100) { // NaN among them
			h = mean / 100
		}
		if math.IsInf(h, 1) {
			h = mean
		}
		distances[c] *= h / 2
	}
}
