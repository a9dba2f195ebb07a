package worker

import (
	"fmt"
	"math"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/fates"
)

// The pushes of a worker. Without a codec nothing is kept of them: a gradient that has to be sent again is
// computed again, to the same bits. With one its encoder keeps the bytes.

// push sends the gradient of a ticket to every head, as far as that has not been done while it was
// computed, and sets the ticket's norm.
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

// outgoing returns the push of a ticket, of which nothing is sent.
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

// measure takes the squared norms of the chunks of a frame, which its checksum then finds in the
// cache. They are finite exactly if all values are: no sum of squares of so many float32 is too
// large for a float64. A gradient that is not finite must not leave the worker, and since it is a
// pure function of what the worker has, computing it again does not help.
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
			return w.finite(o.id, o.grads)
		}
		o.norms[i] = norm
	}
	return nil
}

// kept returns the ticket of a push that was sent in an earlier session and is to be sent again as it is.
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

// passed notes that a gradient is told of: if servers go now, the one after it comes next. It is
// not offered again, for a conductor that is gone may have counted it, and nobody else would know.
// So it is if a session has begun with it once more, on a version that was still the newest.
func (w *worker) passed(id kintsugi.PushID) {
	if w.told.Line != id.Line || id.Compare(w.told) > 0 {
		w.told = id
	}
	if w.at != nil && *w.at == id {
		id.Sequence++
		w.comes(id)
	}
}

// dropped notes that a push will never be counted: it did not go out whole, or a head has refused it and it
// is not offered again.
func (w *worker) dropped(id kintsugi.PushID) {
	if w.encoder != nil {
		w.encoder.settle(fates.Fate{Push: id})
	}
}

// settle takes in what the session has heard of pushes, before a gradient on a version.
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

// resume asks what became of the pushes of the session before, and returns the id of the gradient that comes
// next. It is not begun without the credit for it: a worker with a credit of one waits for the residual.
func (w *worker) resume(s *session, id kintsugi.PushID) (kintsugi.PushID, error) {
	if w.encoder == nil {
		return id, nil
	}
	repeat, again := w.encoder.join(s.view, id.Version)
	for _, t := range repeat {
		if err := w.ask(s, t); err != nil {
			return id, err
		}
	}
	pushed := false
	for _, t := range again {
		if err := w.sendAgain(s, t); err != nil {
			return id, err
		}
		if t.Push.Version == id.Version {
			id, pushed = t.Push, true
		}
	}
	if pushed {
		return w.next(s, id)
	}
	_, err := s.await(w.cfg.Pace.Credit)
	return id, err
}

// sendAgain sends a push again that a conductor was told of, and its ticket.
func (w *worker) sendAgain(s *session, t kintsugi.Ticket) error {
	refused, err := w.push(s, &t, w.grads)
	switch {
	case err != nil:
		return err
	case refused == nil:
		t.Views = s.views()
	case refused.Step <= t.Push.Version:
		return refusal(*refused)
	default: // the conductor may know that it is counted all the same
		s.news.reached(refused.Step)
	}
	t.Spans = s.round.end()
	return w.ask(s, t)
}
