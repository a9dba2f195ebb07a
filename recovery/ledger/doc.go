// Package ledger turns every deviation from perfect execution into one unit: steps of training that it costs.
//
// A stale or dropped gradient, a quantised byte and a chunk that was restored from an older save
// are all the same thing: a perturbation δ of the parameters (Qiao et al., Fault Tolerance in
// Iterative-Convergent Machine Learning, ICML 2019). To second order it raises the loss by ⟨ḡ, δ⟩ +
// L̂‖δ‖²/2, and training pays it back at the rate at which the loss falls:
//
//	rework(δ) = (⟨ḡ, δ⟩ + L̂‖δ‖²/2) / (decrease of the loss per step)
//
// or, for a perturbation that multiplies the loss, the logarithm of that over the share by which a
// step lowers it. The gradient ḡ, the curvature L̂ along the way of the parameters and the decrease
// are measured while the run goes on. The estimate is calibrated by what failures really cost.
// Perturbations that recur in every step have no sum: a run that contracts by c in each step
// settles at a distance of cΔ/(1 − c) from where it would be, the floor.
//
// # What is certain
//
// An estimate is never negative, and it is given only where the trend of the loss falls by three of
// its standard errors; else it is unknown. What a shard of the run would cost is bounded as well:
// the loss rises by no more than it has fallen since what is saved was current, so a loss costs no
// more steps than what is saved is old. Within that, ⟨ḡ, δ⟩ counts as far as it is no noise, and
// the rest is shared by ‖δ‖²; see [Ledger.Back].
//
// The core is pure: it is told numbers and returns numbers, with the reason in words where it decides.
// What is not a finite number is not booked. Where x* is known the bounds of the paper can be checked; see [PaperBound]
// and [PosteriorBound].
package ledger
