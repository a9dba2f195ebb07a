package report

import (
	"fmt"
	"html/template"
	"math"
)

const (
	maxRows    = 48  // strips of workers; if there are more workers, several share a strip
	stripCells = 300 // for each strip
	stripShade = 5   // number of shades of a cell
)

// whoCounted draws a strip for each worker that shows how many steps counted its gradient. Below,
// it draws how many gradients each step waited for.
func (s *story) whoCounted() template.HTML {
	base := s.survivors()
	slots := 0
	highest := 1.0
	for _, i := range base {
		e := s.spans[i]
		highest = max(highest, float64(e.Last))
		slots = max(slots, int(min(e.Workers, 1<<20)))
		for _, slot := range e.Counted {
			slots = max(slots, int(min(slot, 1<<20))+1)
		}
	}
	if slots == 0 {
		return ""
	}
	f := &figure{name: "counted", unit: "step", x: newScale(0, highest, plotLeft, plotRight), bottom: 16}
	f.ticks = f.x.stepTicks(10)
	group := (slots + maxRows - 1) / maxRows // workers in one strip
	rows := (slots + group - 1) / group
	pitch := math.Max(9, math.Min(22, 400/float64(rows)))
	p := f.panel("gradients counted, by worker", pitch*float64(rows))
	cells, share := s.countCells(base, rows, group, slots, highest)
	for r := range rows {
		y := p.top + float64(r)*pitch
		p.rect("strip", plotLeft, y+1, plotRight-plotLeft, pitch-3)
		name := fmt.Sprintf("worker/%d", r*group)
		if group > 1 {
			name = fmt.Sprintf("%d–%d", r*group, min(slots, (r+1)*group)-1)
		}
		p.text("tick end", plotLeft-8, y+pitch/2+3, name)
		p.text("value muted", plotRight+8, y+pitch/2+3, percent(share[r]))
		drawStrip(p, cells[r], y+1, pitch-3)
	}
	for _, c := range s.failures() {
		x := f.x.at(float64(c.Step))
		f.line(failureClass(c), x, p.top, x, p.bottom)
	}
	s.quotaPanel(f, base)
	return f.svg("which workers were counted, and the quota, over steps")
}

// countCells returns, for each strip, the share of steps in each cell that counted one of its
// workers, NaN for a cell without steps; and the share over all steps.
func (s *story) countCells(base []int, rows, group, slots int, highest float64) ([][]float64, []float64) {
	cells := make([][]float64, rows)
	for r := range cells {
		cells[r] = make([]float64, stripCells)
	}
	share := make([]float64, rows)
	perCell := make([]float64, stripCells)
	seen := make([]int, slots) // the last step that counted the slot, so that two gradients of one step count once
	steps := 0.0
	for k, i := range base {
		e := s.spans[i]
		at := max(0, min(stripCells-1, int((float64(e.Last)-1)/highest*stripCells)))
		weight := float64(e.Steps)
		perCell[at] += weight
		steps += weight
		for _, slot := range e.Counted {
			if int(slot) >= slots || seen[slot] == k+1 {
				continue
			}
			seen[slot] = k + 1
			cells[int(slot)/group][at] += weight
			share[int(slot)/group] += weight
		}
	}
	for r := range cells {
		members := float64(min(slots, (r+1)*group) - r*group)
		for at := range cells[r] {
			cells[r][at] /= perCell[at] * members // NaN if there was no step
		}
		share[r] /= max(1, steps) * members
	}
	// A run with fewer steps than cells leaves cells empty between its steps: these repeat the step
	// before.
	for r := range cells {
		for at := 1; at < stripCells; at++ {
			if math.IsNaN(cells[r][at]) {
				cells[r][at] = cells[r][at-1]
			}
		}
	}
	return cells, share
}

// drawStrip draws a strip. Equal neighbouring cells become one rectangle.
func drawStrip(p *panel, cells []float64, y, height float64) {
	width := float64(plotRight-plotLeft) / stripCells
	level := func(v float64) int {
		if math.IsNaN(v) || v <= 0 {
			return 0
		}
		return int(math.Ceil(min(1, v) * stripShade))
	}
	for lo := 0; lo < len(cells); {
		hi := lo + 1
		for hi < len(cells) && level(cells[hi]) == level(cells[lo]) {
			hi++
		}
		if l := level(cells[lo]); l > 0 {
			p.rect(fmt.Sprintf("cell c%d", l), plotLeft+float64(lo)*width, y, float64(hi-lo)*width, height)
		}
		lo = hi
	}
}

// quotaPanel draws quota and members, unless every step waited for all members.
func (s *story) quotaPanel(f *figure, base []int) {
	partial, members := false, uint32(1)
	for _, i := range base {
		e := s.spans[i]
		partial = partial || e.Quota != e.Workers
		members = max(members, e.Workers, e.Quota)
	}
	if !partial {
		return
	}
	p := f.panel("quota: gradients a step waits for, of the members", 84)
	p.scaleY(newScale(0, float64(members)*1.1, 0, 0), func(s scale) []tick {
		return s.linearTicks(min(4, int(members)), func(v float64) string { return count(int(math.Round(v))) })
	})
	step := func(j int) float64 { return float64(s.spans[base[j]].Last) }
	all := thin(len(base), curvePoints, p.x.lo, p.x.hi, step, func(j int) float64 { return float64(s.spans[base[j]].Workers) }).mean
	quota := thin(len(base), curvePoints, p.x.lo, p.x.hi, step, func(j int) float64 { return float64(s.spans[base[j]].Quota) }).mean
	p.path("curve thin muted", p.place(all))
	p.path("curve loss", p.place(quota))
	if n := len(quota); n > 0 {
		p.label("loss", quota[n-1].y, digits3(quota[n-1].y))
	}
	p.track("quota", "", 1, 1, quota)
	s.reasons(p, base)
}

// reasonMarks is the number of steps in the quota panel with a mark that explains the quota.
const reasonMarks = 100

// reasons adds marks with the reasons for the quota, which a browser shows when the pointer rests
// on them.
func (s *story) reasons(p *panel, base []int) {
	next := 0
	for j, i := range base {
		why := s.spans[i].Why
		if why.Reason == "" || j < next {
			continue
		}
		next = j + max(1, len(base)/reasonMarks)
		fmt.Fprintf(p, `<circle class="dot reason" cx="%s" cy="%s" r="2.5">%s</circle>`,
			px(p.x.at(float64(why.Step))), px(p.y.at(float64(why.Quota))), title(fmt.Sprintf("step %d: %s", why.Step, why.Reason)))
	}
}
