package cuda

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Stepper takes steps of an optimizer on flat parameters that stay on the GPU, along a flat gradient
// that was computed there. A step has the bits of kernels.Device.Step on each tensor, with the
// gradient as its only operand, of weight 1.
//
// All its work is queued on one queue, that of NewStepper. It keeps the state of the rule, and
// copies of the parameters and gradients of tensors that do not begin at a multiple of 16 bytes.
type Stepper struct {
	q       *Queue
	rule    kernels.Rule
	tensors []stepped
	parts   []int // by part, the index of its tensor

	state         Ptr // all arrays of it
	stateSize     int // bytes of all
	chunks, pairs Ptr // tables by part: of chunk, and of pair
	norms         Ptr
	found         []byte // pinned: the norms
}

// stepped says where a tensor lies.
type stepped struct {
	n                   int // values
	params, grads       Ptr // in the flat arrays
	copied              bool
	ownParams, ownGrads Ptr // aligned: copies, or the same
	state               Ptr // its first array of state; the second is behind it
}

// room returns the size in bytes of an array of the tensor with a gap behind it, so that what
// follows is aligned.
func (t *stepped) room() int { return ceil(4*t.n, vector) * vector }

// NewStepper returns a stepper for tensors of these lengths, in values. They lie one behind the other
// in flat arrays at params and grads, both at multiples of 16. Norms are computed in parts of
// tensors; part is the number of values of each but the last, a multiple of 4. Its memory belongs to
// q, for which it waits. Errors are those of q.
func NewStepper(q *Queue, rule kernels.Rule, params, grads Ptr, lengths []int, part int) (*Stepper, error) {
	s := &Stepper{q: q, rule: rule}
	copies := 0 // bytes
	for i, n := range lengths {
		t := stepped{n: n, params: params, grads: grads, copied: params%vector != 0}
		if t.copied {
			copies += 2 * t.room()
		}
		s.stateSize += rule.States() * t.room()
		for range ceil(n, part) {
			s.parts = append(s.parts, i)
		}
		s.tensors = append(s.tensors, t)
		params, grads = params+Ptr(4*n), grads+Ptr(4*n)
	}
	own, state := arrayOf(q, copies), arrayOf(q, s.stateSize)
	s.state = state
	for i := range s.tensors {
		t := &s.tensors[i]
		t.ownParams, t.ownGrads, t.state = t.params, t.grads, state
		if t.copied {
			t.ownParams, t.ownGrads = own, own+Ptr(t.room())
			own += Ptr(2 * t.room())
		}
		state += Ptr(rule.States() * t.room())
	}
	s.tables(part)
	if err := q.Wait(); err != nil {
		return nil, err
	}
	return s, nil
}

// arrayOf is Queue.Array, but of 0 bytes there is none.
func arrayOf(q *Queue, n int) Ptr {
	if n == 0 {
		return 0
	}
	return q.Array(n)
}

// tables makes the tables of all parts.
func (s *Stepper) tables(part int) {
	s.norms, s.found = s.q.Array(8*len(s.parts)), s.q.Pinned(8*len(s.parts))
	var operands []operand
	var pairs []pair
	for _, t := range s.tensors {
		for lo := 0; lo < t.n; lo += part {
			at := t.ownGrads + Ptr(4*lo)
			operands = append(operands, operand{data: at, weight: 1, encoding: uint32(kernels.FP32) | 1<<8})
			pairs = append(pairs, pair{x: at, n: uint64(min(part, t.n-lo)), result: s.norms + Ptr(8*len(pairs))})
		}
	}
	at, products := put(s.q, operands), s.q.Array(32*len(s.parts))
	var chunks []chunk
	for _, t := range s.tensors {
		all := chunk{params: t.ownParams, next: t.ownParams}
		if s.rule.States() > 0 {
			all.state0, all.nextState0 = t.state, t.state
		}
		if s.rule.States() > 1 {
			second := t.state + Ptr(t.room())
			all.state1, all.nextState1 = second, second
		}
		for lo := 0; lo < t.n; lo += part {
			c := all.at(Ptr(4 * lo))
			c.n, c.count = uint64(min(part, t.n-lo)), 1
			c.operands, c.products = at, products
			at, products = at+Ptr(unsafe.Sizeof(operand{})), products+32
			chunks = append(chunks, c)
		}
	}
	s.chunks, s.pairs = put(s.q, chunks), put(s.q, pairs)
}

// Begin queues the beginning of steps at the parameters that the flat array has by then, with the
// state of the rule at zero.
func (s *Stepper) Begin() {
	s.q.Zero(s.state, s.stateSize)
	for _, t := range s.tensors {
		if t.copied {
			s.q.Copy(t.ownParams, t.params, 4*t.n)
		}
	}
}

// SquaredNorm returns the squared norm of the gradient: the sum of those of the parts, in their
// order. It waits for the queue, whose errors it returns.
func (s *Stepper) SquaredNorm() (sum float64, err error) {
	s.gather()
	Launch(s.q, "norm", "norms", line(len(s.parts)), normThreads, &normArgs{pairs: s.pairs})
	s.q.Out(s.found, s.norms)
	if err := s.q.Wait(); err != nil {
		return 0, err
	}
	for i := range s.parts {
		sum += math.Float64frombits(binary.LittleEndian.Uint64(s.found[8*i:]))
	}
	return sum, nil
}

// Step queues a step along the gradient times scale, to new parameters in the flat array. scalars are
// by tensor.
func (s *Stepper) Step(scale float32, scalars func(tensor int) kernels.Scalars) {
	s.gather()
	eachStep(len(s.parts), s.chunks, 0, func(i int) [12]float32 {
		return (&kernels.Step{Scale: scale, Scalars: scalars(s.parts[i])}).Coefficients()
	}, func(blocks int, args *stepArgs) {
		Launch(s.q, "step", "step_"+s.rule.String(), line(blocks), stepThreads, args)
	})
	for _, t := range s.tensors {
		if t.copied {
			s.q.Copy(t.params, t.ownParams, 4*t.n)
		}
	}
}

// gather queues the copies of the gradients of tensors that are not aligned.
func (s *Stepper) gather() {
	for _, t := range s.tensors {
		if t.copied {
			s.q.Copy(t.ownGrads, t.grads, 4*t.n)
		}
	}
}
