// Package ledger expresses every deviation from perfect execution in one unit: the steps of
// training that it costs. Begin with Ledger.Cost, which says what the loss of a server would cost
// now.
//
// A stale or dropped gradient, a quantised byte and a chunk that was restored from an older save
// are all the same thing: a perturbation δ of the parameters (Qiao et al., Fault Tolerance in
// Iterative-Convergent Machine Learning, ICML 2019). To second order, it raises the loss by ⟨ḡ, δ⟩
// + L̂‖δ‖²/2, and training makes up for that at the rate at which the loss falls:
//
//	rework(δ) = (⟨ḡ, δ⟩ + L̂‖δ‖²/2) / (decrease of the loss per step)
//
// If a perturbation multiplies the loss, the rework is the logarithm of the factor, divided by the
// share by which a step lowers the loss. The gradient ḡ, the curvature L̂ along the path of the
// parameters and the decrease are measured during the run. The estimate is calibrated by what
// failures really cost. Perturbations that recur in every step have no total: a run that contracts
// by c in each step settles at a distance of cΔ/(1 − c) from where it would be, the floor.
//
// # What is certain
//
// An estimate is never negative. It is given only if the trend of the loss falls by at least three
// of its standard errors; otherwise it is unknown. The cost of a shard is bounded as well: the loss
// rises by at most what it has fallen since the saved values were current. So the loss of a shard
// costs at most as many steps as its saved values are old. Within that bound, ⟨ḡ, δ⟩ counts as far
// as it is not noise, and the rest is divided in proportion to ‖δ‖²; see [Ledger.Back].
//
// The core is pure: numbers go in and numbers come out, with the reason in words where it decides.
// A number that is not finite is not recorded. If x* is known, the bounds of the paper can be
// checked; see [PaperBound] and [PosteriorBound].
package ledger
