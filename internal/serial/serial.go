// Package serial says whether what workers saw of a run is what they would have seen of one server
// that does one thing after the other: whether it is linearizable (Herlihy and Wing, 1990). Only
// tests use it.
//
// The one server is that of synchronous steps. It has a version; it keeps the gradients on that
// version, each once; and when it has one of every worker, it has the next version. A pull returns
// the version that there is, a push that was counted in a step returns when there is that version
// or a later one. Each happens at one moment between its call and its return. So nobody may read a
// version that is older than one that anybody has read or was told of before, none that lacks
// gradients, and none with other values than that of its steps.
package serial

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/kintsugi-ml/kintsugi"
)

// History is what the workers of a run saw, in any order. Times count from any moment, the same for all.
type History struct {
	Workers int
	Sums    []uint64 // by version from 0, a sum over all parameters that its steps lead to

	operations []porcupine.Operation
	offers     map[offer]int // by gradient, its operation
}

// ErrOutOfOrder means that no server that does one thing after the other could have done it all.
var ErrOutOfOrder = errors.New("no order of the operations is that of one server")

// Unknown is the return of an operation that nobody heard the end of.
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

// Pulled notes that a worker has read a version, and a sum over all its parameters. Reads that came
// to nothing are none.
func (h *History) Pulled(slot kintsugi.Slot, version kintsugi.Step, sum uint64, call, end time.Duration) {
	h.add(slot, pull{}, read{version, sum}, call, end)
}

// Pushed notes that a worker has pushed a gradient that it computed on a version, and has heard
// that a step counts it; step 0: it has not heard what became of it.
func (h *History) Pushed(slot kintsugi.Slot, version, step kintsugi.Step, call, end time.Duration) {
	if step == 0 {
		end = Unknown
	} else {
		h.add(slot, told{step}, nil, call, end)
	}
	x := offer{slot, version}
	if at, ok := h.offers[x]; ok { // the same gradient once more: one of them arrives first
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

// state is that of the one server.
type state struct {
	version kintsugi.Step
	have    uint64 // a bit for each worker whose gradient on version it keeps
}

// Check returns ErrOutOfOrder if there is no order in which one server could have done it all, and
// another error if that could not be found out in that time.
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

// step does an operation, and reports whether it can have come to what it did.
func (h *History) step(s state, input, output any) (bool, state) {
	switch x := input.(type) {
	case pull:
		out := output.(read)
		return out.version == s.version && int(s.version) < len(h.Sums) && out.sum == h.Sums[s.version], s
	case offer:
		if x.version != s.version {
			return x.version < s.version, s // it came before, and is repeated
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
