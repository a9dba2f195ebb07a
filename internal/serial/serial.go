// Package serial checks that a run is linearizable (Herlihy and Wing, 1990): what the workers saw
// is what they would have seen with one server that does one thing after the other. Only tests use
// it. Begin reading at History and Check.
//
// That server makes synchronous steps. It has a version, and keeps each gradient on that version
// once. When it has a gradient of every worker, it has the next version. A pull returns the current
// version. A push that was counted in a step returns when that version or a later one exists. Each
// operation happens at one moment between its call and its return. So nobody may read a version
// that is older than one that was already read or reported, a version without some of its
// gradients, or a version with wrong values.
package serial

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kintsugi-ml/kintsugi"
)

// History is what the workers of a run saw, in any order. Times count from any common moment.
type History struct {
	Workers int
	Sums    []uint64 // by version, from 0: a sum over all its parameters

	operations []porcupine.Operation
	offers     map[offer]int // by gradient: index of its operation
}

// ErrOutOfOrder means that no order of the operations is possible on one server.
var ErrOutOfOrder = errors.New("no order of the operations is that of one server")

// Unknown is the return time of an operation whose end nobody saw.
const Unknown = time.Duration(math.MaxInt64)

// Len returns the number of operations.
func (h *History) Len() int { return len(h.operations) }

type (
	pull  struct{}
	offer struct { // of a gradient: its push arrives, or never
		slot    kintsugi.Slot
		version kintsugi.Step
	}
	told struct{ step kintsugi.Step } // that a push was counted in a step, which is released

	read struct {
		version kintsugi.Step
		sum     uint64
	}
)

func (h *History) add(slot kintsugi.Slot, input, output any, call, end time.Duration) {
	h.operations = append(h.operations, porcupine.Operation{ClientId: int(slot), Input: input, Output: output, Call: int64(call), Return: int64(end)})
}

// Pulled adds a read of a version by a worker, with a sum over all its parameters. Do not add reads
// that returned nothing.
func (h *History) Pulled(slot kintsugi.Slot, version kintsugi.Step, sum uint64, call, end time.Duration) {
	h.add(slot, pull{}, read{version, sum}, call, end)
}

// Pushed adds a push by a worker of a gradient computed on version, counted by step; step 0 means
// that the worker does not know what became of it.
func (h *History) Pushed(slot kintsugi.Slot, version, step kintsugi.Step, call, end time.Duration) {
	if step == 0 {
		end = Unknown
	} else {
		h.add(slot, told{step}, nil, call, end)
	}
	x := offer{slot, version}
	if at, ok := h.offers[x]; ok { // the same gradient again: one of the two arrives first
		o := &h.operations[at]
		o.Call, o.Return = min(o.Call, int64(call)), min(o.Return, int64(end))
		return
	}
	if h.offers == nil {
		h.offers = make(map[offer]int)
	}
	h.offers[x] = len(h.operations)
	h.add(slot, x, nil, call, end)
}

// state is the state of the one server.
type state struct {
	version kintsugi.Step
	have    uint64 // bit set of the workers whose gradients on version it has
}

// Check returns ErrOutOfOrder if there is no possible order on one server, and another error if
// that could not be decided within atMost.
func (h *History) Check(atMost time.Duration) error {
	if h.Workers < 1 || h.Workers > 64 {
		return fmt.Errorf("%w: a history of %d workers, want 1 to 64", kintsugi.ErrUsage, h.Workers)
	}
	model := porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, input, output any) (bool, any) { return h.step(s.(state), input, output) },
	}
	switch porcupine.CheckOperationsTimeout(model, h.operations, atMost) {
	case porcupine.Illegal:
		return fmt.Errorf("%w: %d of them", ErrOutOfOrder, len(h.operations))
	case porcupine.Unknown:
		return fmt.Errorf("no order of these %d operations was found in %v, nor that there is none", len(h.operations), atMost)
	}
	return nil
}

// step executes an operation, and reports whether its outcome is possible.
func (h *History) step(s state, input, output any) (bool, state) {
	switch x := input.(type) {
	case pull:
		out := output.(read)
		return out.version == s.version && int(s.version) < len(h.Sums) && out.sum == h.Sums[s.version], s
	case offer:
		if x.version != s.version {
			return x.version < s.version, s // a repetition that arrives late
		}
		if s.have |= 1 << x.slot; s.have == 1<<h.Workers-1 {
			s = state{version: s.version + 1}
		}
		return true, s
	case told:
		return s.version >= x.step, s
	}
	return false, s
}
