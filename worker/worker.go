package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
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

	// Layers, if set, is told by Gradient what is final of a gradient that it has not finished,
	// which is pushed at once, and what it needs next of parameters that have not all come.
	// Default: a gradient begins when all have come, and is pushed when it is finished.
	Layers *Layers

	// Reconcile, if set, is told on a line that begins with a partial restore which chunks may have
	// come back as of earlier versions, before Gradient is called for the first time on that line:
	// an algorithm that can make them good does so in its next step. A worker that was not there
	// before the loss cannot know, and is told nothing.
	Reconcile func(lost []kintsugi.ChunkRange)

	// Codec is how gradients travel; nil, or fp32: from the memory they were computed in. What a lossy one
	// leaves out is added to later gradients, see package compress. Seed is that of the run: codecs that draw
	// random numbers repeat with it.
	Codec compress.Codec
	Seed  uint64

	// Encoded, if set, computes and encodes in place of Gradient and Codec, which is the codec that
	// it encodes with. It is not for a Pace with Along or Continue: these look at gradients.
	Encoded Encoded

	// TLS is how this worker and servers prove to each other who they are. Default: they do not,
	// and connections are plain TCP.
	TLS *mtls.Credentials

	// Window is how many bytes of a stream of parameters may be on their way before this worker has
	// read them. Default: gRPC finds out how many. See transport.DefaultWindow.
	Window int

	// Wire is how gradients and parameters travel. Default: WireAuto.
	Wire Wire

	// Pull is what travels of parameters. Default: PullFP32.
	Pull PullForm

	// Pace is how the worker keeps in step with the run. The zero value is that of synchronous steps, without
	// Prefetch.
	Pace kintsugi.Pace

	// Leave, if set, is closed when this process is about to go: the worker ends the gradient that
	// it is at, hears what becomes of it, says good-bye, so that nobody waits for it, and Run
	// returns ErrLeft.
	Leave <-chan struct{}

	// Rate returns by how much a unit of gradient moves the parameters, in the long run, in the
	// step that follows a version. Needed with kintsugi.KeepLocal.
	Rate func(version kintsugi.Step) float64

	// Slow multiplies the time a gradient takes, for experiments with stragglers. Default: 1.
	Slow func() float64

	// AtLeast is how long a gradient takes at least, for experiments that repeat those of slower
	// machines. Default: as long as it takes.
	AtLeast time.Duration

	// Enter, if set, is told by whoever enters a state, before it goes on, so that a test can end the
	// process there. It may be called from several goroutines at once.
	Enter func(State)

	Log *slog.Logger // nil: slog.Default
}

// Encoded is a source of gradients that encodes them where it computes them, and keeps what its codec leaves out: see
// compress.Feedback. Its methods but Payload are called by one goroutine.
type Encoded interface {
	// Gradient is [Config].Gradient, but keeps the gradient, which is finite, encoded. After an
	// error the push is as if it had been dropped.
	Gradient(ctx context.Context, params []float32, id kintsugi.PushID) (loss float64, examples int, err error)

	// Payload returns the payload of a chunk of the last gradient, until the next one, and the
	// squared norm of what it is decoded to. Several goroutines may call it at once.
	Payload(chunk kintsugi.ChunkID) (payload []byte, squaredNorm float64)

	Counted(id kintsugi.PushID)
	Dropped(id kintsugi.PushID)
	Drop() (norm float64)
}

const (
	retryAfter = 50 * time.Millisecond // between two tries to enter the same view
	retryLimit = 2 * time.Second       // the pause grows up to this
	warnAfter  = 5 * time.Second       // of tries in vain
)

// ErrLeft means that a worker was asked to leave, and has.
var ErrLeft = errors.New("left, as it was asked to")

// Run works until the run is over, which returns nil, or it has left (ErrLeft), or ctx ends, or an
// error that another try would meet again: another model, a gradient that is not finite, a newer
// life of this slot.
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
	w := &worker{cfg: cfg, params: make([]float32, cfg.Layout.Values), own: make([]float32, cfg.Layout.Values)}
	w.grads = w.own
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
	pause, tried, told := retryAfter, time.Now(), false
	retry := make(<-chan time.Time) // nothing to retry before the first view
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-cfg.Leave:
			return ErrLeft
		case v, ok := <-views:
			if !ok {
				return errors.New("the watch of views has ended")
			}
			view, pause, tried, told = v, retryAfter, time.Now(), false
			w.see(v)
		case <-retry:
		}
		next, err := w.follow(ctx, view, views)
		err = w.believe(err)
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
			view, pause, tried, told, retry = *next, retryAfter, time.Now(), false, immediately()
		default:
			if w.worked {
				pause, tried, told = retryAfter, time.Now(), false
			}
			level := slog.LevelDebug
			if !told && time.Since(tried) >= warnAfter { // nobody else can say what stands between this worker and a server
				level, told = slog.LevelWarn, true
			}
			cfg.Log.Log(ctx, level, "session ended: trying on", "view", view.Number, "err", err, "again_in", pause)
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
	for _, f := range []error{kintsugi.ErrOtherModel, kintsugi.ErrNotFinite, kintsugi.ErrFenced, kintsugi.ErrUsage, errGradient, ErrLeft} {
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
	grads  []float32    // own, or a room of the session
	own    []float32    // nobody else reads it, but gRPC for a while
	memory *shm.Segment // that grads lie in, which must be reachable as long; nil: none
	ahead  ahead        // parameters that are fetched while a gradient is computed; Pace.Busy == kintsugi.Wait

	at     *kintsugi.PushID // the gradient on params that comes next, or is under way; nil: params were never whole
	out    kintsugi.PushID  // the newest gradient that began to be pushed, in whatever session: of none up to it may others take the place
	told   kintsugi.PushID  // the newest gradient that a conductor was told of, in whatever session: none up to it is kept in an outage
	spare  []float32        // Pace.Continue: where parameters are read, so that those before stay whole if that breaks
	ready  *kintsugi.Ticket // of a gradient that is computed and lies in grads; nil: there is none
	outage outage

	view     kintsugi.View // of the last session that has read a version; Line 0: none
	lines    kept.Lines    // Pace.Continue with kintsugi.KeepLocal: those that a path may have to go on on
	worked   bool          // the session has done a turn: its end is no reason to pause for long
	unshared int           // sessions in a row that could not share memory which they must
	encoder  *encoder      // nil: gradients travel as float32
	along    *along        // nil: nobody asks
}

// follow works in one view until the run is over (errDone), the session breaks or another view comes,
// which it returns.
func (w *worker) follow(ctx context.Context, view kintsugi.View, views <-chan kintsugi.View) (next *kintsugi.View, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.session(ctx, view) }()
	var came []kintsugi.View
	for {
		select {
		case err := <-ended:
			for _, v := range came { // the session has the worker until it ends
				w.see(v)
			}
			return next, err
		case v, ok := <-views:
			if !ok {
				views = nil
				continue
			}
			next, came = &v, append(came, v)
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
		_ = s.arriving.wait() // it writes the parameters
		if s.out != nil {
			w.dropped(s.out.id) // it was not finished, so no message of it is whole
		}
		if mine {
			w.leave(s)
			w.ready = nil
		}
		w.settle(s, 0)
	}()
	version, err := s.join(w.hello(view.Line))
	if err != nil {
		return err
	}
	if version, err = w.land(s, version); err != nil {
		return err
	}
	mine = true
	w.enter(view)
	w.cfg.Log.Info("working", "view", view.Number, "line", view.Line, "version", version)
	id := kintsugi.PushID{Line: view.Line, Slot: w.cfg.Slot, Incarnation: w.cfg.Incarnation, Version: version}
	w.carryOver(id)
	w.comes(w.outage.after(id))
	if id, err = w.resume(s, id); err != nil {
		return err
	}
	id = w.outage.after(id)
	w.comes(id)
	if id, err = w.offer(s, id); err != nil {
		return err
	}
	for {
		w.comes(id) // also if it leaves: should the session break over that, it is on these parameters that it goes on
		if w.leaving() {
			return w.sayGoodbye(s)
		}
		if id, err = w.turn(s, id); err != nil {
			return err
		}
		w.worked = true
	}
}

// leaving reports whether this worker is to leave.
func (w *worker) leaving() bool {
	select {
	case <-w.cfg.Leave: // nil: never
		return true
	default:
		return false
	}
}

// goodbyeTime is how long the conductor has to answer a good-bye: the worker goes anyway, and its stream with it.
const goodbyeTime = time.Second

// sayGoodbye hears what becomes of all that has been pushed, and leaves.
func (w *worker) sayGoodbye(s *session) error {
	if _, err := s.await(1); err != nil {
		return err
	}
	if err := s.work.CloseSend(); err != nil {
		return s.cause(err)
	}
	select {
	case <-s.ctx.Done(): // the conductor has ended the stream
	case <-time.After(goodbyeTime):
	}
	return ErrLeft
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
func (w *worker) comes(id kintsugi.PushID) { w.at = &id }

// goesOut notes that some bytes of a gradient may be with a head from now on, which takes no others for its id.
func (w *worker) goesOut(id kintsugi.PushID) {
	if w.out.Line != id.Line || id.Compare(w.out) > 0 {
		w.out = id
	}
}

// wentOut reports whether some bytes of a gradient may be with a head.
func (w *worker) wentOut(id kintsugi.PushID) bool {
	return w.out.Line == id.Line && w.out.Version == id.Version && id.Compare(w.out) <= 0
}

// land reads a version of at least atLeast. If that is the first of a session it ends the outage,
// as soon as it is here and not before.
func (w *worker) land(s *session, atLeast kintsugi.Step) (kintsugi.Step, error) {
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

// finite returns an error that names the tensor if a gradient holds NaN or Inf.
func (w *worker) finite(id kintsugi.PushID, grads []float32) error {
	i, err := w.cfg.Device.Finite(grads)
	if err != nil {
		return fmt.Errorf("%w of %v: scan: %w", errGradient, id, err)
	}
	if i >= 0 {
		return fmt.Errorf("%w: gradient of %v: tensor %s holds %v; lower the learning rate or look at the data",
			kintsugi.ErrNotFinite, id, w.cfg.Layout.TensorAt(i), grads[i])
	}
	return nil
}

// straggle makes a gradient that took d take as long as the experiment wants: AtLeast, and Slow times that.
func (w *worker) straggle(ctx context.Context, d time.Duration) error {
	long := time.Duration(float64(max(d, w.cfg.AtLeast)) * max(1, w.cfg.Slow()))
	if long <= d {
		return nil
	}
	select {
	case <-time.After(long - d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
