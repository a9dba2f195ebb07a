package scar

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
)

// Choice says how the chunks of a plan are chosen.
type Choice uint8

// The choices.
const (
	Priority     Choice = iota // largest squared distance per byte first
	RoundRobin                 // one after the other
	Random                     // any, each at most once in a plan
	Threshold                  // distance per byte above a threshold that follows the budget: one pass without sorting
	MostUsed                   // most accesses per byte since it was last saved first (CPR-MFU)
	RecentlyUsed               // a sample of what was accessed (CPR-SSU)
	choices
)

var choiceNames = [choices]string{"priority", "roundrobin", "random", "threshold", "mostused", "recentlyused"}

// String returns the name that ParseChoice reads.
func (c Choice) String() string {
	if c >= choices {
		return fmt.Sprintf("Choice(%d)", uint8(c))
	}
	return choiceNames[c]
}

// ParseChoice returns the choice with that name; any other word is a kintsugi.ErrUsage.
func ParseChoice(name string) (Choice, error) {
	if i := slices.Index(choiceNames[:], name); i >= 0 {
		return Choice(i), nil
	}
	return 0, fmt.Errorf("%w: no way to choose chunks is called %q; know %s", kintsugi.ErrUsage, name, strings.Join(choiceNames[:], ", "))
}

// NeedsDistances reports whether plans need the distances of chunks from their saved values.
func (c Choice) NeedsDistances() bool { return c == Priority || c == Threshold }

// choose takes chunks that are not overdue.
func (p *Planner) choose(plan *Plan, distances []float64) {
	p.order = p.order[:0]
	switch p.cfg.Choice {
	case RoundRobin:
		p.roundRobin(plan)
		return
	case Random:
		p.order = append(p.order, p.random.Perm(len(p.saved))...)
		p.order = slices.DeleteFunc(p.order, func(c int) bool { return p.inFlight[c] })
	case Priority:
		p.sortBy(func(c int) float64 { return distances[c] })
	case MostUsed:
		p.sortBy(func(c int) float64 { return float64(p.counts[c]) })
	case RecentlyUsed:
		p.order = append(p.order, p.used.list...)
	}
	p.takeAll(plan, p.order)
}

// roundRobin goes on where the last plan ended.
func (p *Planner) roundRobin(plan *Plan) {
	for range len(p.saved) {
		if !p.inFlight[p.cursor] && !p.take(plan, p.cursor) {
			return
		}
		p.cursor = (p.cursor + 1) % len(p.saved)
	}
}

// sortBy orders the chunks with a positive value by that value per byte, the largest first. Of
// equal chunks, the older one is first.
func (p *Planner) sortBy(value func(c int) float64) {
	for c := range p.saved {
		if !p.inFlight[c] && value(c) > 0 {
			p.order = append(p.order, c)
		}
	}
	slices.SortFunc(p.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(value(b)/float64(p.cfg.Bytes[b]), value(a)/float64(p.cfg.Bytes[a])),
			cmp.Compare(p.saved[a], p.saved[b]), cmp.Compare(a, b))
	})
}

// scan begins where the last plan ran out of bytes, and takes the chunks that are overdue or whose
// distance per byte is above the threshold. Afterwards it moves the threshold, by at most a factor
// of 2, so that the bytes above it become those that may be spent.
func (p *Planner) scan(plan *Plan, distances []float64) {
	if p.threshold == 0 {
		for _, d := range distances {
			p.threshold += d / float64(p.total)
		}
	}
	budget, beyond, full, start := p.credit/int64(p.cfg.Period), int64(0), false, p.cursor
	for i := range p.saved {
		c := (start + i) % len(p.saved)
		if p.inFlight[c] || !p.overdue(c, plan.Step) && (distances[c] == 0 || distances[c] < p.threshold*float64(p.cfg.Bytes[c])) {
			continue
		}
		beyond += p.cfg.Bytes[c]
		if !full && !p.take(plan, c) {
			full, p.cursor = true, c
		}
	}
	p.threshold *= min(2, max(0.5, float64(beyond)/float64(max(1, budget))))
}
