package server

import (
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// This file is about steps whose gradients name few values, in shards whose versions have marks. Such
// a step computes only what is named. Everything else of the new version is what the version before
// has, and most of that is in the arrays already: they hold an earlier version, and the marks say
// what has changed since. So a step on a large table moves the rows that are touched, and no others.

// holding is what is known of an array: that it holds all values of a version.
type holding struct {
	step  kintsugi.Step
	epoch uint64 // of versions.epoch, in which step names that version; another one: nothing is known
}

// Arrays of a version that a step writes: the parameters, its state, and the copy of the parameters
// outside the process.
const (
	paramsArray  = 0
	stateArray   = 1
	outsideArray = 3
)

// forget makes nothing known of what an array outside the process holds, as it will be written. It
// returns what was known.
func (v *versions) forget(b []byte) holding {
	if len(b) == 0 {
		return holding{}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	h := v.outside[&b[0]]
	delete(v.outside, &b[0])
	return h
}

// forgetAll makes nothing known of any array.
func (v *versions) forgetAll() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.newEpoch()
}

// newEpoch begins a sequence of versions that follow from one another. The caller has locked mu.
func (v *versions) newEpoch() {
	v.epoch++
	clear(v.outside)
}

// know notes that the arrays of x hold it, as every chunk of it was made. It is published. The caller
// has locked mu.
func (v *versions) know(x *version) {
	if x == nil || !x.stepped {
		return
	}
	h := holding{x.step, v.epoch}
	x.holds[paramsArray] = h
	for i := range x.states {
		if x.bank < 0 {
			x.holds[stateArray+i] = h
		} else if len(x.state[i]) > 0 {
			v.outside[&kernels.Bytes(x.state[i])[0]] = h
		}
	}
	if len(x.copy) > 0 {
		v.outside[&x.copy[0]] = h
	}
}

// renewal is an array that a step writes, and the one of the version before.
type renewal struct {
	to, from []float32
	holds    uint32 // what version to holds, by its number in the marks
}

// compare prepares the marks of the new version, and finds out what its arrays hold. The arrays are
// there; none is written yet.
func (m *making) compare() {
	v, src, dst := m.r.versions, m.src, m.dst
	if !v.marks || dst.far != nil {
		return
	}
	dst.stepped = true
	arrays := []renewal{{to: dst.params, from: src.params}}
	had := []holding{dst.had[paramsArray]}
	for i := range dst.states {
		arrays, had = append(arrays, renewal{to: dst.state[i], from: src.state[i]}), append(had, dst.had[stateArray+i])
	}
	if m.outside != nil {
		dst.copy = m.outside[0]
		arrays, had = append(arrays, renewal{to: kernels.Floats(dst.copy), from: src.params}), append(had, dst.had[outsideArray])
	}
	first := src.marks.first
	if len(src.marks.since) == 0 || dst.step-first > math.MaxUint32 {
		return // publish makes marks anew
	}
	dst.marks.first = first
	dst.marks.since = slices.Grow(dst.marks.since[:0], len(src.marks.since))[:len(src.marks.since)]
	v.mu.Lock()
	epoch := v.epoch
	v.mu.Unlock()
	for i, h := range had {
		if h.epoch != epoch || h.step < first {
			return
		}
		arrays[i].holds = uint32(h.step - first)
	}
	m.renewals = arrays
}

// marked sets the marks of chunk i, the values [lo, hi), which the step has computed: as a whole, or
// only the spots of few. In that case it also brings the other spots of its arrays up to date.
func (m *making) marked(i, lo, hi int, few bool, spots []int32) {
	dst, src := &m.dst.marks, &m.src.marks
	if len(dst.since) == 0 {
		return
	}
	at, end := m.r.versions.spots[i], m.r.versions.spots[i+1]
	since, was, now := dst.since[at:end], src.since[at:end], uint32(m.dst.step-dst.first)
	if !few {
		markChunk(since, was, now, kernels.Bytes(m.dst.params[lo:hi]), kernels.Bytes(m.src.params[lo:hi]))
		return
	}
	copy(since, was)
	for _, s := range spots {
		since[s] = now
	}
	oldest := uint32(math.MaxUint32)
	for _, a := range m.renewals {
		oldest = min(oldest, a.holds)
	}
	for s, changed := range was {
		if changed <= oldest || since[s] == now {
			continue
		}
		from := lo + s*kernels.Spot
		end := min(from+kernels.Spot, hi)
		for _, a := range m.renewals {
			if changed > a.holds {
				copy(a.to[from:end], a.from[from:end])
			}
		}
	}
}
