package dbw

import (
	"math"
	"slices"
	"sort"

	"github.com/kintsugi-ml/kintsugi"
)

// durations estimates T(h, k): the time in seconds from the release of a version until the k-th
// gradient on it arrives, if the step before counted h gradients.
//
// If busy workers are not interrupted, each step gives a sample for every k, not only for the
// gradients that arrived in time. A worker that was still busy with an older version would have
// begun on this one when it was free, and the time of its next gradient does not depend on the
// version. So the first gradient that a worker begins after a release fills its place in every step
// since its last one. If busy workers are interrupted, those that were not waited for are censored:
// it is known only that they would have taken longer.
type durations struct {
	n         int     // members
	interrupt bool    // a busy worker gives up when a version is released
	own       bool    // as published: a gradient is a sample only for the version that it was computed on
	keep      float64 // the part of a sample's weight that is left after a step
	knots     []int   // quotas for which samples are kept, ascending, from 1 to n
	knotOf    []int   // by quota: index of its knot, or −1
	sum, wt   []float64
	open      []iteration // steps for which workers may still give samples, ascending by version
	filled    map[kintsugi.Slot]kintsugi.Step

	grid  grid
	seen  []int // rows of the fit, as indices of knots
	fresh bool  // the fit is that of the present samples

	change change
}

// iteration is one step whose gradients are being timed.
type iteration struct {
	version  kintsugi.Step
	released float64
	h        int
	arrived  int
}

const (
	dense    = 16   // up to so many members, every quota has a knot
	tiny     = 1e-6 // weight below which a sample is forgotten
	hoped    = 0.05 // weight of a value that was never seen, or long ago
	forgiven = 0.05 // share of their weight that samples keep after a change has been detected
	resized  = 0.25 // the same when members come or go
)

func newDurations(memory float64, interrupt bool) *durations {
	return &durations{keep: 1 - 1/memory, interrupt: interrupt, filled: make(map[kintsugi.Slot]kintsugi.Step)}
}

// knotsFor returns the quotas for which durations are kept: all of them or, with many members, some
// of them, closer together near both ends, where order statistics bend.
func knotsFor(n int) []int {
	var knots []int
	if n <= dense {
		for k := 1; k <= n; k++ {
			knots = append(knots, k)
		}
		return knots
	}
	for x := 1.0; x <= float64(n+1)/2; x = max(x+1, x*1.5) {
		knots = append(knots, int(x), n+1-int(x))
	}
	slices.Sort(knots)
	return slices.Compact(knots)
}

// resize converts the samples for n members to m members: the k-th of n arrives when the k·m/n-th
// of m does.
func (d *durations) resize(m int) {
	if m == d.n {
		return
	}
	old := *d
	d.n, d.fresh = m, false
	d.knots = knotsFor(m)
	d.knotOf = make([]int, m+1)
	for k := range d.knotOf {
		d.knotOf[k] = -1
	}
	for i, k := range d.knots {
		d.knotOf[k] = i
	}
	cells := len(d.knots) * len(d.knots)
	d.sum, d.wt = make([]float64, cells), make([]float64, cells)
	d.open = d.open[:0]
	if old.n == 0 {
		return
	}
	from := func(k int) int { return old.nearest(1 + (k-1)*(old.n-1)/max(1, m-1)) }
	for i, h := range d.knots {
		for j, k := range d.knots {
			a := from(h)*len(old.knots) + from(k)
			d.sum[i*len(d.knots)+j], d.wt[i*len(d.knots)+j] = resized*old.sum[a], resized*old.wt[a]
		}
	}
}

// nearest returns the index of the knot nearest to quota k.
func (d *durations) nearest(k int) int {
	i := sort.SearchInts(d.knots, k)
	if i == len(d.knots) || (i > 0 && k-d.knots[i-1] < d.knots[i]-k) {
		return i - 1
	}
	return i
}

// add adds a sample of T(h, k).
func (d *durations) add(h, k int, seconds float64) {
	j := -1
	if k <= d.n {
		j = d.knotOf[k]
	}
	if j < 0 || !(seconds >= 0) || math.IsInf(seconds, 1) {
		return
	}
	at := d.nearest(min(h, d.n))*len(d.knots) + j
	d.sum[at] += seconds
	d.wt[at]++
	d.fresh = false
}

// release begins to time the step after version, which counted h gradients.
func (d *durations) release(version kintsugi.Step, at float64, h, members int) {
	if members != d.n {
		d.resize(members)
	}
	if d.interrupt {
		h = members // all begin together, whatever h was
	}
	for i := range d.sum {
		d.sum[i] *= d.keep
		d.wt[i] *= d.keep
	}
	if len(d.open) > 0 && d.open[len(d.open)-1].version+1 != version {
		d.open = d.open[:0] // another line, or another conductor
	}
	if d.interrupt && len(d.open) > 0 {
		d.censor(&d.open[len(d.open)-1], at)
		d.open = d.open[:0]
	}
	if len(d.open) == 4*d.n+64 {
		d.censor(&d.open[0], at)
		d.open = append(d.open[:0], d.open[1:]...)
	}
	d.open = append(d.open, iteration{version: version, released: at, h: h})
}

// censor ends the timing of a step. A worker that has not arrived takes longer than the step
// lasted, so lower estimates rise, and the others stay.
func (d *durations) censor(it *iteration, at float64) {
	lasted := at - it.released
	for i := it.arrived + 1; i <= d.n; i++ {
		if d.knotOf[i] >= 0 && d.at(it.h, i) < lasted {
			d.add(it.h, i, lasted)
		}
	}
}

// arrive takes a finished gradient.
func (d *durations) arrive(slot kintsugi.Slot, version kintsugi.Step, at float64) {
	filled, known := d.filled[slot]
	if known && version <= filled {
		return // a repetition
	}
	d.filled[slot] = version
	if len(d.open) == 0 || version < d.open[0].version {
		return
	}
	first := d.open[0].version
	lo := int(version - first)
	if known && !d.interrupt && !d.own {
		lo = 0
		if filled >= first {
			lo = int(filled-first) + 1
		}
	}
	for i := lo; i < len(d.open) && d.open[i].version <= version; i++ {
		it := &d.open[i]
		it.arrived++
		d.add(it.h, it.arrived, at-it.released)
	}
}

// committed notes when a step had its quota, or was not waited for any longer. If its duration
// shows a change, it forgets most of what was learnt before and returns true.
func (d *durations) committed(quota int, at float64) bool {
	if len(d.open) == 0 || !d.known() {
		return false
	}
	it := &d.open[len(d.open)-1]
	if it.arrived < min(quota, d.n) {
		if !d.interrupt { // otherwise the release does so
			d.censor(it, at)
		}
		return false
	}
	took := max(1e-9, at-it.released)
	if !d.change.seen(math.Log(took / max(1e-9, d.at(it.h, min(quota, d.n))))) {
		return false
	}
	for i := range d.sum {
		d.sum[i] *= forgiven
		d.wt[i] *= forgiven
	}
	d.fresh = false
	return true
}

// known reports whether there is any sample.
func (d *durations) known() bool {
	d.refit()
	return len(d.seen) > 0
}

// refit computes the fit if there are samples that it does not contain. It leaves out rows without
// samples.
func (d *durations) refit() {
	if d.fresh {
		return
	}
	d.fresh = true
	m := len(d.knots)
	d.seen = d.seen[:0]
	for i := range m {
		for _, w := range d.wt[i*m : (i+1)*m] {
			if w > tiny {
				d.seen = append(d.seen, i)
				break
			}
		}
	}
	d.grid.resize(len(d.seen), m)
	for r, i := range d.seen {
		d.fillRow(d.grid.y[r*m:(r+1)*m], d.grid.w[r*m:(r+1)*m], d.sum[i*m:(i+1)*m], d.wt[i*m:(i+1)*m])
	}
	if len(d.seen) > 0 {
		d.grid.fit()
	}
}

// reach returns the largest quota for which there are samples.
func (d *durations) reach() int {
	m := len(d.knots)
	for j := m - 1; j >= 0; j-- {
		for i := range m {
			if d.wt[i*m+j] > tiny {
				return d.knots[j]
			}
		}
	}
	return 1
}

// fillRow sets the targets and weights of a row. For a quota that was never seen, the target is
// optimistic: it continues the straight line through the times that were seen. For the slowest
// workers that is hardly ever more than they take. So such a quota may be tried, and its time is
// known afterwards.
func (d *durations) fillRow(y, w, sum, wt []float64) {
	first, last := -1, -1
	for j := range y {
		if wt[j] <= tiny {
			continue
		}
		y[j], w[j] = sum[j]/wt[j], max(hoped, wt[j])
		if first < 0 {
			first = j
		}
		last = j
	}
	slope := 0.0
	if last > first {
		slope = max(0, (y[last]-y[first])/float64(d.knots[last]-d.knots[first]))
	}
	near := first
	for j := range y {
		switch {
		case wt[j] > tiny:
			near = j
		case j < first:
			y[j], w[j] = y[first], hoped
		default:
			y[j], w[j] = y[near]+slope*float64(d.knots[j]-d.knots[near]), hoped
		}
	}
}

// at returns the estimate of T(h, k) in seconds, 0 if nothing is known. It interpolates linearly
// between knots and between rows that were seen.
func (d *durations) at(h, k int) float64 {
	d.refit()
	if len(d.seen) == 0 {
		return 0
	}
	if d.interrupt {
		h = d.n
	}
	r := sort.Search(len(d.seen), func(r int) bool { return d.knots[d.seen[r]] >= h })
	switch {
	case r == len(d.seen):
		return d.inRow(r-1, k)
	case r == 0 || d.knots[d.seen[r]] == h:
		return d.inRow(r, k)
	}
	lo, hi := d.knots[d.seen[r-1]], d.knots[d.seen[r]]
	x := float64(h-lo) / float64(hi-lo)
	return d.inRow(r-1, k)*(1-x) + d.inRow(r, k)*x
}

// inRow returns the estimate for quota k in a row of the fit.
func (d *durations) inRow(r, k int) float64 {
	row := d.grid.x[r*len(d.knots) : (r+1)*len(d.knots)]
	if j := d.knotOf[k]; j >= 0 {
		return row[j]
	}
	j := sort.SearchInts(d.knots, k)
	lo, hi := d.knots[j-1], d.knots[j]
	x := float64(k-lo) / float64(hi-lo)
	return row[j-1]*(1-x) + row[j]*x
}
