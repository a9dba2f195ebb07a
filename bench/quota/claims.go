package quota

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi/bench"
)

// Claim is a statement about the results, and what was measured.
type Claim struct {
	Claim    string `json:"claim"`
	Measured string `json:"measured"`
	Holds    bool   `json:"holds"`
}

// bounds are the promised limits on dbw's time, relative to the best fixed quota, by the spread
// of times.
var bounds = []struct{ alpha, ratio float64 }{{0, 1.1}, {0.2, 1.1}, {0.5, 1.2}, {1, 1.4}}

// judge checks the claims about dbw.
func judge(r *Result) []Claim {
	c := claims{rows: r.Rows()}
	c.withoutStragglers()
	c.ratios()
	c.rivals()
	c.scaled()
	for _, s := range r.Sets {
		c.slowdown(s)
	}
	for _, cost := range r.Cost {
		limit := 100.0
		if cost.Members > 16 {
			limit = 5000
		}
		c.add(fmt.Sprintf("the choice costs a step of %d workers less than %g µs", cost.Members, limit), cost.Microseconds < limit, "%.1f µs", cost.Microseconds)
	}
	return c.all
}

type claims struct {
	rows []Row
	all  []Claim
}

func (c *claims) add(claim string, holds bool, format string, args ...any) {
	c.all = append(c.all, Claim{claim, fmt.Sprintf(format, args...), holds})
}

// own returns the rows of dbw.
func (c *claims) own() []Row {
	return slices.DeleteFunc(slices.Clone(c.rows), func(r Row) bool { return r.Controller != "dbw" })
}

func (c *claims) withoutStragglers() {
	least, most, cost, cells := 1.0, 0.0, math.Inf(-1), 0
	for _, r := range c.own() {
		if r.Alpha == 0 {
			cells++
			share := r.Quota / float64(r.Workers)
			least, most = min(least, share), max(most, share)
			cost = max(cost, known(r.Seconds/r.All)-1)
		}
	}
	if cells > 0 {
		c.add("without stragglers dbw waits for all", least > 0.9, "mean quota %.1f to %.1f %% of all, the first steps included", 100*least, 100*most)
		c.add("and costs less than 2 % beside bsp", cost < 0.02, "worst %+.1f %%", 100*cost)
	}
}

func (c *claims) ratios() {
	var all []float64
	worst := make(map[float64]Row)
	for _, r := range c.own() {
		all = append(all, known(r.Ratio))
		if w, ok := worst[r.Alpha]; !ok || known(r.Ratio) > known(w.Ratio) {
			worst[r.Alpha] = r
		}
	}
	for _, bound := range bounds {
		if w, ok := worst[bound.alpha]; ok {
			c.add(fmt.Sprintf("at alpha %g dbw takes at most %.2f of the best fixed quota's time", bound.alpha, bound.ratio), known(w.Ratio) <= bound.ratio,
				"worst %.2f, %s", known(w.Ratio), w.cell())
		}
	}
	c.add("in the median cell at most 1.05", bench.Median(all) <= 1.05, "%.3f, of %d cells", bench.Median(all), len(all))
}

// rivals compares dbw with the other controllers, and lists where they win.
func (c *claims) rivals() {
	own := c.own()
	var mine []float64
	for _, r := range own {
		mine = append(mine, known(r.Ratio))
	}
	for _, name := range rivals(c.rows) {
		if strings.HasPrefix(name, "dbw:") && name != "dbw:paper" {
			continue // a variant of dbw
		}
		var theirs []float64
		var wins []string
		worst := 0.0
		for _, r := range c.rows {
			if r.Controller != name {
				continue
			}
			theirs = append(theirs, known(r.Ratio))
			worst = max(worst, known(r.Ratio))
			i := slices.IndexFunc(own, func(o Row) bool { return o.cell() == r.cell() })
			if i >= 0 && known(r.Ratio) < 0.97*known(own[i].Ratio) {
				wins = append(wins, fmt.Sprintf("%s (%.2f, dbw %.2f)", r.cell(), known(r.Ratio), known(own[i].Ratio)))
			}
		}
		measured := fmt.Sprintf("%.3f, %s %.3f; worst %.2f, %s %.2f", bench.Median(mine), name, bench.Median(theirs), slices.Max(mine), name, worst)
		if len(wins) > 0 {
			measured += fmt.Sprintf("; by more than 3 %% it wins in %d of %d cells: %s", len(wins), len(mine), strings.Join(wins, ", "))
		}
		c.add("in the median cell dbw is no slower than "+name, bench.Median(mine) <= bench.Median(theirs), "%s", measured)
	}
}

func (c *claims) scaled() {
	gain, at := math.Inf(-1), Row{}
	for _, r := range c.own() {
		if r.Scaled.Known() && float64(r.Scaled/r.Seconds) > gain {
			gain, at = float64(r.Scaled/r.Seconds), r
		}
	}
	c.add("in some cell twice as fast as the best fixed quota at a rate proportional to it", gain >= 2, "best %.1f times, %s", gain, at.cell())
}

func (c *claims) slowdown(set Set) {
	for _, s := range set.Slowdown {
		if s.Controller == "dbw" {
			c.add(set.Data+": when half of the workers slow down dbw stops waiting for them within 30 steps", float64(s.Settled) <= 30,
				"after %s steps at most; median quota %s before, %s after", rounded(s.Settled), rounded(s.Before), rounded(s.After))
		}
	}
}

// cell names a cell: data set, batch size, learning rate and spread of times.
func (r *Row) cell() string {
	return fmt.Sprintf("%s batch %d rate %g alpha %g", r.Data, r.Batch, r.Rate, r.Alpha)
}

// rivals lists the controllers other than dbw, in order.
func rivals(rows []Row) []string {
	var names []string
	for _, r := range rows {
		if r.Controller != "dbw" && !slices.Contains(names, r.Controller) {
			names = append(names, r.Controller)
		}
	}
	return names
}
