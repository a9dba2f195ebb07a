package worker

import (
	"fmt"
	"math"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/fates"
)

// The pushes of a worker. Without a codec the worker keeps none of them: a gradient that has to be
// sent again is computed again, to the same bits. With a codec the encoder keeps the encoded bytes.

// push sends the rest of the gradient of a ticket to every head, after what was sent while it was
// computed. It waits for the answers and sets the squared norm of the ticket.
func (w *worker) push(s *session, t *kintsugi.Ticket, grads []float32) (*kintsugi.Refused, error) {
	o := s.out
	if s.out = nil; o == nil || o.id != t.Push {
		o = w.outgoing(s, *t, grads)
	}
	if w.encoder != nil {
		return w.encoder.push(s, t, o)
	}
	refused, err := s.deliver(o)
	t.SquaredNorm = 0
	for _, n := range o.norms {
		t.SquaredNorm += n
	}
	return refused, err
}

// outgoing returns a push of a ticket's gradient, with nothing sent yet.
func (w *worker) outgoing(s *session, t kintsugi.Ticket, grads []float32) *outgoing {
	if w.encoder != nil {
		return w.encoder.outgoing(s, t, grads)
	}
	room := s.room(t.Push, grads, w.grads)
	o := newOutgoing(s, t.Push, grads, nil)
	o.norms = make([]float64, len(w.cfg.Layout.Chunks))
	o.frame = func(_, j int, x *shardStreams) error {
		start := time.Now()
		if err := w.measure(o, x.pushes[j]); err != nil {
			return err
		}
		x.encoding += time.Since(start)
		return s.sendValues(x, t.Push, room, j, grads)
	}
	return o
}

// measure computes the squared norms of the chunks of a frame. This also brings the chunks into the
// cache for the checksum. The norms are finite exactly if all values are: a sum of squares of so
// many float32 does not overflow a float64. A gradient that is not finite must not leave the
// worker. Since a gradient is a pure function of what the worker has, computing it again would not
// help.
func (w *worker) measure(o *outgoing, r kintsugi.ChunkRange) error {
	if o.norms == nil {
		return nil
	}
	for i := r.Lo; i < r.Hi; i++ {
		c := w.cfg.Layout.Chunks[i]
		norm, err := w.cfg.Device.SquaredNorm(o.grads[c.Lo:c.Hi])
		if err != nil {
			return fmt.Errorf("%w of %v: norm: %w", errGradient, o.id, err)
		}
		if math.IsNaN(norm) || math.IsInf(norm, 0) {
			return w.cfg.finite(o.id, o.grads)
		}
		o.norms[i] = norm
	}
	return nil
}

// kept returns the ticket of a push that was sent in an earlier session and must be sent again
// unchanged.
func (w *worker) kept(id kintsugi.PushID) (kintsugi.Ticket, bool) {
	if w.encoder != nil {
		if m := w.encoder.open[id]; m != nil {
			return m.ticket, true
		}
	}
	return kintsugi.Ticket{}, false
}

// ask sends the ticket of a push that every head has.
func (w *worker) ask(s *session, t kintsugi.Ticket) error {
	if w.encoder != nil {
		w.encoder.open[t.Push].ticket = t
		w.encoder.book.Ask(t.Push, t.Views[0])
	}
	w.passed(t.Push)
	s.news.expect(t.Push)
	return s.ticket(t)
}

// passed notes that the conductor was told of a gradient. If servers go away now, the next gradient
// comes after it. This one is not offered again, since a conductor that is gone may have counted
// it, and nobody else would know. The same holds if a later session has begun with this gradient
// again, on a version that was still the newest.
func (w *worker) passed(id kintsugi.PushID) {
	if w.told.Line != id.Line || id.Compare(w.told) > 0 {
		w.told = id
	}
	if w.at != nil && *w.at == id {
		id.Sequence++
		w.comes(id)
	}
}

// dropped notes that a push will never be counted: it was not sent completely, or a head has
// refused it and it will not be offered again.
func (w *worker) dropped(id kintsugi.PushID) {
	if w.encoder != nil {
		w.encoder.settle(fates.Fate{Push: id})
	}
}

// settle passes on what the session has heard about pushes to the encoder, before a gradient on
// version begins.
func (w *worker) settle(s *session, version kintsugi.Step) {
	settled, void := s.news.settled()
	if w.encoder == nil {
		return
	}
	for _, f := range settled {
		w.encoder.settle(f)
	}
	for _, id := range void {
		w.encoder.book.Void(id)
	}
	w.encoder.pass(version)
}

// resume asks what became of the pushes of the session before, and returns the id of the next
// gradient. It waits until the worker has credit for that gradient: a worker with a credit of one
// waits for the residual.
func (w *worker) resume(s *session, id kintsugi.PushID) (kintsugi.PushID, error) {
	if w.encoder == nil {
		return id, nil
	}
	pushed := false
	for _, q := range w.encoder.join(s.view, id.Version) {
		t, repeat := w.encoder.open[q.Push].ticket, w.ask
		if q.Send {
			repeat = w.sendAgain
		}
		if err := repeat(s, t); err != nil {
			return id, err
		}
		if q.Send && q.Push.Version == id.Version {
			id, pushed = q.Push, true
		}
	}
	if pushed {
		return w.next(s, id)
	}
	_, err := s.await(w.cfg.Pace.Credit)
	return id, err
}

// sendAgain repeats a push that a conductor was told of, and then its ticket.
func (w *worker) sendAgain(s *session, t kintsugi.Ticket) error {
	refused, err := w.push(s, &t, w.grads)
	switch {
	case err != nil:
		return err
	case refused == nil:
		t.Views = s.views()
	case refused.Step <= t.Push.Version:
		return refusal(*refused)
	default: // the conductor may still know that it was counted
		s.news.reached(refused.Step)
	}
	t.Spans = s.round.end()
	return w.ask(s, t)
}
