package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/kept"
)

// keptArrays is how many gradients a worker keeps beside one another in an outage: so many times
// the memory of the parameters. What comes after them is merged.
const keptArrays = 4

// outage is what a worker does while servers are away, where it goes on: from the end of a session
// to the next one that has joined. Between begin and end its goroutine has the worker's parameters
// and gradient.
type outage struct {
	mu    sync.Mutex  // of queue, while the goroutine runs
	queue *kept.Queue // nil: the worker waits
	stop  context.CancelFunc
	ended chan struct{}
	err   error // why the goroutine gave up; read after it has ended

	newest kintsugi.PushID // gradient that was computed in an outage: what is merged into a push has ids after that of the push
	moved  bool            // the parameters lie at the end of the path that is kept

	usual  float64 // loss of the gradients of turns, a moving average; of none while turns is 0
	spread float64 // by how much one of them is off it, likewise
	turns  int
	recent float64 // loss along the path, a moving average that begins with what is usual
}

// saw notes the loss of the gradient of a turn.
func (o *outage) saw(loss float64) {
	const part = 0.1 // of the newest: about the last ten count
	if o.turns++; o.turns == 1 {
		o.usual = loss
	}
	o.spread += part * (math.Abs(loss-o.usual) - o.spread)
	o.usual += part * (loss - o.usual)
}

// astray notes the loss of the next gradient on a path, and reports whether the path has led to
// where losses are several times what is usual, whatever single batches give: near the end of a
// training a few of them may have nearly all of the loss. With a long rate, where the optimizer's
// momentum is not, a path may leave the slope that it follows; and long before its gradients are no
// numbers any more it is worse than none.
func (o *outage) astray(loss float64) bool {
	const part, times, spreads = 0.3, 4, 10
	o.recent += part * (loss - o.recent)
	return o.turns > 0 && o.recent > o.usual+max((times-1)*math.Abs(o.usual), spreads*o.spread)
}

// after returns the first gradient from id on that no outage has computed: none may count twice, under whatever id.
func (o *outage) after(id kintsugi.PushID) kintsugi.PushID {
	if n := o.newest; n.Line == id.Line && n.Version == id.Version && id.Compare(n) <= 0 {
		id.Sequence = n.Sequence + 1
	}
	return id
}

// begin goes on computing on the parameters that the session before has left, if they are whole,
// until end. The gradient that was under way is computed again; where it may have been pushed it
// stays as it is, for a head may hold it. Others that may be with a head are not computed again: in
// their places heads would have one thing and be offered another.
func (o *outage) begin(ctx context.Context, w *worker) {
	if o.queue == nil || o.stop != nil || w.at == nil {
		return
	}
	ctx, o.stop = context.WithCancel(ctx)
	o.ended = make(chan struct{})
	at := w.untold(o.after(*w.at))
	w.cfg.Log.Info("servers are away: going on with the parameters that are here", "version", at.Version)
	if w.local() {
		o.queue.Along(at, func(g kept.Gradient) {
			w.move(w.params, at, g.Values)
			at = w.unsent(at) // where a path has begun, a gradient is another one
		})
		o.moved = true
	}
	first := w.wentOut(at)
	o.recent = o.usual
	go func() {
		defer close(o.ended)
		for o.err == nil {
			if o.err = w.keep(ctx, at, first); ctx.Err() != nil || errors.Is(o.err, errAstray) {
				o.err = nil // what was given up on the way
				return
			}
			at.Sequence++
			at, first = w.unsent(at), false
		}
	}()
}

// untold returns the first gradient from id on that no conductor was told of.
func (w *worker) untold(id kintsugi.PushID) kintsugi.PushID {
	if t := w.told; t.Line == id.Line && t.Version == id.Version && id.Compare(t) <= 0 {
		id.Sequence = t.Sequence + 1
	}
	return id
}

// unsent returns the first gradient from id on of which no head has anything.
func (w *worker) unsent(id kintsugi.PushID) kintsugi.PushID {
	if w.wentOut(id) {
		id.Sequence = w.out.Sequence + 1
	}
	return id
}

// errAstray ends a path that has led to gradients that are not finite, or to where losses are large.
var errAstray = errors.New("training on alone has diverged")

// local reports whether the worker trains on by itself in an outage.
func (w *worker) local() bool { return w.cfg.Pace.Keep == kintsugi.KeepLocal }

// move takes a step by itself. The version before is not needed any more: an outage ends with
// another one, in another array.
func (w *worker) move(params []float32, id kintsugi.PushID, grads []float32) {
	rate := float32(w.cfg.Rate(id.Version))
	for i, g := range grads {
		params[i] -= float32(rate * g)
	}
}

// end ends what begin began, and waits for it.
func (o *outage) end() error {
	if o.stop == nil {
		return nil
	}
	o.stop()
	<-o.ended
	o.stop = nil
	return o.err
}

// keep computes one gradient and keeps it.
func (w *worker) keep(ctx context.Context, id kintsugi.PushID, first bool) error {
	start := time.Now()
	w.cfg.Enter(Computing)
	loss, examples, err := w.cfg.Gradient(ctx, w.params, w.grads, id)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w of %v: %w", errGradient, id, err)
	}
	err = w.finite(id, w.grads)
	if w.local() && !first && (w.outage.astray(loss) || err != nil) {
		w.cfg.Log.Warn("training on alone has diverged; what came of it is dropped", "version", id.Version, "gradients", id.Sequence)
		w.outage.mu.Lock()
		defer w.outage.mu.Unlock()
		w.outage.queue.Forget(id)
		return errAstray
	}
	if err != nil {
		return err
	}
	if err := w.straggle(ctx, time.Since(start)); err != nil {
		return err
	}
	w.outage.mu.Lock()
	defer w.outage.mu.Unlock()
	if w.local() {
		w.move(w.params, id, w.grads)
	}
	w.outage.queue.Keep(id, loss, uint32(examples), w.grads, first)
	w.outage.newest = id
	return nil
}

// see notes the line of a view, where a path may have to go on on it.
func (w *worker) see(v kintsugi.View) {
	if w.cfg.Pace.Continue && w.local() {
		w.lines.See(w.cfg.Layout, v)
	}
}

// carryOver takes the path of an outage onto the line of id, the first gradient on the parameters
// that are there now, if that is another one and keeps the line of the path. Those before, which
// the path has moved, are in the spare array. What does not go on is dropped when it is offered.
//
// Where shards stayed as they were, the path is what it was: steps from the version on which it
// began. Chunks that came back are older than that version, and the path's steps would be steps
// from elsewhere; but the worker has these chunks, as they were when the path began and as the path
// has left them. There the path becomes what leads to its end from where the chunks are now. A step
// moves them an nth of that way, so that the paths of all n workers bring back what was lost, but
// for what they did apart.
func (w *worker) carryOver(id kintsugi.PushID) {
	o := &w.outage
	moved := o.moved
	o.moved = false
	if o.queue == nil || w.at == nil || w.at.Line == id.Line || !w.local() {
		return
	}
	defer w.lines.Forget(id.Line)
	from := *w.at
	limit, bounded := w.useless(from)
	restored, known := w.lines.Since(from.Line, id.Line)
	if !known || id.Version < from.Version || bounded && id.Version >= limit {
		return
	}
	if !moved { // the session after the outage has offered a part of it, and broke
		o.queue.Along(from, func(g kept.Gradient) { w.move(w.spare, from, g.Values) })
	}
	n := o.queue.Gradients()
	to, ok := o.queue.Onto(from, id, restored, w.params, w.spare, float32(w.cfg.Rate(id.Version)))
	if !ok {
		return
	}
	if o.newest.Line == from.Line && o.newest.Version == id.Version {
		o.newest.Line = id.Line
	} else {
		o.newest = to
	}
	w.cfg.Log.Info("what was learnt alone goes on on the line that follows", "line", id.Line, "version", from.Version, "now", id.Version, "gradients", n, "restored", len(restored))
}

// hello says what of an outage will be offered on a line.
func (w *worker) hello(line kintsugi.Line) (kept uint32, oldest kintsugi.Step) {
	if w.at == nil || w.outage.queue == nil || w.at.Line != line {
		return 0, 0
	}
	w.outage.mu.Lock()
	defer w.outage.mu.Unlock()
	if oldest, ok := w.outage.queue.Oldest(); ok {
		return 1, min(oldest, w.at.Version)
	}
	if w.outage.stop != nil { // it is at the first
		return 1, w.at.Version
	}
	return 0, 0
}

// offer offers what was kept in an outage before the gradient that id names, which is the first on
// the parameters that are there now. It returns the id of the gradient that comes next. What cannot
// be offered because the session breaks is kept.
func (w *worker) offer(s *session, id kintsugi.PushID) (kintsugi.PushID, error) {
	if w.outage.queue == nil {
		return id, nil
	}
	s.news.reached(id.Version)
	list, lost := w.outage.queue.Take()
	if lost > 0 {
		if err := w.tellDropped(s, id, lost); err != nil {
			return id, err
		}
	}
	for i := range list {
		next, told, err := w.offerOne(s, id, &list[i])
		if err != nil {
			if told {
				i++ // it may be counted
			}
			w.outage.queue.Back(list[i:])
			return id, err
		}
		id = next
	}
	if l := s.news.look(); len(list) > 0 && w.ready == nil && l.newest > id.Version {
		return w.read(s, id, l.newest)
	}
	return id, nil
}

// offerOne pushes one of them, or drops it. Where there are newer parameters than its own, the
// first gradient on those is computed at once, and what points apart from it is dropped: it would
// raise the loss. told says that the conductor has heard of it.
func (w *worker) offerOne(s *session, id kintsugi.PushID, g *kept.Gradient) (next kintsugi.PushID, told bool, err error) {
	if g.ID.Line != id.Line || w.tooOld(s, g.ID) {
		return id, true, w.tellDropped(s, id, g.Merged)
	}
	if (g.ID.Version < id.Version || g.Moved) && w.ready == nil {
		t, err := w.compute(s, id, false)
		if err != nil {
			return id, false, err
		}
		if t.Examples > 0 { // not interrupted
			w.ready = &t
		}
	}
	if w.ready != nil && g.Uphill(w.grads) {
		return id, true, w.tellDropped(s, id, g.Merged)
	}
	if at, err := w.cfg.Device.Finite(g.Values); err != nil || at >= 0 { // what was added up is finite, and the sum is not
		return id, true, errors.Join(err, w.tellDropped(s, id, g.Merged))
	}
	t := kintsugi.Ticket{Push: g.ID, Loss: g.Loss, Examples: g.Examples}
	if !g.First {
		t.Kept = g.Merged
	}
	if again, ok := w.kept(g.ID); ok {
		t = again
	}
	start := time.Now()
	g.Sent = true
	refused, err := w.push(s, &t, g.Values)
	if err != nil {
		return id, false, err
	}
	if refused != nil {
		w.cfg.Log.Debug("kept gradient refused", "push", g.ID.String(), "reason", refused.Reason)
		s.news.reached(refused.Step)
		w.dropped(g.ID)
		return id, true, w.tellDropped(s, id, g.Merged)
	}
	t.Views, t.Transfer = s.views(), time.Since(start)
	if err := w.ask(s, t); err != nil {
		return id, true, err
	}
	if _, err := s.await(w.cfg.Pace.Credit); err != nil {
		return id, true, err
	}
	w.settle(s, id.Version)
	return id, true, nil
}

// tellDropped lets the conductor count gradients that were kept and will not be offered.
func (w *worker) tellDropped(s *session, id kintsugi.PushID, n uint32) error {
	w.cfg.Log.Debug("kept gradients dropped", "gradients", n)
	return s.ticket(kintsugi.Ticket{Push: id, Kept: n, Examples: 1})
}

// broken reports whether a session has ended because servers are away, and not because the run is
// over or this worker is at fault.
func broken(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, errDone) && !fatal(err)
}
