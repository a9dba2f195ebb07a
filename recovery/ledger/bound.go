package ledger

import "math"

// Perturbed is a perturbation of known size ‖δ‖ after step Step.
type Perturbed struct {
	Step float64
	Norm float64
}

// PaperBound is the bound of Qiao et al. (2019) on the steps that perturbations cost a run that
// contracts by c in each step, 0 < c < 1, and starts at the distance start from x*:
//
//	log(1 + Σ c^−Step·‖δ‖ / start) / log(1/c)
//
// It compares the worst cases of the perturbed run and the undisturbed one. If the undisturbed run
// is faster than its worst case, the difference may be larger than the bound. PosteriorBound always
// holds.
func PaperBound(c, start float64, perturbations ...Perturbed) float64 {
	rate, most := -math.Log(c), math.Inf(-1)
	for _, p := range perturbations { // c^−Step overflows within a few thousand steps; its logarithm does not
		most = max(most, p.Step*rate+math.Log(p.Norm))
	}
	if math.IsInf(most, -1) {
		return 0
	}
	sum := 0.0
	for _, p := range perturbations {
		sum += math.Exp(p.Step*rate + math.Log(p.Norm) - most)
	}
	ratio := most + math.Log(sum) - math.Log(start)
	return (max(ratio, 0) + math.Log1p(math.Exp(-math.Abs(ratio)))) / rate
}

// PosteriorBound bounds the steps that one perturbation costs, for every map that contracts by c.
// p.Norm is added at p.Step, when the run is at the measured distance from x*. Without the
// perturbation, the run would come within epsilon after undisturbed steps, which need not be a
// whole number.
func PosteriorBound(c, epsilon, undisturbed, distance float64, p Perturbed) float64 {
	return p.Step + math.Ceil(max(0, math.Log((distance+p.Norm)/epsilon)/-math.Log(c))) - undisturbed
}

// FloorDistance returns how far from x* a run stays that contracts by c and is perturbed by at most
// norm before each step: cΔ/(1 − c), where Δ is norm.
func FloorDistance(c, norm float64) float64 { return c * norm / (1 - c) }

// DroppedNorm returns the expected size of the perturbation by dropped gradients: a step with
// learning rate rate uses the mean of counted of all gradients, and variance is that of one
// gradient.
func DroppedNorm(rate, variance float64, counted, all int) float64 {
	return rate * math.Sqrt(max(0, variance*(1/float64(counted)-1/float64(all))))
}
