package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Layers connects the layers of a model that Config.Gradient computes with the wire, so that a
// gradient is pushed while the rest of it is computed, and begins while the parameters of later
// layers are on their way. What computes the model calls its methods, from the goroutine that
// called Gradient. It is given to one worker.
type Layers struct {
	// Waits says that Need is called for whatever is read of the parameters, before it is. Else
	// Gradient is called when all are here.
	Waits bool

	ready, need func(lo, hi int)
}

// Need waits until values [lo, hi) of the parameters are here. When they will never be, the context of Gradient ends.
func (l *Layers) Need(lo, hi int) {
	if l.need != nil {
		l.need(lo, hi)
	}
}

// Ready says that values [lo, hi) of the gradient are final. Values that it does not name are final
// when Gradient returns.
func (l *Layers) Ready(lo, hi int) {
	if l.ready != nil {
		l.ready(lo, hi)
	}
}

// outgoing is a push on its way to every head. Its frames go out from the last to the first, which
// is how a gradient's values become final.
type outgoing struct {
	id    kintsugi.PushID
	grads []float32
	frame func(i, j int, x *shardStreams) error // sends frame j of shard i
	left  []int                                 // by shard: how many frames are not sent, the first ones
	norms []float64                             // by chunk, the squared norm of what is sent, which is finite; nil: frame looks at that itself, or nobody has to
	final int                                   // values from here on are final
	err   error                                 // why no more is sent
}

func newOutgoing(s *session, id kintsugi.PushID, grads []float32, frame func(i, j int, x *shardStreams) error) *outgoing {
	o := &outgoing{id: id, grads: grads, frame: frame, final: len(grads)}
	for _, x := range s.shards {
		o.left = append(o.left, len(x.pushes))
	}
	return o
}

// shard sends the frames of shard i that begin at value from or behind.
func (o *outgoing) shard(s *session, i, from int) error {
	x := s.shards[i]
	for o.left[i] > 0 {
		j := o.left[i] - 1
		if lo, _ := s.cfg.Layout.Span(x.pushes[j]); lo < from {
			return nil
		}
		if err := o.frame(i, j, x); err != nil {
			return err
		}
		o.left[i] = j
	}
	return nil
}

// begun reports whether a frame of shard i is sent.
func (o *outgoing) begun(s *session, i int) bool { return o.left[i] < len(s.shards[i].pushes) }

// flows reports whether gradients are pushed as they become final. Small ones are not: to wake a
// server early costs more than there is to hide. With a codec and more than one open push they are
// not, either: what is left out of a gradient that is given up half way would depend on what was
// heard of the others meanwhile.
func (w *worker) flows(s *session) bool {
	return w.cfg.Layers != nil && w.cfg.Encoded == nil && large(s.shards) && (w.encoder == nil || w.cfg.Pace.Credit == 1)
}

// begins reports whether gradients begin before all parameters have come. Where something else than
// Gradient reads them they do not.
func (w *worker) begins(s *session) bool {
	return w.cfg.Layers != nil && w.cfg.Layers.Waits && w.cfg.Encoded == nil && w.spare == nil && w.along == nil && w.cfg.Pull != PullDelta && large(s.shards)
}

// start has what is computed next be pushed as it becomes final.
func (w *worker) start(s *session, id kintsugi.PushID) (stop func()) {
	s.out = w.outgoing(s, kintsugi.Ticket{Push: id}, w.grads)
	w.cfg.Layers.ready = func(lo, hi int) { w.flow(s, lo, hi) }
	return func() { w.cfg.Layers.ready = nil }
}

// flow pushes what has become final. Values that are not next to those before wait for those between.
func (w *worker) flow(s *session, lo, hi int) {
	o := s.out
	if hi < o.final || lo >= o.final || o.err != nil || s.ctx.Err() != nil {
		return
	}
	start := time.Now()
	defer func() { s.round.spans.Hidden += time.Since(start) }()
	if o.norms == nil {
		if at, err := w.cfg.Device.Finite(w.grads[lo:o.final]); err != nil || at >= 0 {
			return // whoever looks at the whole gradient says so
		}
	}
	o.final = lo
	for i := range s.shards {
		err := o.shard(s, i, o.final)
		if o.begun(s, i) {
			w.goesOut(o.id)
		}
		if err != nil {
			if !errors.Is(err, kintsugi.ErrNotFinite) { // which is said when it is pushed, unless it is given up before
				o.err = err
			}
			return
		}
	}
}

// give gives a push up of which frames may be sent. A head holds those until they cannot be counted
// any more. Where it reads them from the worker's memory the push is brought to its end first: its
// answer says that the memory is not read any more.
func (w *worker) give(s *session, id kintsugi.PushID) error {
	o := s.out
	if s.out = nil; o == nil || o.id != id {
		return nil
	}
	if o.err != nil {
		return s.cause(o.err)
	}
	o.norms = nil
	for i, x := range s.shards {
		if !o.begun(s, i) || x.memory == nil {
			continue
		}
		if err := o.shard(s, i, 0); err != nil {
			return s.cause(err)
		}
		if _, err := s.answer(x, id); err != nil {
			return err
		}
	}
	w.dropped(id)
	return nil
}

// deliver sends what is left of a push and waits until each head has received or refused it. A
// refusal by any of them is returned: the push will never be counted.
func (s *session) deliver(o *outgoing) (*kintsugi.Refused, error) {
	if o.err == nil {
		o.err = each(s.shards, large(s.shards), func(i int, x *shardStreams) error {
			x.encoding, x.sending = 0, 0
			return o.shard(s, i, 0)
		})
	}
	if o.err != nil {
		return nil, s.cause(o.err)
	}
	for _, x := range s.shards {
		s.round.spans.Encode = max(s.round.spans.Encode, x.encoding)
		s.round.spans.Send = max(s.round.spans.Send, x.sending)
	}
	var refused *kintsugi.Refused
	for _, x := range s.shards { // they answer at about the same time
		r, err := s.answer(x, o.id)
		if err != nil {
			return nil, err
		}
		if r != nil {
			refused = r
		}
	}
	return refused, nil
}

// answer waits until the head of a shard has received a push, or refused it.
func (s *session) answer(x *shardStreams, id kintsugi.PushID) (*kintsugi.Refused, error) {
	for {
		m, err := x.push.Recv()
		if err != nil {
			return nil, s.cause(fmt.Errorf("push %v to shard %d: %w", id, x.id, err))
		}
		switch m := m.(type) {
		case kintsugi.Received:
			if m.Push == id {
				return nil, nil
			}
		case kintsugi.Refused:
			if m.Push == id {
				return &m, nil
			}
		}
	}
}

// unsent returns why a frame could not be sent to a shard.
func (x *shardStreams) unsent(id kintsugi.PushID, err error) error {
	for status := error(nil); status == nil; { // past the answers that came before the end
		if _, status = x.push.Recv(); status != nil {
			err = status
		}
	}
	return fmt.Errorf("push %v to shard %d: %w", id, x.id, err)
}
