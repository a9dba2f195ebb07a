package scar

import (
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
)

// If a step touches few rows, counting accesses is cheaper than measuring distances. CPR (Maeng et
// al., CPR: Understanding and Improving Failure Tolerant Training for Deep Learning Recommendation,
// 2020) needs no copy of the saved values. A caller that plans rows of an embedding numbers the
// rows instead of the chunks.

// Accessed notes how many times a chunk was changed since the last call.
func (p *Planner) Accessed(c kintsugi.ChunkID, times uint64) {
	p.counts[c] += times
	if p.cfg.Choice == RecentlyUsed {
		p.used.access(int(c), times, p)
	}
}

// usedList is what RecentlyUsed remembers: a sample of the accessed chunks, as many as a plan can
// save of chunks of average size. A chunk that is accessed often is likely to be in the sample.
type usedList struct {
	list   []int
	member []bool
	seen   uint64 // accesses so far; every Sample-th of them is in the sample
}

// access looks at those of the accesses that are in the sample. If the list is full, a random chunk
// leaves it.
func (u *usedList) access(c int, times uint64, p *Planner) {
	sample := uint64(p.cfg.Sample)
	looked := (u.seen+times)/sample > u.seen/sample
	u.seen += times
	if !looked || u.member[c] || p.inFlight[c] {
		return
	}
	room := max(1, int(math.Ceil(p.cfg.Fraction*float64(len(u.member)))))
	for len(u.list) >= room {
		u.remove(u.list[p.random.IntN(len(u.list))])
	}
	u.list, u.member[c] = append(u.list, c), true
}

func (u *usedList) remove(c int) {
	if !u.member[c] {
		return
	}
	u.member[c] = false
	for i, o := range u.list {
		if o == c {
			u.list = append(u.list[:i], u.list[i+1:]...)
			return
		}
	}
}

// TotalVariation returns the distance between two rows of counts that are not negative, such as the
// words of a topic: the total variation ½·Σ|x/Σx − y/Σy| between the two distributions, times the
// counts Σx on which it has an effect. A row without counts is at distance Σx from a row with
// counts. It panics if the lengths differ.
func TotalVariation(x, y []float32) float64 {
	if len(x) != len(y) {
		panic(fmt.Sprintf("scar: rows of %d and %d values", len(x), len(y)))
	}
	var sx, sy, d float64
	for i := range x {
		sx += float64(x[i])
		sy += float64(y[i])
	}
	if sx == 0 || sy == 0 {
		return math.Max(sx, sy)
	}
	for i := range x {
		d += math.Abs(float64(x[i])/sx - float64(y[i])/sy)
	}
	return d / 2 * sx
}
