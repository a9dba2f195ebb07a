package server

import (
	"math"
	"slices"
	"sync"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/spread"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Copy says how a shard keeps a copy in memory of what the running checkpoint has of it. The copy
// costs four bytes for each parameter, eight if saved values coast, two as bf16. A shard on an
// accelerator supports only the zero Copy.
type Copy struct {
	// Coasts is the number of steps for which saved values move on by their velocity after they
	// were saved; 0: they stay as they are.
	Coasts kintsugi.Step

	// Half keeps the copy in bf16. Its values differ by up to 1/256 of themselves, so smaller
	// distances are noise. Increments need exact values.
	Half bool
}

// steps returns for how many steps values that were saved at step from have coasted at step to.
func (c Copy) steps(from, to kintsugi.Step) float32 {
	if to <= from {
		return 0
	}
	return float32(min(to-from, c.Coasts))
}

// savedValues is a copy of the parameters of a shard as the running checkpoint has them. From it
// the shard knows how far it is from what its loss would bring back. It outlives views, as the
// shard does.
type savedValues struct {
	copy     Copy
	mu       sync.RWMutex    // the kernel holds it for one chunk at a time, and so does what the kernel waits for
	values   []float32       // nil if half, or on an accelerator
	half     []byte          // the same in bf16; nil if not half
	array    kernels.Array   // in place of values if the shard lives on an accelerator
	velocity []float32       // change in one step; nil: they do not coast
	at       []kintsugi.Step // by chunk: the step at which the values were current; nil if they do not coast
	touched  []uint32        // by chunk: how many values gradients have named since this was last reported; used by the goroutine that applies
}

// newSaved returns saved values for a shard with so many chunks, which are empty.
func newSaved(c Copy, chunks int) *savedValues {
	return &savedValues{copy: c, touched: make([]uint32, chunks)}
}

// held reports whether there are saved values.
func (s *savedValues) held() bool { return s.values != nil || s.half != nil || s.array != nil }

// begin makes params the saved values; saved is their version, by chunk. velocity may be nil.
func (s *savedValues) begin(d kernels.Device, params, velocity []float32, saved []kintsugi.Step) error {
	if s.copy.Half {
		s.half = make([]byte, 2*len(params))
		return d.EncodeBF16(s.half, params, nil, nil)
	}
	s.values = make([]float32, len(params))
	spread.Copy(spread.Array{To: kernels.Bytes(s.values), From: kernels.Bytes(params)})
	if s.copy.Coasts > 0 {
		s.velocity, s.at = make([]float32, len(params)), slices.Clone(saved)
		copy(s.velocity, velocity)
	}
	return nil
}

// look returns what is saved of chunk i, the values [lo, hi) of the shard, as it is at step. The
// result may lie in scratch, which is grown as needed. The caller holds mu.
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

// named returns how many values of a chunk of n values the operands of a step name. A gradient that
// does not list its values names them all.
func named(operands []kernels.Operand, n int) (total uint64) {
	for _, o := range operands {
		total += uint64(kernels.Named(o.Encoding, o.Data, n))
	}
	return total
}

// count adds the number of values of chunk i that gradients have named. If tell is set, it returns
// the sum and starts again from 0; otherwise it returns 0.
func (s *savedValues) count(i int, named uint64, tell bool) uint32 {
	s.touched[i] = uint32(min(math.MaxUint32, uint64(s.touched[i])+named))
	if !tell {
		return 0
	}
	told := s.touched[i]
	s.touched[i] = 0
	return told
}

// set makes k, of a step, what is saved of chunk i, the values [lo, hi). If k has no velocity, the
// velocity becomes 0.
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

// get returns copies of what is saved of the values [lo, hi), without Params if the copy is not
// exact.
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
