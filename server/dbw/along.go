package dbw

// told returns ⟨∇F, d⟩ at the beginning of the displacement d = β·d₋₁ − ε·Σ sᵢ·mᵢ, from what workers tell of their
// gradients there, and false if none does.
//
// Messages that are not gradients (a hundredth of the values, signs) need it: what they say of
// ‖∇F‖² is of themselves. The gradient g of a worker knows nothing of the messages of others, so
// ⟨g, d⟩ is unbiased but for its own message m, of share s, which was made of the same examples.
// With that taken out, ⟨g, d⟩ + ε·s·⟨g, m⟩ is on average ⟨∇F, d⟩ + ε·s·⟨∇F, m⟩; and of the fresh
// part of d, ⟨∇F, d⟩ − β·⟨∇F, d₋₁⟩, each message is a part in proportion to its share, so
//
//	⟨∇F, d⟩ = Σ w·(⟨g, d⟩ + ε·s·⟨g, m⟩ − s·β·⟨∇F, d₋₁⟩) / Σ w·(1 − s),
//
// summed over the workers, w their shares in the present step. A worker whose gradient was late has s = 0.
//
// Rules that scale each parameter, and tensors with rates of their own, have no ε: there it is false.
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

// leastOthers is the least share of others' messages in a step from which its slope is told.
const leastOthers = 0.1
