package partial

import (
	"fmt"
	"math"
)

// Claims compares the rows with the claims: one line for each claim whose strategies are in the
// rows. "worse" and "better" mean a difference beyond both intervals.
func Claims(rows []Row) (claims []string) {
	cells := make(map[string]map[string]Row)
	var order []string
	for _, r := range rows {
		if r.Missing != "" || r.Trials == 0 {
			continue
		}
		key := fmt.Sprintf("%s, %s lost, C = %d", r.Workload, Share(r.Lost), r.Period)
		if cells[key] == nil {
			cells[key] = make(map[string]Row)
			order = append(order, key)
		}
		cells[key][r.Strategy] = r
	}
	for _, pair := range [][2]string{{"partial", "full"}, {"priority:1/8", "roundrobin:1/8"}, {"roundrobin:1/8", "random:1/8"}, {"full", "random:1/8"},
		{"curved:1/8", "priority:1/8"}, {"secant:1/8", "priority:1/8"}, {"shadow:int4", "shadow:int8"}, {"coasting:int4", "coasting:int8"}} {
		better, worse, n, where := 0, 0, 0, ""
		for _, key := range order {
			a, hasA := cells[key][pair[0]]
			b, hasB := cells[key][pair[1]]
			if !hasA || !hasB {
				continue
			}
			n++
			switch {
			case below(b, a):
				better++
			case below(a, b):
				worse, where = worse+1, ": "+key
			}
		}
		if n > 0 {
			claims = append(claims, fmt.Sprintf("%s is better than %s in %d of %d cells, and worse in %d%s", pair[0], pair[1], better, n, worse, where))
		}
	}
	return append(claims, bestOf(order, cells)...)
}

// below reports whether the reduction of a is smaller than that of b, beyond both intervals.
func below(a, b Row) bool { return a.Reduction < b.Low && a.High < b.Reduction }

// bestOf compares the best strategy of each cell with C ≥ 16 with the replica.
func bestOf(order []string, cells map[string]map[string]Row) []string {
	n, reached, least, where := 0, 0, math.Inf(1), ""
	for _, key := range order {
		replica, ok := cells[key]["replica"]
		if !ok || replica.Period < 16 || !(replica.Reduction > 0) {
			continue
		}
		best := Row{Reduction: math.Inf(-1)}
		for _, r := range cells[key] {
			if r.Strategy != "full" && r.Strategy != "replica" && r.Reduction > best.Reduction {
				best = r
			}
		}
		share := best.Reduction / replica.Reduction
		if n++; share >= 0.9 {
			reached++
		}
		if share < least {
			least, where = share, fmt.Sprintf("%s with %s", key, best.Strategy)
		}
	}
	if n == 0 || math.IsInf(least, 0) {
		return nil
	}
	return []string{fmt.Sprintf("the best strategy has 90 %% of the replica's reduction in %d of %d cells with C ≥ 16; least is %.0f %%, %s", reached, n, 100*least, where)}
}
