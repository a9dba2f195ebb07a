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

// keptArrays is how many gradients a worker keeps separately in an outage. Each needs as much
// memory as the parameters. Further gradients are merged into these.
const keptArrays = 4

// outage is a worker's computing while servers are away, with Pace.Continue. It lasts from the end
// of a session until the next session has read a version. Between begin and end, its goroutine owns
// the worker's parameters and gradient.
type outage struct {
	mu    sync.Mutex  // of queue, while the goroutine runs
	queue *kept.Queue // nil: the worker only waits
	stop  context.CancelFunc
	ended chan struct{}
	err   error // why the goroutine gave up; valid when it has ended

	// The newest gradient that was computed in an outage. A gradient that is merged into a push has
	// a later id than the push.
	newest kintsugi.PushID
	moved  bool // the parameters are at the end of the kept path

	usual  float64 // moving average of the loss in turns; invalid while turns is 0
	spread float64 // moving average of the distance of a loss from usual
	turns  int
	recent float64 // moving average of the loss along the path, beginning with usual
}

// saw notes the loss of a gradient that was computed in a turn.
func (o *outage) saw(loss float64) {
	const part = 0.1 // weight of the newest loss: about the last ten matter
	if o.turns++; o.turns == 1 {
		o.usual = loss
	}
	o.spread += part * (math.Abs(loss-o.usual) - o.spread)
	o.usual += part * (loss - o.usual)
}

// astray notes the loss of the next gradient on a path. It reports whether losses on the path have
// become several times the usual loss. It looks at an average and allows for the spread, since
// single batches vary: near the end of a training, a few of them may have nearly all of the loss. A
// local path takes steps of the optimizer's long-run rate without its momentum. With a high rate it
// may therefore diverge, and it is useless long before its gradients are no longer finite.
func (o *outage) astray(loss float64) bool {
	const part, times, spreads = 0.3, 4, 10
	o.recent += part * (loss - o.recent)
	return o.turns > 0 && o.recent > o.usual+max((times-1)*math.Abs(o.usual), spreads*o.spread)
}

// after returns the first gradient, from id on, that no outage has computed. No gradient may count
// twice, under any id.
func (o *outage) after(id kintsugi.PushID) kintsugi.PushID {
	if n := o.newest; n.Line == id.Line && n.Version == id.Version && id.Compare(n) <= 0 {
		id.Sequence = n.Sequence + 1
	}
	return id
}

// begin goes on computing until end, on the parameters that the last session has left, if they are
// whole. It first repeats the gradient that was being computed. If some of that gradient may have
// been pushed, it is kept unmerged, for a head may hold it. Other gradients that a head may hold
// are skipped: the bytes that would be offered under their ids would not be the same.
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
			at = w.unsent(at) // from the start of a path on, the same id means another gradient
		})
		o.moved = true
	}
	first := w.wentOut(at)
	o.recent = o.usual
	go func() {
		defer close(o.ended)
		for o.err == nil {
			if o.err = w.keep(ctx, at, first); ctx.Err() != nil || errors.Is(o.err, errAstray) {
				o.err = nil // the gradient under way was given up
				return
			}
			at.Sequence++
			at, first = w.unsent(at), false
		}
	}()
}

// untold returns the first gradient, from id on, that no conductor was told of.
func (w *worker) untold(id kintsugi.PushID) kintsugi.PushID {
	if t := w.told; t.Line == id.Line && t.Version == id.Version && id.Compare(t) <= 0 {
		id.Sequence = t.Sequence + 1
	}
	return id
}

// unsent returns the first gradient, from id on, that no head has bytes of.
func (w *worker) unsent(id kintsugi.PushID) kintsugi.PushID {
	if w.wentOut(id) {
		id.Sequence = w.out.Sequence + 1
	}
	return id
}

// errAstray ends a path whose gradients are not finite or whose losses have become large.
var errAstray = errors.New("training on alone has diverged")

// local reports whether the worker trains on by itself in an outage.
func (w *worker) local() bool { return w.cfg.Pace.Keep == kintsugi.KeepLocal }

// move takes a local step on params. It overwrites the version that they hold, which is no longer
// needed: the session that ends the outage reads another one into another array.
func (w *worker) move(params []float32, id kintsugi.PushID, grads []float32) {
	usual := float32(w.cfg.Rate(id.Version))
	for _, c := range w.cfg.Layout.Chunks {
		rate := usual * w.cfg.Layout.Rate(c.Tensor)
		for i := c.Lo; i < c.Hi; i++ {
			params[i] -= float32(rate * grads[i])
		}
	}
}

// parts cuts ranges at the borders of chunks, and gives each part the rate of a local step on
// version id.
func (w *worker) parts(ranges []kept.Range, id kintsugi.PushID) (parts []kept.Part) {
	usual := float32(w.cfg.Rate(id.Version))
	for _, r := range ranges {
		for _, c := range w.cfg.Layout.Chunks {
			if lo, hi := max(r.Lo, c.Lo), min(r.Hi, c.Hi); lo < hi {
				parts = append(parts, kept.Part{Range: kept.Range{Lo: lo, Hi: hi}, Rate: usual * w.cfg.Layout.Rate(c.Tensor)})
			}
		}
	}
	return parts
}

// end stops the goroutine that begin started and waits for it. It returns why the goroutine gave
// up, if it did.
func (o *outage) end() error {
	if o.stop == nil {
		return nil
	}
	o.stop()
	<-o.ended
	o.stop = nil
	return o.err
}

// keep computes one gradient and puts it in the queue.
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
	err = w.cfg.finite(id, w.grads)
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

// see notes the line of a view, if a path may have to be carried over to that line.
func (w *worker) see(v kintsugi.View) {
	if w.cfg.Pace.Continue && w.local() {
		w.lines.See(w.cfg.Layout, v)
	}
}

// carryOver carries the path of an outage over to the line of id, if that is another line and keeps
// the line of the path. id is the first gradient on the current parameters. The former parameters,
// which the path has moved, are in the spare array. Kept gradients that cannot be carried over are
// dropped when they would be offered.
//
// In shards that stayed as they were, the path remains a sum of gradients from the version on which
// it began. Chunks that were restored are older than that version, so these gradients would start
// elsewhere. But the worker has these chunks as the path has left them. For restored chunks, the
// path becomes the difference between these values and the current ones. A step with n workers
// moves the chunks an nth of the way, so the paths of all n workers together bring back what was
// lost, apart from the differences between their paths.
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
	if !known || id.Version < from.Version || bounded && id.Version >= limit || w.cfg.Rate(id.Version) == 0 {
		return
	}
	if !moved { // the session after the outage has offered a part of the path before it broke
		o.queue.Along(from, func(g kept.Gradient) { w.move(w.spare, from, g.Values) })
	}
	n := o.queue.Gradients()
	to, ok := o.queue.Onto(from, id, w.parts(restored, id), w.params, w.spare)
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

// hello returns what the worker will offer of an outage on a line: at least 1 if anything, and its
// oldest version.
func (w *worker) hello(line kintsugi.Line) (kept uint32, oldest kintsugi.Step) {
	if w.at == nil || w.outage.queue == nil || w.at.Line != line {
		return 0, 0
	}
	w.outage.mu.Lock()
	defer w.outage.mu.Unlock()
	if oldest, ok := w.outage.queue.Oldest(); ok {
		return 1, min(oldest, w.at.Version)
	}
	if w.outage.stop != nil { // it is still computing the first gradient
		return 1, w.at.Version
	}
	return 0, 0
}

// offer offers the gradients kept in an outage, before the gradient that id names, which is the
// first on the current parameters. It returns the id of the next gradient. If the session breaks,
// gradients that were not offered stay in the queue.
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

// offerOne pushes one kept gradient, or drops it. If there are newer parameters than those of g, it
// computes the first gradient on those, and drops g if the two point apart, because a step along g
// would then raise the loss. told says that the conductor was told about g.
func (w *worker) offerOne(s *session, id kintsugi.PushID, g *kept.Gradient) (next kintsugi.PushID, told bool, err error) {
	if g.ID.Line != id.Line || w.tooOld(s, g.ID) {
		return id, true, w.tellDropped(s, id, g.Merged)
	}
	if (g.ID.Version < id.Version || g.Moved) && w.ready == nil {
		t, err := w.compute(s, id, false)
		if err != nil {
			return id, false, err
		}
		if t.Examples > 0 { // the gradient was not interrupted
			w.ready = &t
		}
	}
	if w.ready != nil && g.Uphill(w.grads) {
		return id, true, w.tellDropped(s, id, g.Merged)
	}
	if at, err := w.cfg.Device.Finite(g.Values); err != nil || at >= 0 { // each summand is finite, but their sum is not
		return id, true, errors.Join(err, w.tellDropped(s, id, g.Merged))
	}
	t := kintsugi.Ticket{Push: g.ID, Loss: g.Loss, Examples: g.Examples()}
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

// tellDropped reports to the conductor that n kept gradients will not be offered, so that it can
// count them.
func (w *worker) tellDropped(s *session, id kintsugi.PushID, n uint32) error {
	w.cfg.Log.Debug("kept gradients dropped", "gradients", n)
	return s.ticket(kintsugi.Ticket{Push: id, Kept: n, Examples: 1})
}

// broken reports whether a session has ended because servers are away, and not because the run is
// over or this worker is at fault.
func broken(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !errors.Is(err, errDone) && !fatal(err)
}
