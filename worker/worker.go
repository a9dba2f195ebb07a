package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/worker/kept"
)

// Gradient computes gradients. params and grads have Layout.Values values; grads is overwritten and
// params is not changed. The result is a pure function of params and id.Slot, id.Version and
// id.Sequence. Gradient returns the mean loss over the batch, before the step, and the number of examples,
// at least one. When ctx ends, nobody waits for the gradient any more: it may return early, with any error.
type Gradient func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (loss float64, examples int, err error)

// Config is what a worker must know. All fields but those with a default are required.
type Config struct {
	Slot        kintsugi.Slot
	Incarnation kintsugi.Incarnation
	Layout      *kintsugi.Layout
	Device      kernels.Device // norms and scans
	Gradient    Gradient

	// Layers, if set, is told by Gradient what is final of a gradient that it has not finished; it is pushed at once. Default: a gradient is pushed
	// when it is finished.
	Layers *Layers

	// Reconcile, if set, is told on a line that begins with a partial restore which chunks may have come back as of
	// earlier versions, before Gradient is called for the first time on that line: an algorithm that can make them good does so in its next
	// step. A worker that was not there before the loss cannot know, and is told nothing.
	Reconcile func(lost []kintsugi.ChunkRange)

	// Codec is how gradients travel; nil, or fp32: from the memory they were computed in. What a lossy one
	// leaves out is added to later gradients, see package compress. Seed is that of the run: codecs that draw
	// random numbers repeat with it.
	Codec compress.Codec
	Seed  uint64

	// Wire is how gradients and parameters travel. Default: WireAuto.
	Wire Wire

	// Pace is how the worker keeps in step with the run. The zero value is that of synchronous steps, without
	// Prefetch.
	Pace kintsugi.Pace

	// Slow multiplies the time a gradient takes, for experiments with stragglers. Default: 1.
	Slow func() float64

	// Enter, if set, is told by whoever enters a state, before it goes on, so that a test can end the
	// process there. It may be called from several goroutines at once.
	Enter func(State)

	Log *slog.Logger // nil: slog.Default
}

const (
	retryAfter = 50 * time.Millisecond // between two tries to enter the same view
	retryLimit = 2 * time.Second       // the pause grows up to this
)

// Run works until the run is over, which returns nil, or ctx ends, or an error that another try would
// meet again: another model, a gradient that is not finite, a newer life of this slot.
func Run(ctx context.Context, cfg Config, views <-chan kintsugi.View) error {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Enter == nil {
		cfg.Enter = func(State) {}
	}
	cfg.Pace.Credit = max(1, cfg.Pace.Credit)
	if cfg.Slow == nil {
		cfg.Slow = func() float64 { return 1 }
	}
	if cfg.Codec != nil && cfg.Codec.Name() == "fp32" {
		cfg.Codec = nil
	}
	w := &worker{cfg: cfg, params: make([]float32, cfg.Layout.Values), grads: make([]float32, cfg.Layout.Values)}
	if cfg.Codec != nil {
		w.encoder = newEncoder(&w.cfg)
		w.along = newAlong(cfg.Codec, cfg.Pace, cfg.Layout.Values)
		w.encoder.along = w.along != nil
	}
	if cfg.Pace.Continue {
		w.spare = make([]float32, cfg.Layout.Values)
		w.outage.queue = kept.New(kept.Config{Rule: cfg.Pace.Keep, Values: cfg.Layout.Values, Most: keptArrays})
	}
	defer func() { _ = w.outage.end() }() // the worker ends: what it kept is lost with it
	var view kintsugi.View
	pause := retryAfter
	retry := make(<-chan time.Time) // nothing to retry before the first view
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case v, ok := <-views:
			if !ok {
				return errors.New("the watch of views has ended")
			}
			view, pause = v, retryAfter
		case <-retry:
		}
		next, err := w.follow(ctx, view, views)
		if next == nil && broken(ctx, err) {
			w.outage.begin(ctx, w)
		}
		switch {
		case errors.Is(err, errDone):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case fatal(err):
			return err
		case next != nil:
			cfg.Log.Debug("view replaced", "view", next.Number)
			view, pause, retry = *next, retryAfter, immediately()
		default:
			if w.worked {
				pause = retryAfter
			}
			cfg.Log.Debug("session ended", "view", view.Number, "err", err, "again_in", pause)
			retry = time.After(pause)
			pause = min(2*pause, retryLimit)
		}
	}
}

func immediately() <-chan time.Time {
	c := make(chan time.Time, 1)
	c <- time.Time{}
	return c
}

// fatal reports whether a worker that tries again would meet err again.
func fatal(err error) bool {
	for _, f := range []error{kintsugi.ErrOtherModel, kintsugi.ErrNotFinite, kintsugi.ErrFenced, kintsugi.ErrUsage, errGradient} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

var errGradient = errors.New("gradient")

// worker is what outlives a session.
type worker struct {
	cfg    Config
	params []float32
	grads  []float32
	ahead  ahead // parameters that are fetched while a gradient is computed; Pace.Busy == kintsugi.Wait

	at     *kintsugi.PushID // the gradient on params that comes next, or is under way; nil: params were never whole
	sent   bool             // some of its bytes may have gone out; its ticket has not
	spare  []float32        // Pace.Continue: where parameters are read, so that those before stay whole if that breaks
	ready  *kintsugi.Ticket // of a gradient that is computed and lies in grads; nil: there is none
	outage outage

	view    kintsugi.View // of the last session that has read a version; Line 0: none
	worked  bool          // the session has done a turn: its end is no reason to pause for long
	encoder *encoder      // nil: gradients travel as float32
	along   *along        // nil: nobody asks
}

// follow works in one view until the run is over (errDone), the session breaks or another view comes,
// which it returns.
func (w *worker) follow(ctx context.Context, view kintsugi.View, views <-chan kintsugi.View) (next *kintsugi.View, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.session(ctx, view) }()
	for {
		select {
		case err := <-ended:
			return next, err
		case v, ok := <-views:
			if !ok {
				views = nil
				continue
			}
			next = &v
			cancel() // the session ends as soon as its gradient does
		}
	}
}

// session joins the run as view describes it and works. It never returns nil.
func (w *worker) session(ctx context.Context, view kintsugi.View) error {
	w.worked = false
	s, err := connect(ctx, &w.cfg, view)
	if err != nil {
		return err
	}
	mine := false // until an outage is over its goroutine has the parameters and the gradient
	defer func() {
		s.close()
		if s.out != nil {
			w.dropped(s.out.id) // it was not finished, so no message of it is whole
		}
		if mine {
			w.renew(s)
			w.ready = nil
		}
		w.settle(s, 0)
	}()
	version, err := s.join(w.hello(view.Line))
	if err != nil {
		return err
	}
	if version, err = w.begin(s, version); err != nil {
		return err
	}
	mine = true
	w.enter(view)
	w.cfg.Log.Info("working", "view", view.Number, "line", view.Line, "version", version)
	id := kintsugi.PushID{Line: view.Line, Slot: w.cfg.Slot, Incarnation: w.cfg.Incarnation, Version: version}
	if id, err = w.resume(s, id); err != nil {
		return err
	}
	w.comes(id)
	if id, err = w.offer(s, id); err != nil {
		return err
	}
	for {
		w.comes(id)
		if id, err = w.turn(s, id); err != nil {
			return err
		}
		w.worked = true
	}
}

// enter notes the view of a session, and has what was lost since the one before reconciled.
func (w *worker) enter(v kintsugi.View) {
	before := w.view
	w.view = v
	if w.cfg.Reconcile == nil || v.Keeps == 0 || before.Line == 0 || before.Line == v.Line {
		return
	}
	var lost []kintsugi.ChunkRange
	for i, chunks := range w.cfg.Layout.Split(len(v.Chains)) {
		now := v.Head(kintsugi.ShardID(i))
		if then := before.Head(kintsugi.ShardID(i)); then.Server != now.Server || then.Incarnation != now.Incarnation {
			lost = append(lost, chunks)
		}
	}
	w.cfg.Reconcile(lost)
}

// comes notes which gradient comes next on the parameters that are here.
func (w *worker) comes(id kintsugi.PushID) { w.at, w.sent = &id, false }

// begin ends an outage as soon as a version of at least atLeast is here.
func (w *worker) begin(s *session, atLeast kintsugi.Step) (kintsugi.Step, error) {
	if w.spare == nil {
		return s.read(w.params, atLeast)
	}
	version, err := s.read(w.spare, atLeast)
	if err == nil {
		err = w.outage.end()
		w.params, w.spare = w.spare, w.params
	}
	return version, err
}

// land reads a version of at least atLeast.
func (w *worker) land(s *session, atLeast kintsugi.Step) (kintsugi.Step, error) {
	if w.spare == nil {
		return s.read(w.params, atLeast)
	}
	version, err := s.read(w.spare, atLeast)
	if err == nil {
		w.params, w.spare = w.spare, w.params
	}
	return version, err
}

// renew takes another gradient array if gRPC may still be sending from this one. Between turns that is
// rare: whoever has received the bytes was sent them.
func (w *worker) renew(s *session) {
	if !s.idle() {
		w.grads = make([]float32, len(w.grads))
	}
}

// finite returns an error that names the tensor if the gradient holds NaN or Inf: it must not leave the
// worker, and since it is a pure function of what the worker has, computing it again does not help.
func (w *worker) finite(id kintsugi.PushID) error {
	i, err := w.cfg.Device.Finite(w.grads)
	if err != nil {
		return fmt.Errorf("%w of %v: scan: %w", errGradient, id, err)
	}
	if i >= 0 {
		return fmt.Errorf("%w: gradient of %v: tensor %s holds %v; lower the learning rate or look at the data",
			kintsugi.ErrNotFinite, id, w.cfg.Layout.TensorAt(i), w.grads[i])
	}
	return nil
}

// straggle makes a gradient that took d take Slow times as long.
func (w *worker) straggle(ctx context.Context, d time.Duration) error {
	factor := w.cfg.Slow()
	if factor <= 1 {
		return nil
	}
	select {
	case <-time.After(time.Duration(float64(d) * (factor - 1))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
