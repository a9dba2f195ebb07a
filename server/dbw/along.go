package dbw

// told returns ⟨∇F, d⟩ at the beginning of the displacement d = β·d₋₁ − ε·Σ sᵢ·mᵢ, computed from
// what workers report of their own gradients there. It returns false if no worker reports any.
//
// It is needed where messages are not gradients (a hundredth of the values, or signs), because
// norms and products of such messages do not measure ‖∇F‖². The gradient g of a worker does not
// depend on the messages of others. So ⟨g, d⟩ is unbiased, except for the worker's own message m
// with share s, which was made from the same examples. Without that message, ⟨g, d⟩ + ε·s·⟨g, m⟩ is
// on average ⟨∇F, d⟩ + ε·s·⟨∇F, m⟩. Of the fresh part of d, ⟨∇F, d⟩ − β·⟨∇F, d₋₁⟩, each message
// contributes in proportion to its share. Therefore
//
//	⟨∇F, d⟩ = Σ w·(⟨g, d⟩ + ε·s·⟨g, m⟩ − s·β·⟨∇F, d₋₁⟩) / Σ w·(1 − s),
//
// summed over the workers, where w are their shares in the present step. A worker whose gradient
// was late has s = 0.
//
// Rules that scale each parameter, and tensors with rates of their own, have no ε: told then
// returns false.
func (s *secant) told(o Outcome) (slope float64, ok bool) {
	if s.scales(o.Optimizer.Rule) {
		return 0, false
	}
	sum, weight := 0.0, 0.0
	for _, g := range o.Gradients {
		if !g.Along {
			continue
		}
		sum += g.Share * (g.Before + g.Earlier*(s.fresh*g.Own-s.carried))
		weight += g.Share * (1 - g.Earlier)
	}
	if weight <= leastOthers || !finite(sum) {
		return 0, false
	}
	return sum / weight, true
}

// leastOthers is the least share of other workers' messages in a step from which told computes a
// slope.
const leastOthers = 0.1
