package virtual

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// born begins a life of the worker in slot.
func (h *theatre) born(slot int) {
	w := &h.hands[slot]
	w.incarnation++
	w.alive, w.working = true, false
	w.life++
	err := h.core.HandleHello(h.clock(), kintsugi.Hello{
		Protocol: kintsugi.ProtocolVersion, Model: 1, Line: simLine, Slot: kintsugi.Slot(slot), Incarnation: w.incarnation,
	})
	if err != nil {
		h.err = err
		return
	}
	if h.Lifetime > 0 {
		incarnation := w.incarnation
		h.after(h.Lifetime*h.rng.ExpFloat64(), -1, func() {
			if w.incarnation == incarnation {
				h.die(slot)
			}
		})
	}
}

// die ends a life; the next one begins later.
func (h *theatre) die(slot int) {
	w := &h.hands[slot]
	w.alive = false
	w.life++
	h.result.Deaths++
	if h.inVain++; h.inVain > vain*len(h.hands) {
		h.err = fmt.Errorf("%w: %d deaths since version %d and no step: workers die before they have a gradient; let them live longer, or compute faster",
			kintsugi.ErrUsage, h.inVain, h.released)
		return
	}
	h.core.WorkerGone(h.clock(), kintsugi.Slot(slot), w.incarnation)
	h.after(h.Rebirth, slot, func() { h.born(slot) })
}

// toWorker handles a message of the conductor.
func (h *theatre) toWorker(slot int, m kintsugi.ConductorMessage) {
	w := &h.hands[slot]
	switch m := m.(type) {
	case kintsugi.Admitted:
		if slot < len(h.Kept) && h.Kept[slot].Values != nil && w.begun == 0 {
			h.offer(slot)
			return
		}
		h.read(slot, m.Step)
	case kintsugi.Released:
		h.hears(slot, m)
	case kintsugi.Refused:
		h.free(m.Push)
		if !w.working {
			h.read(slot, h.newest(m.Step))
		}
	}
}

// offer pushes what a worker has kept, before its first gradient. The worker continues when it
// knows the fate of that push.
func (h *theatre) offer(slot int) {
	w, g := &h.hands[slot], h.Kept[slot]
	id := h.id(slot)
	t := kintsugi.Ticket{Push: id, Examples: 1, Loss: g.Loss, Kept: g.Merged, Views: []kintsugi.ViewNumber{1}}
	for _, v := range g.Values {
		t.SquaredNorm += float64(v) * float64(v)
	}
	w.begun++
	w.pushed[id] = g.Values
	h.core.HandleTicket(h.clock(), t)
}

// newest returns the newest version that may be read. It is at least step.
func (h *theatre) newest(step kintsugi.Step) kintsugi.Step { return max(step, h.released) }

// hears is a worker's reaction to a release: a waiting worker goes on; a worker whose gradient has
// become useless gives it up, if that is its Busy policy.
func (h *theatre) hears(slot int, m kintsugi.Released) {
	w := &h.hands[slot]
	pace := h.Consistency.Pace()
	switch {
	case w.working:
		if pace.Busy == kintsugi.Interrupt && pace.Staleness != kintsugi.Infinite && m.Step > w.version+kintsugi.Step(pace.Staleness) {
			h.core.HandleTicket(h.clock(), kintsugi.Ticket{Push: h.id(slot), Compute: h.since(w.since)}) // the gradient is given up
			h.read(slot, m.Step)
		}
	case w.settled(kintsugi.Slot(slot), m.Counted) || h.credit(w):
		h.read(slot, h.newest(m.Step))
	}
}

// settled reports whether a release counts the push that the worker waits for.
func (w *trainee) settled(slot kintsugi.Slot, counted []kintsugi.PushID) bool {
	lo, hi := 0, len(counted) // ascending by slot
	for lo < hi {
		if mid := (lo + hi) / 2; counted[mid].Slot < slot {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < len(counted) && counted[lo].Slot == slot
}

// credit reports whether a worker may push again before it knows the fate of its open pushes.
func (h *theatre) credit(w *trainee) bool { return len(w.pushed) < h.Consistency.Pace().Credit }

func (h *theatre) id(slot int) kintsugi.PushID {
	w := &h.hands[slot]
	return kintsugi.PushID{Line: simLine, Slot: kintsugi.Slot(slot), Incarnation: w.incarnation, Version: w.version, Sequence: w.sequence}
}

// read begins a gradient on a version.
func (h *theatre) read(slot int, version kintsugi.Step) {
	w := &h.hands[slot]
	if version != w.version || w.begun == 0 {
		w.version, w.sequence = version, 0
	} else {
		w.sequence++
	}
	h.begin(slot)
}

func (h *theatre) begin(slot int) {
	w := &h.hands[slot]
	w.life++
	w.working, w.since = true, h.now
	took := h.Times.of(slot, w.begun, w.offset, h.rng)
	for _, s := range h.Slow {
		took *= s.factor(slot, h.now)
	}
	w.begun++
	w.took = took
	if h.Consistency.Busy == kintsugi.Pull {
		took += h.Ask
	}
	if h.Consistency.Pace().Staleness > 0 {
		h.compute(slot)
	}
	h.after(took, slot, func() { h.finish(slot) })
}

// compute computes the current gradient of a worker on the newest version. If late gradients count,
// that is done when the gradient is begun. Otherwise it is done when the gradient is finished: its
// version is then still the newest, or it need not be computed at all.
func (h *theatre) compute(slot int) {
	w := &h.hands[slot]
	if n := len(h.spare); n > 0 {
		w.grads, h.spare = h.spare[n-1], h.spare[:n-1]
	} else {
		w.grads = make([]float32, len(h.params))
	}
	w.loss = h.Problem.Gradient(h.params, w.grads, h.batch(slot))
}

// batch returns the random source for the batch of a worker's current gradient.
func (h *theatre) batch(slot int) *rand.Rand {
	id := h.id(slot)
	place := uint64(slot)
	if h.Ranked {
		place = uint64(h.arrived)
	}
	h.arrived++
	return rand.New(rand.NewPCG(h.Seed^place<<40, uint64(id.Version)<<16|uint64(id.Sequence)))
}

// partial returns the partial gradients of workers that are still computing on a version, each with
// its number of batches.
func (h *theatre) partial(version kintsugi.Step) []kernels.Operand {
	var list []kernels.Operand
	for slot := range h.hands {
		w := &h.hands[slot]
		if !w.alive || !w.working || w.version != version {
			continue
		}
		grads := make([]float32, len(h.params))
		share := h.Problem.(Divisible).Part(h.params, grads, h.batch(slot), (h.now-w.since)/w.took)
		if share > 0 {
			list = append(list, kernels.Operand{Weight: float32(share), Values: grads})
		}
	}
	return list
}

// finish ends a gradient: it is pushed, or thrown away if it can no longer be counted.
func (h *theatre) finish(slot int) {
	w := &h.hands[slot]
	w.working = false
	id := h.id(slot)
	pace := h.Consistency.Pace()
	t := kintsugi.Ticket{Push: id, Examples: 1, Compute: h.since(w.since)}
	if pace.Staleness != kintsugi.Infinite && h.released > w.version+kintsugi.Step(pace.Staleness) {
		h.core.HandleTicket(h.clock(), t)
		h.read(slot, h.released)
		return
	}
	if pace.Staleness == 0 {
		h.compute(slot)
	}
	t.Loss = w.loss
	for _, v := range w.grads {
		t.SquaredNorm += float64(v) * float64(v)
	}
	if math.IsNaN(t.SquaredNorm) || math.IsInf(t.SquaredNorm, 0) {
		h.err = fmt.Errorf("%w: gradient of worker/%d version %d; lower the learning rate", kintsugi.ErrNotFinite, slot, w.version)
		return
	}
	t.Views = []kintsugi.ViewNumber{1}
	w.pushed[id] = w.grads
	h.core.HandleTicket(h.clock(), t)
	if !w.working && h.credit(w) {
		h.read(slot, h.released)
	}
}
