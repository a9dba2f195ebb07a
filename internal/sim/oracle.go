package sim

import (
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// Arithmetic of the simulation. A chunk is one uint64, and every operation mixes its bits. So every
// later version shows if a gradient is left out, counted twice, weighted differently, summed in
// another order, or computed on other parameters. Where a real run uses floats and kernels, the
// simulation is exact.

func mix(h, x uint64) uint64 {
	h ^= x + 0x9e3779b97f4a7c15 + h<<6 + h>>2
	h *= 0xff51afd7ed558ccd
	return h ^ h>>33
}

// digest returns a hash of a whole version.
func digest(params []uint64) uint64 {
	h := uint64(len(params))
	for _, p := range params {
		h = mix(h, p)
	}
	return h
}

// gradientOf returns one chunk of the gradient that id names, on parameters with the given digest.
// It is a pure function of slot, version and sequence, as the protocol demands.
func gradientOf(id kintsugi.PushID, chunk kintsugi.ChunkID, params uint64) uint64 {
	h := mix(params, uint64(id.Slot)<<32|uint64(id.Sequence))
	return mix(mix(h, uint64(id.Version)), uint64(chunk))
}

// stepOf returns the value of one chunk after a step. gradients are in the order of c.Counted.
func stepOf(value uint64, c *kintsugi.Commit, gradient func(i int) uint64) uint64 {
	return stepFrom(value, c, sumOf(c, gradient))
}

// sumOf returns the sum of a step on one chunk.
func sumOf(c *kintsugi.Commit, gradient func(i int) uint64) uint64 {
	h := uint64(math.Float32bits(c.Scale))
	for i, w := range c.Counted {
		h = mix(mix(h, uint64(math.Float32bits(w.Weight))), gradient(i))
	}
	return h
}

// stepFrom returns the value of one chunk after a step with the given sum.
func stepFrom(value uint64, c *kintsugi.Commit, sum uint64) uint64 {
	o := c.Optimizer
	h := mix(value, uint64(math.Float32bits(o.LearningRate)))
	h = mix(h, uint64(math.Float32bits(o.Correction1))<<32|uint64(math.Float32bits(o.Correction2)))
	return mix(h, sum)
}

// examplesOf returns the number of examples in the batch of a push.
func examplesOf(id kintsugi.PushID) uint32 { return 8 + uint32(id.Slot)%3 }

// squaredNormOf returns the squared norm of a push. It varies only if norms are bounded. Otherwise
// all are equal, so that a gradient kept in an outage has a usual norm.
func (c Config) squaredNormOf(id kintsugi.PushID) float64 {
	if c.Consistency.ClipNorm == 0 || c.Consistency.Continue {
		return 1
	}
	return float64(1 + mix(uint64(id.Slot), uint64(id.Version))%9)
}

// oracle knows the correct values of every released version of every line: it computes the counted
// steps, one after the other, on whole vectors.
type oracle struct {
	initial []uint64
	lines   map[kintsugi.Line]*history
	begun   map[kintsugi.Line]*beginning
}

// history is what a line has released.
type history struct {
	base     kintsugi.Step
	versions [][]uint64        // from base on
	digests  []uint64          // of the versions
	steps    []kintsugi.Commit // from base+1 on
	counted  map[kintsugi.PushID]kintsugi.Step
	batches  map[batch]kintsugi.Step
}

// beginning is a line that keeps an earlier one and has not begun on every shard.
type beginning struct {
	kept   *history // history of the line before
	keeps  kintsugi.Line
	step   kintsugi.Step
	values []uint64 // values of the shards that have adopted theirs
	have   map[kintsugi.ShardID]bool
	saved  map[kintsugi.ShardID][]kintsugi.Step // of the shards that came back
}

// batch identifies the batch of a gradient: two lives of a worker compute the same one.
type batch struct {
	slot     kintsugi.Slot
	version  kintsugi.Step
	sequence uint32
}

func newOracle(chunks int) *oracle {
	o := &oracle{lines: make(map[kintsugi.Line]*history), begun: make(map[kintsugi.Line]*beginning)}
	for i := range chunks {
		o.initial = append(o.initial, mix(1, uint64(i)))
	}
	return o
}

// begin starts a line from a checkpoint or from the initialisation.
func (o *oracle) begin(line kintsugi.Line, base kintsugi.Step, values []uint64) {
	o.lines[line] = &history{
		base: base, versions: [][]uint64{values}, digests: []uint64{digest(values)},
		counted: make(map[kintsugi.PushID]kintsugi.Step), batches: make(map[batch]kintsugi.Step),
	}
}

// hasSteps reports whether any step was released.
func (o *oracle) hasSteps() bool {
	for _, h := range o.lines {
		if len(h.steps) > 0 {
			return true
		}
	}
	return false
}

// version returns a version of a line, or nil if it was never released.
func (o *oracle) version(line kintsugi.Line, step kintsugi.Step) []uint64 {
	h := o.lines[line]
	if b := o.begun[line]; h == nil && b != nil && step == b.step {
		return b.values // as far as it has begun
	}
	if h == nil || step < h.base || int(step-h.base) >= len(h.versions) {
		return nil
	}
	return h.versions[step-h.base]
}

func (h *history) newest() kintsugi.Step { return h.base + kintsugi.Step(len(h.steps)) }

// gradient returns one chunk of a gradient.
func (o *oracle) gradient(id kintsugi.PushID, chunk kintsugi.ChunkID) uint64 {
	h := o.lines[id.Line]
	if h == nil || id.Version < h.base || int(id.Version-h.base) >= len(h.digests) {
		return 0 // of a version that nobody can have
	}
	return gradientOf(id, chunk, h.digests[id.Version-h.base])
}

// made returns one chunk, of the given shard, of a push with the given composition.
func (o *oracle) made(r recipe, chunk kintsugi.ChunkID, shard kintsugi.ShardID) uint64 {
	if r.parts == nil {
		return o.gradient(r.gradient, chunk)
	}
	value := o.made(r.parts[0], chunk, shard)
	for _, p := range r.parts[1:] {
		value = mix(value, o.made(p, chunk, shard))
	}
	if r.onto != nil && o.cameBack(shard, r.parts[0].line(), r.onto.Line) {
		if v := o.version(r.onto.Line, r.onto.Version); v != nil {
			value = mix(value, v[chunk])
		}
	}
	return value
}

// cameBack reports whether a shard came back with older values at the beginning of one of the lines
// after from, up to to.
func (o *oracle) cameBack(shard kintsugi.ShardID, from, to kintsugi.Line) bool {
	for line := from + 1; line <= to; line++ {
		if b := o.begun[line]; b != nil && b.saved[shard] != nil {
			return true
		}
	}
	return false
}

// release computes the next step of a line. pushed returns one chunk of a push; members returns the
// gradients that a push consists of.
func (h *history) release(c kintsugi.Commit, pushed func(kintsugi.PushID, kintsugi.ChunkID) uint64, members func(kintsugi.PushID) []kintsugi.PushID) {
	now := h.versions[len(h.versions)-1]
	next := make([]uint64, len(now))
	for i, v := range now {
		next[i] = stepOf(v, &c, func(k int) uint64 {
			return pushed(c.Counted[k].Push, kintsugi.ChunkID(i))
		})
	}
	h.versions = append(h.versions, next)
	h.digests = append(h.digests, digest(next))
	h.steps = append(h.steps, c)
	for _, w := range c.Counted {
		h.counted[w.Push] = c.Step
		for _, id := range members(w.Push) {
			h.batches[batch{id.Slot, id.Version, id.Sequence}] = c.Step
		}
	}
}

// same reports whether two commits have the same effect on a version.
func same(a, b kintsugi.Commit) bool {
	return a.Step == b.Step && a.Scale == b.Scale && a.Optimizer == b.Optimizer && slices.Equal(a.Counted, b.Counted)
}
