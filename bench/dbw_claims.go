package bench

import (
	"fmt"
	"math"
)

// Claim is a statement about the results, with what was measured.
type Claim struct {
	Claim    string `json:"claim"`
	Measured string `json:"measured"`
	Holds    bool   `json:"holds"`
}

// dbwClaims checks what is claimed of dbw.
func dbwClaims(r *DBWResult) []Claim {
	var claims []Claim
	add := func(claim string, holds bool, format string, args ...any) {
		claims = append(claims, Claim{claim, fmt.Sprintf(format, args...), holds})
	}
	ratios := make(map[string][]float64)
	worst := make(map[float64]float64)
	most, least, cost, gain := 0.0, math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, c := range r.Cells {
		ratio := float64(c.Ratio)
		if !c.Ratio.Known() {
			ratio = math.Inf(1)
		}
		ratios[c.Controller] = append(ratios[c.Controller], ratio)
		if c.Controller != "dbw" {
			continue
		}
		worst[c.Alpha] = max(worst[c.Alpha], ratio)
		if c.Alpha == 0 {
			most, least = max(most, c.Quota), min(least, c.Quota)
			cost = max(cost, float64(c.Seconds/c.All)-1)
		}
		if c.Scaled.Known() {
			gain = max(gain, float64(c.Scaled/c.Seconds))
		}
	}
	if _, ok := worst[0]; ok {
		add("without stragglers dbw waits for all", least > 0.9*most, "mean quota %.1f to %.1f", least, most)
		add("and costs less than 2 % beside bsp", cost < 0.02, "%+.1f %%", 100*cost)
	}
	for _, bound := range []struct{ alpha, ratio float64 }{{0, 1.15}, {0.2, 1.15}, {0.5, 1.3}, {1, 1.6}} {
		if w, ok := worst[bound.alpha]; ok {
			add(fmt.Sprintf("at alpha %g dbw takes at most %.2f of the best fixed quota's time", bound.alpha, bound.ratio), w <= bound.ratio, "worst %.2f", w)
		}
	}
	own := middle(ratios["dbw"])
	add("in the median cell at most 1.10", own <= 1.10, "%.3f, of %d cells", own, len(ratios["dbw"]))
	for _, name := range rivals(r) {
		m := middle(ratios[name])
		add("in the median cell dbw is no slower than "+name, own <= m, "%.3f, %s %.3f", own, name, m)
	}
	add("in some cell twice as fast as the best fixed quota at a rate proportional to it", gain >= 2, "best %.1f times", gain)
	for _, s := range r.Slowdown {
		if s.Controller == "dbw" {
			settled := float64(s.Settled)
			add("when half of the workers slow down dbw stops waiting for them within 30 steps", settled <= 30, "after %.0f steps; median quota %.0f before, %.0f after", settled, s.Before, s.After)
		}
	}
	return claims
}

// rivals lists the controllers but dbw, in order.
func rivals(r *DBWResult) []string {
	var names []string
	seen := map[string]bool{"dbw": true}
	for _, c := range r.Cells {
		if !seen[c.Controller] {
			seen[c.Controller] = true
			names = append(names, c.Controller)
		}
	}
	return names
}
