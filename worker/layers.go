package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Layers connects the layers of the model that Config.Gradient computes with the network. A
// gradient is then pushed while the rest of it is computed, and it begins while the parameters of
// later layers are still arriving. The code that computes the model calls Need and Ready, from the
// goroutine that called Gradient. A Layers belongs to one worker.
type Layers struct {
	// Waits promises that Need is called for all parameters before they are read. Without this
	// promise, Gradient is called only when all parameters are here.
	Waits bool

	ready, need func(lo, hi int)
}

// Need waits until values [lo, hi) of the parameters are here. If they will never come, the context
// of Gradient ends.
func (l *Layers) Need(lo, hi int) {
	if l.need != nil {
		l.need(lo, hi)
	}
}

// Ready says that values [lo, hi) of the gradient are final. Values that are never named are final
// when Gradient returns.
func (l *Layers) Ready(lo, hi int) {
	if l.ready != nil {
		l.ready(lo, hi)
	}
}

// outgoing is a push that is being sent to every head. Its frames are sent from the last to the
// first, as the values of a gradient become final in that order.
type outgoing struct {
	id    kintsugi.PushID
	grads []float32
	frame func(i, j int, x *shardStreams) error // sends frame j of shard i
	left  []int                                 // by shard: number of frames that are not sent yet; these are the first ones
	// By chunk: the squared norm of the values sent, which is finite. nil: frame checks that
	// itself, or no check is needed.
	norms []float64
	final int   // values from this index on are final
	err   error // why sending has stopped
}

func newOutgoing(s *session, id kintsugi.PushID, grads []float32, frame func(i, j int, x *shardStreams) error) *outgoing {
	o := &outgoing{id: id, grads: grads, frame: frame, final: len(grads)}
	for _, x := range s.shards {
		o.left = append(o.left, len(x.pushes))
	}
	return o
}

// shard sends those unsent frames of shard i that begin at value from or after it.
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

// begun reports whether a frame of shard i has been sent.
func (o *outgoing) begun(s *session, i int) bool { return o.left[i] < len(s.shards[i].pushes) }

// flows reports whether gradients are pushed while they are computed. Small ones are not: waking a
// server early costs more time than the overlap saves. With a codec, they are only if there is at
// most one open push: otherwise the residual of a gradient that is given up half way would depend
// on which fates of the other pushes were known by then.
func (w *worker) flows(s *session) bool {
	return w.cfg.Layers != nil && w.cfg.Encoded == nil && large(s.shards) && (w.encoder == nil || w.cfg.Pace.Credit == 1)
}

// begins reports whether gradients begin before all parameters are here. They do not if anything
// but Gradient reads the parameters.
func (w *worker) begins(s *session) bool {
	return w.cfg.Layers != nil && w.cfg.Layers.Waits && w.cfg.Encoded == nil && w.spare == nil && w.along == nil && w.cfg.Pull != PullDelta && large(s.shards)
}

// start arranges that the next gradient is pushed while it is computed. stop ends that.
func (w *worker) start(s *session, id kintsugi.PushID) (stop func()) {
	s.out = w.outgoing(s, kintsugi.Ticket{Push: id}, w.grads)
	w.cfg.Layers.ready = func(lo, hi int) { w.flow(s, lo, hi) }
	return func() { w.cfg.Layers.ready = nil }
}

// flow pushes values that have become final. Values that do not adjoin the final ones wait for
// those between.
func (w *worker) flow(s *session, lo, hi int) {
	o := s.out
	if hi < o.final || lo >= o.final || o.err != nil || s.ctx.Err() != nil {
		return
	}
	start := time.Now()
	defer func() { s.round.spans.Hidden += time.Since(start) }()
	if w.encoder != nil && !w.cfg.Codec.Exact() {
		if at, err := w.cfg.Device.Finite(w.grads[lo:o.final]); err != nil || at >= 0 {
			return // the check of the whole gradient reports it
		}
	}
	o.final = lo
	for i := range s.shards {
		err := o.shard(s, i, o.final)
		if o.begun(s, i) {
			w.goesOut(o.id)
		}
		if err != nil {
			if !errors.Is(err, kintsugi.ErrNotFinite) { // reported when the push is completed, unless the gradient is given up before
				o.err = err
			}
			return
		}
	}
}

// give abandons a push of which frames may have been sent. A head holds such frames until they can
// no longer be counted. If a head reads the frames from the worker's memory, give completes the
// push to that head first: the answer says that the head no longer reads this memory.
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

// deliver sends the rest of a push and waits until each head has received or refused it. If any
// head refuses it, deliver returns the refusal: the push will never be counted.
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

// answer waits until the head of a shard has received or refused a push.
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

// unsent returns the reason why a frame could not be sent to a shard.
func (x *shardStreams) unsent(id kintsugi.PushID, err error) error {
	for status := error(nil); status == nil; { // skip the answers before the end of the stream
		if _, status = x.push.Recv(); status != nil {
			err = status
		}
	}
	return fmt.Errorf("push %v to shard %d: %w", id, x.id, err)
}
