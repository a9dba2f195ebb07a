package kernels

import "fmt"

// Accelerator is a Device with memory of its own, such as a GPU. Arrays that stay in that memory
// from step to step need no copies.
type Accelerator interface {
	Device

	// NewArrays returns an Arrays whose arrays consist of chunks of these lengths, in values.
	NewArrays(lengths []int) Arrays
}

// Arrays creates and changes arrays that live on an accelerator and are all divided into the same
// chunks. It is safe for concurrent use. An array has one user at a time, but any number of
// readers. An array that nothing refers to any more is freed.
type Arrays interface {
	// NewArray returns an array with unspecified contents. Its memory is allocated when it is first
	// written.
	NewArray() Array

	// NewLanding returns memory on the accelerator for one gradient.
	NewLanding() Landing

	// Copy copies the named chunks, counted from 0, from one array to another.
	Copy(dst, src Array, chunks []int) error

	// Step does one optimizer step on all chunks and returns the by-products of each chunk. They
	// equal those of [Device].Step, bit for bit.
	Step(s *ArrayStep) ([]Products, error)
}

// Array is an array that lives on an accelerator. It also has a copy on the host, from the first
// call of Host on. The two copies are equal right after Send and Fetch, and are not kept equal
// otherwise.
type Array interface {
	// Host returns the host's copy: the chunks one after another, without gaps. The slice is valid
	// only for as long as the array is reachable; a reference to the slice does not keep it.
	Host() []float32

	// Send copies the host's values to the accelerator.
	Send() error

	// Fetch copies the accelerator's values to the host.
	Fetch() error
}

// Landing is a gradient that arrives at an accelerator chunk by chunk, while steps are running. It
// belongs to one goroutine at a time. While it is an operand of a step, it belongs to that step
// until the step returns.
type Landing interface {
	// Put copies the payload of a chunk and begins to send it to the accelerator. [Check] must have
	// accepted the payload. For FP32, data is the bytes of the chunk's values.
	Put(chunk int, e Encoding, data []byte) error

	// Clear forgets all chunks.
	Clear()
}

// ArrayStep is a step on arrays. Its fields mean the same as those of [Step]; a nil Array stands
// for a nil slice. All arrays and landings come from the same Arrays. An array may be both read and
// written where Step allows it.
type ArrayStep struct {
	Rule   Rule
	Scale  float32
	Chunks []ArrayChunk // all of them, in order

	From             Array
	Params, Next     Array
	State, NextState [2]Array
	Update           Array
	Previous, Saved  Array

	WantDot, WantDisplacement, WantSaved bool
}

// ArrayChunk holds the part of a step that belongs to one chunk.
type ArrayChunk struct {
	Scalars  Scalars
	Operands []LandedOperand

	// Keep leaves the chunk unchanged: Next is set to Params, and so is Update, if there is one.
	// Only Assign may keep.
	Keep bool
}

// LandedOperand is a gradient that has landed, with its weight. A step takes one chunk of it.
type LandedOperand struct {
	Weight  float32
	Landing Landing
}

// Check panics, with the values, on a step that breaks the rules. chunks is the number of chunks of
// the arrays.
func (s *ArrayStep) Check(chunks int) {
	if len(s.Chunks) != chunks {
		panic(fmt.Sprintf("kernels: step on %d chunks of %d", len(s.Chunks), chunks))
	}
	if s.Rule < SGD || s.Rule > LazyAdam || s.Params == nil || s.Next == nil {
		panic(fmt.Sprintf("kernels: step with %v from %v to %v", s.Rule, s.Params, s.Next))
	}
	if s.WantDot && s.Previous == nil || s.WantSaved && s.Saved == nil {
		panic("kernels: step with products of an array that is nil")
	}
	for i := range s.Rule.States() {
		if s.State[i] == nil || s.NextState[i] == nil {
			panic(fmt.Sprintf("kernels: %v step without its state %d", s.Rule, i))
		}
	}
	for i := range s.Chunks {
		c := &s.Chunks[i]
		one := s.From != nil || c.Keep
		if one && len(c.Operands) > 0 || s.Rule == Assign && !one && len(c.Operands) != 1 || c.Keep && s.Rule != Assign {
			panic(fmt.Sprintf("kernels: %v step with %d operands of chunk %d, from an update: %v, kept: %v", s.Rule, len(c.Operands), i, s.From != nil, c.Keep))
		}
	}
}
