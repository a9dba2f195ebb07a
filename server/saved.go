package server

import (
	"math"
	"slices"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Copy is how a shard holds what the running checkpoint has of it. It costs memory: four bytes for
// each parameter, eight where saved values coast, two as bf16. A shard that lives on an accelerator
// holds it as it is: the zero Copy.
type Copy struct {
	// Coasts is for how many steps saved values go on by themselves; 0: they stay.
	Coasts kintsugi.Step

	// Half holds them as bf16, a 256th of themselves apart: distances that are smaller than that
	// are noise. Increments need them exactly.
	Half bool
}

// steps returns for how many steps values of a step have coasted at another.
func (c Copy) steps(from, to kintsugi.Step) float32 {
	if to <= from {
		return 0
	}
	return float32(min(to-from, c.Coasts))
}

// savedValues are the parameters of a shard as the running checkpoint has them: what it costs to
// know how far the shard is from what its loss would bring back. They outlive views, as the shard
// does.
type savedValues struct {
	copy     Copy
	mu       sync.RWMutex    // the kernel holds it for a chunk at a time, and so does what it waits for
	values   []float32       // nil if half, or on an accelerator
	half     []byte          // the same in bf16; nil if not half
	array    kernels.Array   // in place of values where the shard lives on an accelerator
	velocity []float32       // in a step; nil: they stay
	at       []kintsugi.Step // by chunk: when the values were current; nil if they stay
	touched  []uint32        // by chunk: values that gradients have named and that were not told of; used by whoever applies
}

// newSaved returns room for what is saved of so many chunks, which holds nothing yet.
func newSaved(c Copy, chunks int) *savedValues {
	return &savedValues{copy: c, touched: make([]uint32, chunks)}
}

// held reports whether it holds something.
func (s *savedValues) held() bool { return s.values != nil || s.half != nil || s.array != nil }

// begin makes params what is saved, as of versions, by chunk. velocity may be nil.
func (s *savedValues) begin(d kernels.Device, params, velocity []float32, saved []kintsugi.Step) error {
	if s.copy.Half {
		s.half = make([]byte, 2*len(params))
		return d.EncodeBF16(s.half, params, nil, nil)
	}
	s.values = slices.Clone(params)
	if s.copy.Coasts > 0 {
		s.velocity, s.at = make([]float32, len(params)), slices.Clone(saved)
		copy(s.velocity, velocity)
	}
	return nil
}

// look returns what is saved of chunk i, the values [lo, hi) of the shard, as it is at a step.
// scratch is memory for what must be computed. The caller holds mu.
func (s *savedValues) look(d kernels.Device, scratch *[]float32, i, lo, hi int, step kintsugi.Step) ([]float32, error) {
	if s.half == nil && s.velocity == nil {
		return s.values[lo:hi], nil
	}
	*scratch = slices.Grow((*scratch)[:0], hi-lo)[:hi-lo]
	if s.half != nil {
		return *scratch, d.Decode(*scratch, kernels.BF16, s.half[2*lo:2*hi])
	}
	kernels.Coast(*scratch, s.values[lo:hi], s.velocity[lo:hi], s.copy.steps(s.at[i], step))
	return *scratch, nil
}

// named returns how many values the operands of a step name of a chunk, which has n values. A
// gradient that does not name its values touches them all.
func named(operands []kernels.Operand, n int) (total uint64) {
	for _, o := range operands {
		total += uint64(kernels.Named(o.Encoding, o.Data, n))
	}
	return total
}

// count adds values that gradients have named of chunk i, and returns the sum if it is to be told.
func (s *savedValues) count(i int, named uint64, tell bool) uint32 {
	s.touched[i] = uint32(min(math.MaxUint32, uint64(s.touched[i])+named))
	if !tell {
		return 0
	}
	told := s.touched[i]
	s.touched[i] = 0
	return told
}

// set makes k, of a step, what is saved of chunk i, the values [lo, hi). What is saved whole has no velocity yet.
func (s *savedValues) set(d kernels.Device, i, lo, hi int, k Kept, step kintsugi.Step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.half != nil {
		return d.EncodeBF16(s.half[2*lo:2*hi], k.Params, nil, nil)
	}
	copy(s.values[lo:hi], k.Params)
	if s.velocity != nil {
		clear(s.velocity[lo:hi])
		copy(s.velocity[lo:hi], k.Velocity)
		s.at[i] = step
	}
	return nil
}

// get returns copies of what is saved of the values [lo, hi); without parameters where they are not exact.
func (s *savedValues) get(lo, hi int) (k Kept) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.values != nil {
		k.Params = slices.Clone(s.values[lo:hi])
	}
	if s.velocity != nil {
		k.Velocity = slices.Clone(s.velocity[lo:hi])
	}
	return k
}
