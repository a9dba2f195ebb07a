package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// turn computes the gradient that id names, and pushes it if it can still be counted. It returns
// the id of the next gradient, whose parameters are then in place.
func (w *worker) turn(s *session, id kintsugi.PushID) (kintsugi.PushID, error) {
	if w.ready == nil { // otherwise the gradient is already in the array, and nobody is sending from it
		w.renew(s)
	}
	w.settle(s, id.Version)
	t, again := w.kept(id)
	if r := w.ready; r != nil && r.Push == id && !again {
		t, again = *r, true
	}
	w.ready = nil
	if !again {
		start := time.Now()
		lies := w.along.begin(id, w.params, w.grads)
		var err error
		if t, err = w.compute(s, id, w.flows(s)); err != nil {
			return id, err
		}
		w.along.end(&lies, id, w.params, w.grads, t.Examples > 0)
		t.Along = lies
		if w.tooOld(s, id) {
			if err := w.give(s, id); err != nil {
				return id, err
			}
			return w.throwAway(s, t)
		}
		t.Compute = time.Since(start)
		w.outage.saw(t.Loss)
	}
	start := time.Now()
	w.goesOut(id)
	refused, err := w.push(s, &t, w.grads)
	if err != nil {
		return id, err
	}
	t.Transfer = time.Since(start)
	w.along.sent(w.encoder, id)
	if refused != nil {
		if refused.Step <= id.Version {
			return id, refusal(*refused)
		}
		w.cfg.Log.Debug("push refused", "push", id.String(), "reason", refused.Reason)
		// If an encoder keeps this push, its residual comes back with the first gradient on that
		// version. Until then it may be sent again, as some heads have its bytes.
		s.news.reached(refused.Step)
		return w.throwAway(s, t)
	}
	t.Views, t.Spans = s.views(), s.round.end()
	if err := w.ask(s, t); err != nil {
		return id, err
	}
	return w.next(s, id)
}

// compute computes the gradient that id names into w.grads and returns the beginning of its ticket.
// With flows, the gradient is pushed while it is computed. If newer parameters made the gradient
// useless, compute returns no error and a ticket without examples: the gradient is too old to be
// pushed.
func (w *worker) compute(s *session, id kintsugi.PushID, flows bool) (kintsugi.Ticket, error) {
	start := time.Now()
	t := kintsugi.Ticket{Push: id}
	ctx := s.ctx
	switch limit, bounded := w.useless(id); {
	case w.cfg.Pace.Busy == kintsugi.Interrupt && bounded:
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		s.news.interrupt(limit, cancel)
		defer s.news.interrupt(0, nil)
	case w.cfg.Pace.Busy == kintsugi.Wait:
		if err := s.arrived(); err != nil { // from here on ahead uses the read streams
			return t, err
		}
		w.ahead.begin(s, id.Version)
		defer w.ahead.end()
	}
	if flows {
		defer w.start(s, id)()
	}
	if a := s.arriving; a != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		w.cfg.Layers.need = func(lo, hi int) {
			if !a.need(lo, hi) {
				cancel()
			}
		}
		defer func() { w.cfg.Layers.need = nil }()
	}
	w.cfg.Enter(Computing)
	loss, examples, err := w.gradient(ctx, id)
	if s.ctx.Err() != nil {
		return t, s.cause(err) // a gradient that was given up because nobody needs it is no error
	}
	if err := s.arrived(); err != nil { // a gradient that was given up may not have waited for all parameters
		return t, err
	}
	if ctx.Err() == nil {
		if err != nil {
			return t, fmt.Errorf("%w of %v: %w", errGradient, id, err)
		}
		if w.encoder != nil && w.cfg.Encoded == nil && !w.cfg.Codec.Exact() { // otherwise the code that sends or encodes it checks
			if err := w.cfg.finite(id, w.grads); err != nil {
				return t, err
			}
		}
		_ = w.straggle(ctx, time.Since(start)) // if ctx ends it, the lines below notice
	}
	if s.ctx.Err() != nil {
		return t, s.cause(s.ctx.Err())
	}
	t.Compute = time.Since(start)
	if ctx.Err() == nil {
		t.Loss, t.Examples = loss, uint32(examples)
	}
	return t, nil
}

func (w *worker) gradient(ctx context.Context, id kintsugi.PushID) (loss float64, examples int, err error) {
	if w.cfg.Encoded != nil {
		return w.cfg.Encoded.Gradient(ctx, w.params, id)
	}
	return w.cfg.Gradient(ctx, w.params, w.grads, id)
}

// useless returns the version whose release makes the gradient useless that id names. If none does,
// it returns false.
func (w *worker) useless(id kintsugi.PushID) (kintsugi.Step, bool) {
	return id.Version + kintsugi.Step(w.cfg.Pace.Staleness) + 1, w.cfg.Pace.Staleness != kintsugi.Infinite
}

// tooOld reports whether the gradient that id names is known to be too old to be counted.
func (w *worker) tooOld(s *session, id kintsugi.PushID) bool {
	limit, bounded := w.useless(id)
	return bounded && s.news.look().newest >= limit
}

// throwAway drops a gradient instead of pushing it, and reads the newest parameters. It tells the
// conductor, which counts the gradient as late and advances the worker's clock.
func (w *worker) throwAway(s *session, t kintsugi.Ticket) (kintsugi.PushID, error) {
	t.Views, t.Spans = nil, s.round.end()
	w.passed(t.Push)
	if err := s.ticket(t); err != nil {
		return t.Push, err
	}
	return w.read(s, t.Push, s.news.look().newest)
}

// next waits until the worker has credit for another gradient, and returns its id. That gradient is
// on newer parameters if there are any, and otherwise the next one on the same parameters. id names
// the last gradient.
func (w *worker) next(s *session, id kintsugi.PushID) (kintsugi.PushID, error) {
	if w.cfg.Pace.Prefetch {
		version, err := s.prefetch(id.Version, w.params, w.begins(s))
		return after(id, version), err
	}
	l, err := s.await(w.cfg.Pace.Credit)
	s.round.lap(&s.round.spans.Wait)
	if err != nil {
		return id, err
	}
	if l.newest > id.Version {
		return w.read(s, id, l.newest)
	}
	id.Sequence++
	return id, nil
}

// read gets a version of at least atLeast into w.params and returns the id of the first gradient on
// it.
func (w *worker) read(s *session, id kintsugi.PushID, atLeast kintsugi.Step) (kintsugi.PushID, error) {
	if version, ok := w.ahead.take(atLeast); ok {
		w.params, w.ahead.params = w.ahead.params, w.params
		return after(id, version), nil
	}
	version, err := w.land(s, atLeast)
	s.round.lap(&s.round.spans.Pull)
	return after(id, version), err
}

// after returns the id of the first gradient on a version, by the same worker as id.
func after(id kintsugi.PushID, version kintsugi.Step) kintsugi.PushID {
	id.Version, id.Sequence = version, 0
	return id
}
