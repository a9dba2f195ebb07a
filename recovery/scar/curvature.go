package scar

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
)

// A distance does not show the change of the loss. Near an optimum, the loss rises by ½·Σ hᵢ(xᵢ −
// savedᵢ)² when saved values replace x, where h is the diagonal of the curvature. If the loss is a
// negative log-likelihood, the mean square of a gradient can stand for h, because both are the
// Fisher information there. Optimizers that divide by its root keep it; Curvature estimates it for
// whole chunks.
//
// Limitation: training also repairs soonest the directions that bend most. So the rise is not the
// number of steps that it costs.

// least keeps a rise above 0 wherever values differ, because a Planner takes a chunk at distance 0
// for one that is saved.
const least = 0x1p-149

// most is far above any square of a float32 gradient; sums of values below it stay finite.
const most = 1e300

// Rise returns ½·Σ hᵢ(xᵢ − savedᵢ)². Negative curvature counts as 0. The rise is positive unless
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

// Curvature estimates the curvature of the loss along each chunk, as a ratio of two sums over
// steps. In both, a step counts half as much as one that is a half-life younger. It takes two
// numbers per chunk. One goroutine at a time may use it.
type Curvature struct {
	over, under []float64
	keep        float64 // the part of a sum that is left after a step
}

// NewCurvature returns an estimate that knows nothing. It panics unless the half-life, in steps, is
// positive.
func NewCurvature(chunks int, halfLife kintsugi.Step) *Curvature {
	if halfLife == 0 {
		panic("scar: curvature with a half-life of 0 steps")
	}
	return &Curvature{over: make([]float64, chunks), under: make([]float64, chunks), keep: math.Exp2(-1 / float64(halfLife))}
}

// Observe adds what a step shows of a chunk, once for each step and chunk: the mean square of its
// gradient and 1; or, for the secant, ⟨Δg, Δx⟩ and ‖Δx‖². Both gradients of a secant must be of one
// batch, since the noise of the gradient that made the step would look like curvature. Values that
// are not finite, such as the square of an overflowed gradient, or as large, are ignored.
func (k *Curvature) Observe(c kintsugi.ChunkID, over, under float64) {
	if !(math.Abs(over) < most && math.Abs(under) < most) {
		return
	}
	k.over[c] = k.keep*k.over[c] + over
	k.under[c] = k.keep*k.under[c] + under
}

// Weigh replaces the distances, by chunk, by the rise of the loss that saved values would cause. A
// chunk with less than a hundredth of the mean curvature counts with that hundredth, and so does a
// chunk of which nothing is known. So a chunk that is far away is saved some day. While nothing is
// known of any chunk, distances stay as they are.
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
		if !(h > mean/100) { // also NaN
			h = mean / 100
		}
		if math.IsInf(h, 1) {
			h = mean
		}
		distances[c] *= h / 2
	}
}
