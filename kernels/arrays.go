package kernels

import "fmt"

// Accelerator is a Device with memory of its own, such as a GPU. Arrays that stay there from step
// to step cost no copies.
type Accelerator interface {
	Device

	// NewArrays returns a maker of arrays that consist of chunks of these lengths.
	NewArrays(lengths []int) Arrays
}

// Arrays makes and changes arrays of one division into chunks, which live on an accelerator. It is
// safe for concurrent use; an array is used by one caller at a time, but any number may read it.
// What nobody refers to any more is given back.
type Arrays interface {
	// NewArray returns an array that holds anything. It takes memory when it is first written.
	NewArray() Array

	// NewLanding returns memory for one gradient.
	NewLanding() Landing

	// Copy copies chunks, counted from 0, from one array to another.
	Copy(dst, src Array, chunks []int) error

	// Step does one optimizer step on all chunks and returns the by-products of each: those of
	// [Device].Step, bit for bit.
	Step(s *ArrayStep) ([]Products, error)
}

// Array is an array that lives on an accelerator, and on the host once somebody has asked for it there. The two
// sides are equal after Send and after Fetch, and at no other time.
type Array interface {
	// Host returns the host's side: the chunks one after the other, without gaps. It lives as long
	// as the array, whoever else refers to it.
	Host() []float32

	// Send gives the accelerator what the host has.
	Send() error

	// Fetch gives the host what the accelerator has.
	Fetch() error
}

// Landing is a gradient that arrives at an accelerator, chunk by chunk, while steps are under way.
// It belongs to one goroutine at a time, and to the step that it is an operand of until that has
// returned.
type Landing interface {
	// Put copies the payload of a chunk, which [Check] has accepted, and begins to send it; of
	// FP32, the bytes of its values.
	Put(chunk int, e Encoding, data []byte) error

	// Clear forgets all chunks.
	Clear()
}

// ArrayStep is a step on arrays. Its fields are those of [Step]; a nil Array is what a nil slice is
// there. Arrays are of one Arrays, and so are landings. The same arrays may be read and written as
// there.
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

// ArrayChunk is what a step is told for one chunk.
type ArrayChunk struct {
	Scalars  Scalars
	Operands []LandedOperand

	// Keep leaves the chunk as it is: Next is Params, and so is Update, if there is one. Only Assign may.
	Keep bool
}

// LandedOperand is the chunk of a gradient that has landed.
type LandedOperand struct {
	Weight  float32
	Landing Landing
}

// Check panics, with the values, on a step that breaks the rules. chunks is how many there are.
func (s *ArrayStep) Check(chunks int) {
	if len(s.Chunks) != chunks {
		panic(fmt.Sprintf("kernels: step on %d chunks of %d", len(s.Chunks), chunks))
	}
	if s.Rule < SGD || s.Rule > Adagrad || s.Params == nil || s.Next == nil {
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
