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

// Gradient computes the gradient of one batch. params and grads have Layout.Values values. Gradient
// overwrites grads and must not change params. The result is a pure function of params, id.Slot,
// id.Version and id.Sequence. It returns the mean loss over the batch at params, and the number of
// examples in the batch, at least one. When ctx ends, the gradient is no longer needed: Gradient
// may then return early, with any error.
type Gradient func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (loss float64, examples int, err error)

// Config configures Run. All fields without a stated default are required.
type Config struct {
	Slot        kintsugi.Slot
	Incarnation kintsugi.Incarnation
	Layout      *kintsugi.Layout
	Device      kernels.Device // computes norms and looks for NaN and Inf
	Gradient    Gradient

	// Layers, if set, lets Gradient announce which values of an unfinished gradient are final, so
	// that they are pushed at once, and which parameters it needs next, so that it can begin before
	// all have arrived. Default: a gradient begins when all parameters are here, and is pushed when
	// it is finished.
	Layers *Layers

	// InPlace, if set, is memory in which Gradient uses parameters and leaves gradients without a
	// copy. It cannot be combined with Pace.Continue, kintsugi.Wait or Pace.Along, which read
	// parameters or look at gradients while Gradient may use that memory.
	InPlace *InPlace

	// Reconcile, if set, is called on a line that begins with a partial restore, before the first
	// call of Gradient on that line. lost are the chunks that may have come back with the values of
	// earlier versions. An algorithm that can repair them does so in its next step. Reconcile is
	// not called in a worker that did not see the line before: it cannot know which chunks were
	// lost.
	Reconcile func(lost []kintsugi.ChunkRange)

	// Codec encodes gradients. nil or fp32: they are sent as float32, from the memory they were
	// computed in. What a lossy codec leaves out is added to later gradients (see package
	// compress). Seed is the seed of the run; codecs that draw random numbers derive them from it.
	Codec compress.Codec
	Seed  uint64

	// Encoded, if set, computes and encodes gradients in place of Gradient. Codec must then be the
	// codec that Encoded uses. Encoded cannot be combined with Pace.Along or Pace.Continue, which
	// look at the unencoded gradient.
	Encoded Encoded

	// TLS, if set, is what this worker and the servers prove their identity with. Default: plain
	// TCP connections, without authentication.
	TLS *mtls.Credentials

	// Window is the flow-control window of a stream of parameters: how many bytes may be under way
	// before this worker has read them. Default: gRPC chooses it. See transport.DefaultWindow.
	Window int

	// Wire selects messages or shared memory for gradients and parameters. Default: WireAuto.
	Wire Wire

	// Pull selects the form in which parameters are read. Default: PullFP32.
	Pull PullForm

	// Pace says how the worker keeps in step with the run. The zero value means synchronous steps
	// without Prefetch.
	Pace kintsugi.Pace

	// Leave, if set, is closed when this process is about to go. The worker then finishes its
	// current gradient, waits for the fate of its pushes, and says goodbye, so that nobody waits
	// for it. Run returns ErrLeft.
	Leave <-chan struct{}

	// Rate returns how far one unit of gradient moves the parameters, in the long run, in the step
	// that follows version. It is required with kintsugi.KeepLocal.
	Rate func(version kintsugi.Step) float64

	// Slow returns a factor by which the time of a gradient is multiplied, for experiments with
	// stragglers. Default: 1.
	Slow func() float64

	// AtLeast is the least time that a gradient takes, for experiments that imitate slower
	// machines. Default: 0.
	AtLeast time.Duration

	// Enter, if set, is called with every state that the worker enters, before the worker goes on,
	// so that a test can end the process there. Several goroutines may call it at the same time.
	Enter func(State)

	Log *slog.Logger // nil: slog.Default
}

// Encoded is a source of gradients that encodes them where it computes them, and that keeps the
// residual itself: see compress.Feedback. Only one goroutine calls its methods, except Payload.
type Encoded interface {
	// Gradient does the same as Config.Gradient, but keeps the gradient in encoded form. The
	// gradient is finite. If it returns an error, the push is treated as dropped.
	Gradient(ctx context.Context, params []float32, id kintsugi.PushID) (loss float64, examples int, err error)

	// Payload returns the payload of a chunk of the last gradient, and the squared norm of the
	// decoded payload. The payload is valid until the next call of Gradient. Several goroutines may
	// call Payload at the same time.
	Payload(chunk kintsugi.ChunkID) (payload []byte, squaredNorm float64)

	Counted(id kintsugi.PushID)
	Dropped(id kintsugi.PushID)
	Drop() (norm float64)
}

const (
	retryAfter = 50 * time.Millisecond // between two tries to enter the same view
	retryLimit = 2 * time.Second       // the pause doubles up to this
	warnAfter  = 5 * time.Second       // warn after this long without success
)

// ErrLeft means that the worker was asked to leave and has left.
var ErrLeft = errors.New("left, as it was asked to")

// InPlace is memory that the code behind Gradient shares.
type InPlace struct {
	// Params has Layout.Values values. The worker reads versions into it and passes it to Gradient.
	Params []float32

	// Grads has as many. Gradients that are encoded before they are sent are read there: the worker
	// passes it to Gradient if it has a Codec. A call of Gradient that was given up may go on writing
	// to it.
	Grads []float32

	// Touched, if set, has a byte for each kernels.Spot values of Grads. Where it is 0 after a call of
	// Gradient, they are all +0, and the codec sparse does not look at them.
	Touched []byte

	// Settle is called before Params are written. It waits until a call of Gradient that was given up
	// no longer reads them. An error other than that of ctx ends the worker, as one of Gradient does.
	Settle func(ctx context.Context) error
}

// Run works until the run is over, and then returns nil. It returns ErrLeft after Config.Leave, the
// error of ctx when that ends, and any error that another try would meet again: another model, a
// gradient that is not finite, or a newer life of this slot. After other errors it connects again.
// views yields each new view; Run takes the newest. Run calls Gradient from one goroutine at a
// time.
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
	w := newWorker(cfg)
	defer w.peers.close()
	defer func() { _ = w.outage.end() }() // the worker ends, and its kept gradients are lost with it
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
			if !told && time.Since(tried) >= warnAfter { // nobody else can report what keeps this worker from a server
				level, told = slog.LevelWarn, true
			}
			cfg.Log.Log(ctx, level, "session ended: trying on", "view", view.Number, "err", err, "again_in", pause)
			retry = time.After(pause)
			pause = min(2*pause, retryLimit)
		}
	}
}

// newWorker returns a worker in no view. cfg has its defaults.
func newWorker(cfg Config) *worker {
	w := &worker{cfg: cfg, peers: newPeers(cfg.TLS, cfg.Window)}
	if cfg.InPlace != nil {
		w.params = cfg.InPlace.Params
	} else {
		w.params = make([]float32, cfg.Layout.Values)
	}
	if cfg.InPlace != nil && cfg.Codec != nil {
		w.own, w.lent = cfg.InPlace.Grads, true
	} else {
		w.own = make([]float32, cfg.Layout.Values)
	}
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
	return w
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

// worker is the state of a worker that outlives a session.
type worker struct {
	cfg    Config
	params []float32
	grads  []float32    // own, or a room of the session (see rooms)
	own    []float32    // only this worker reads it, except that gRPC may still be sending from it
	lent   bool         // own is that of Config.InPlace, from which nothing is sent
	used   used         // rooms of an earlier session
	peers  *peers       // connections, for one session after the other
	memory *shm.Segment // holds grads and must stay mapped as long as grads is used; nil: grads is ordinary memory
	ahead  ahead        // parameters that are fetched while a gradient is computed; Pace.Busy == kintsugi.Wait

	at *kintsugi.PushID // the gradient on params that is being computed or comes next; nil: params were never whole
	// The newest gradient whose push began, in any session. No other gradient may take the id of it
	// or of an earlier one.
	out kintsugi.PushID
	// The newest gradient that a conductor was told of, in any session. It and earlier ones are not
	// kept in an outage.
	told   kintsugi.PushID
	spare  []float32        // Pace.Continue: parameters are read into it, so that params stay whole if the read breaks
	ready  *kintsugi.Ticket // of a gradient that is already computed, in grads; nil: there is none
	outage outage

	view     kintsugi.View // of the last session that has read a version; Line 0: none
	lines    kept.Lines    // Pace.Continue with kintsugi.KeepLocal: the lines that a path may have to be carried over to
	worked   bool          // the session has completed a turn, so the pause after its end is short
	unshared int           // number of consecutive sessions that failed to share memory although they must
	encoder  *encoder      // nil: gradients travel as float32
	along    *along        // nil: not measured
}

// follow works in one view until the run is over (errDone), the session breaks, or another view
// comes. It returns that other view as next.
func (w *worker) follow(ctx context.Context, view kintsugi.View, views <-chan kintsugi.View) (next *kintsugi.View, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.session(ctx, view) }()
	var came []kintsugi.View
	for {
		select {
		case err := <-ended:
			for _, v := range came { // only now: the session's goroutine uses the worker until it ends
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

// session joins the run in the given view and works until an error. It never returns nil.
func (w *worker) session(ctx context.Context, view kintsugi.View) error {
	w.worked = false
	s, err := connect(ctx, &w.cfg, view, w.used.before(view.Number), w.peers)
	if err != nil {
		return err
	}
	mine := false // false until the outage is over: its goroutine uses the parameters and the gradient
	defer func() {
		s.close()
		s.receiving.Wait()
		_ = s.arriving.wait() // its goroutines write the parameters
		if s.out != nil {
			w.dropped(s.out.id) // it was not finished, so no head has all of it
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
	w.used.use(s.rooms, view.Number)
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
		w.comes(id) // also before it leaves: if the session breaks then, an outage goes on from here
		if w.leaving() {
			return w.sayGoodbye(s)
		}
		if id, err = w.turn(s, id); err != nil {
			return err
		}
		w.worked = true
	}
}

// leaving reports whether this worker was asked to leave.
func (w *worker) leaving() bool {
	select {
	case <-w.cfg.Leave: // a nil channel never delivers
		return true
	default:
		return false
	}
}

// goodbyeTime is how long the worker waits for the answer to its goodbye. After that it goes
// anyway.
const goodbyeTime = time.Second

// sayGoodbye waits for the fate of all open pushes, closes the stream to the conductor, and returns
// ErrLeft.
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

// enter notes the view of a session. If shards were lost since the view before, it calls
// Config.Reconcile.
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

// comes notes which gradient comes next on the current parameters.
func (w *worker) comes(id kintsugi.PushID) { w.at = &id }

// goesOut notes that a head may have bytes of a gradient from now on, and accepts no other bytes
// for its id.
func (w *worker) goesOut(id kintsugi.PushID) {
	if w.out.Line != id.Line || id.Compare(w.out) > 0 {
		w.out = id
	}
}

// wentOut reports whether a head may have bytes of a gradient.
func (w *worker) wentOut(id kintsugi.PushID) bool {
	return w.out.Line == id.Line && w.out.Version == id.Version && id.Compare(w.out) <= 0
}

// land reads a version of at least atLeast. The first read of a session ends the outage, but only
// when it has succeeded.
func (w *worker) land(s *session, atLeast kintsugi.Step) (kintsugi.Step, error) {
	if p := w.cfg.InPlace; p != nil {
		if err := p.Settle(s.ctx); err != nil {
			return 0, s.cause(fmt.Errorf("%w: %w", errGradient, err))
		}
	}
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

// finite returns an error that names the tensor if a gradient contains NaN or Inf.
func (c *Config) finite(id kintsugi.PushID, grads []float32) error {
	i, err := c.Device.Finite(grads)
	if err != nil {
		return fmt.Errorf("%w of %v: scan: %w", errGradient, id, err)
	}
	if i >= 0 {
		return fmt.Errorf("%w: gradient of %v: tensor %s holds %v; lower the learning rate or look at the data",
			kintsugi.ErrNotFinite, id, c.Layout.TensorAt(i), grads[i])
	}
	return nil
}

// straggle waits until a gradient that took d has taken as long as the experiment asks for: max(d,
// AtLeast) times Slow.
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
