package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

const (
	tickEvery   = 50 * time.Millisecond // resolution of the conductor's grace periods
	redialAfter = 50 * time.Millisecond // between two tries to reach a shard
	keptEvents  = 1 << 16               // for watchers that connect late
	keptParts   = 1 << 22               // the same limit, in parts (see partsOf): some 150 MB
)

// conducting is the shell of the conductor. Its loop owns the core and the table of workers.
type conducting struct {
	*loop
	cfg  *Config
	view kintsugi.View
	log  *slog.Logger

	core    *conductor.Conductor
	shards  []*outbox[kintsugi.ControlMessage] // by shard; nil: not connected
	workers map[kintsugi.Slot]*workerStream
	events  eventLog
	work    sync.WaitGroup
	saves   *sync.WaitGroup // of the server
	life    context.Context // of the server
	telling telling
	over    bool
}

type workerStream struct {
	incarnation kintsugi.Incarnation
	out         *outbox[kintsugi.ConductorMessage]
}

// newConducting returns the conductor of v. It takes a fence of its own, so that a conductor that
// was here before is not believed any more.
func (s *Server) newConducting(ctx context.Context, v kintsugi.View) (*conducting, error) {
	cfg := &s.cfg
	fence, err := cfg.NextFence(ctx, v)
	if err != nil {
		return nil, fmt.Errorf("take a fence for the conductor: %w", err)
	}
	grace := cfg.StartGrace
	if v.Line > 1 || v.Continues {
		grace = cfg.RejoinGrace
	}
	var planner conductor.Planner
	if cfg.Planner != nil {
		if planner, err = cfg.Planner(v); err != nil {
			return nil, err
		}
	}
	var earlier []kintsugi.RunEvent // of this line, for watchers whose streams ended before they had all of them
	var untold map[kintsugi.ShardID][]kintsugi.Step
	if t := s.left; t != nil && t.conductor != nil && t.view.Line == v.Line { // its loop has ended
		earlier, _, _ = t.conductor.events.from(0)
		untold = t.conductor.core.Untold()
	}
	var over *kintsugi.Done
	if cfg.Over != nil {
		over = cfg.Over()
	}
	now := time.Now()
	core, err := conductor.New(conductor.Config{
		Line: v.Line, View: v.Number, Fence: fence, Model: cfg.Layout.Agreement(), Shards: len(v.Chains), Slots: cfg.Slots,
		Consistency: cfg.Consistency, Schedule: cfg.Schedule, Uneven: cfg.Layout.Uneven(), Steps: cfg.Steps, SaveEvery: cfg.SaveEvery, SaveAfter: cfg.SaveAfter, Interval: cfg.interval(v), Running: planner,
		StartGrace: grace, LeaveGrace: cfg.LeaveGrace, Continues: v.Continues, Untold: untold, Over: over,
	}, now)
	if err != nil {
		return nil, err
	}
	c := &conducting{
		cfg: cfg, view: v, log: cfg.Log.With("fence", fence), core: core, saves: &s.saves, life: s.life,
		shards:  make([]*outbox[kintsugi.ControlMessage], len(v.Chains)),
		workers: make(map[kintsugi.Slot]*workerStream),
		events:  eventLog{changed: make(chan struct{})},
		telling: telling{log: cfg.Log, line: v.Line, steps: cfg.Steps, saved: v.RestoreStep, moved: now, told: now},
	}
	c.events.add(earlier)
	c.loop = newLoop(ctx, c.perform)
	return c, nil
}

func (c *conducting) run() {
	for i, chain := range c.view.Chains {
		id := kintsugi.ShardID(i)
		c.work.Go(func() {
			c.hold(id, c.control, func(err error) { c.post(func() { c.telling.broke(id, err) }) })
		})
		if len(chain) > 1 && c.cfg.CopyEvery == 0 {
			c.work.Go(func() { c.hold(id, c.listen, func(error) {}) }) // steps do not need it
		}
	}
	c.work.Go(func() {
		tick := time.NewTicker(tickEvery)
		defer tick.Stop()
		for c.ctx.Err() == nil {
			select {
			case <-c.ctx.Done():
			case <-tick.C:
				c.post(func() {
					now := time.Now()
					c.core.Tick(now)
					c.events.add(c.telling.tell(now, c.core))
				})
			}
		}
	})
	if c.cfg.Workers != nil {
		c.work.Go(func() {
			for alive := range c.cfg.Workers(c.ctx) {
				c.post(func() { c.core.There(time.Now(), alive) })
			}
		})
	}
	c.loop.run()
	c.work.Wait()
}

// stand makes the run stand still until the view ends, because one of its servers is about to go.
func (c *conducting) stand() {
	c.post(func() { c.core.Hold(time.Now()) })
}

func (c *conducting) stop(reason string, save bool) {
	c.post(func() { c.core.Stop(time.Now(), reason, save) })
}

// perform carries out what the core has decided.
func (c *conducting) perform() {
	ready := c.core.Ready()
	for _, m := range ready.ToShards {
		if out := c.shards[m.Shard]; out != nil {
			out.put(m.Message)
		}
	}
	for _, m := range ready.ToWorkers {
		if w := c.workers[m.Slot]; w != nil && w.incarnation == m.Incarnation {
			w.out.put(m.Message)
		}
	}
	for _, o := range ready.StartOver {
		c.log.Warn("a worker has to start over, and push again", "worker", o.Slot, "incarnation", o.Incarnation, "reason", o.Reason)
		if w := c.workers[o.Slot]; w != nil && w.incarnation == o.Incarnation {
			w.out.end(errors.New(o.Reason + ": start over"))
		}
	}
	c.events.add(ready.Events)
	c.telling.hear(ready.Events)
	if ready.Held != nil && c.cfg.Held != nil {
		step := *ready.Held
		c.work.Go(func() {
			insist(c.ctx, c.log, "say that the run stands", func() error { return c.cfg.Held(c.ctx, c.view.Number, step) })
		})
	}
	for _, p := range ready.Publish {
		c.publish(p)
	}
	if c.core.Finished() && !c.over {
		c.over = true
		d := ready.Events[len(ready.Events)-1].(kintsugi.Done)
		// This goes on when the view is over: the conductor of the next view may not know why the
		// run has ended.
		c.saves.Go(func() {
			insist(c.life, c.log, "say that the run is over", func() error { return c.cfg.Done(c.life, d) })
		})
	}
}

// insist calls say until it succeeds or ctx ends, and logs each error as a warning under the name
// what.
func insist(ctx context.Context, log *slog.Logger, what string, say func() error) {
	for ctx.Err() == nil {
		err := say()
		if err == nil || ctx.Err() != nil {
			return
		}
		log.Warn(what, "err", err)
		pause(ctx, redialAfter)
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// publish publishes a run manifest outside the loop, so that a slow store does not stop steps.
func (c *conducting) publish(p conductor.Publication) {
	fence := c.core.Fence()
	c.saves.Go(func() {
		c.cfg.Enter(Naming)
		start := time.Now()
		name, err := c.cfg.Publish(c.ctx, Checkpoint{Line: c.view.Line, Step: p.Step, Fence: fence, Manifests: p.Manifests, Run: c.view.Run})
		e := kintsugi.CheckpointEvent{Step: p.Step, Manifest: name, Bytes: p.Bytes, Took: p.Took + time.Since(start)}
		if err != nil {
			e.Err = err.Error()
			c.log.Error("publish checkpoint", "step", p.Step, "err", err)
		}
		c.post(func() { c.core.Published(time.Now(), e) })
	})
}

// hold keeps a stream to a replica of a shard open. It calls broke with each error.
func (c *conducting) hold(id kintsugi.ShardID, stream func(kintsugi.ShardID) error, broke func(error)) {
	for c.ctx.Err() == nil {
		if err := stream(id); err != nil && c.ctx.Err() == nil {
			c.log.Debug("control stream", "shard", id, "err", err)
			broke(err)
			pause(c.ctx, redialAfter)
		}
	}
}

// dial connects to a server.
func (c *conducting) dial(m kintsugi.Member) (*transport.Peer, error) {
	peer, err := transport.Dial(m.Address, transport.DialTLS(c.cfg.TLS, m.Server), transport.DialSizes(c.cfg.sizes()))
	if err == nil && c.cfg.Near {
		peer.Near()
	}
	return peer, err
}

// listen hears what the replica after the head of a shard answers to it.
func (c *conducting) listen(id kintsugi.ShardID) error {
	peer, err := c.dial(c.view.Servers[c.view.Chains[id][1]])
	if err != nil {
		return err
	}
	defer peer.Close()
	stream, err := peer.Control(c.ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(transport.Control{Shard: id, Message: kintsugi.Listen{}}); err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if s, ok := m.(kintsugi.Stable); ok && !c.post(func() { c.core.HandleNext(time.Now(), s) }) {
			return errStopped
		}
	}
}

// control conducts a shard through its head.
func (c *conducting) control(id kintsugi.ShardID) error {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	peer, err := c.dial(c.view.Head(id))
	if err != nil {
		return err
	}
	defer peer.Close()
	stream, err := peer.Control(ctx)
	if err != nil {
		return err
	}
	out := newOutbox[kintsugi.ControlMessage]()
	out.try = func(m kintsugi.ControlMessage) bool { return stream.TrySend(transport.Control{Shard: id, Message: m}) }
	defer func() {
		_ = c.do(func() {
			if c.shards[id] == out {
				c.shards[id] = nil
			}
		})
	}()
	if !c.post(func() { c.shards[id] = out; c.core.ShardConnected(id) }) {
		return errStopped
	}
	go func() {
		send := func(m kintsugi.ControlMessage) error { return stream.Send(transport.Control{Shard: id, Message: m}) }
		if out.drain(ctx, send) != nil {
			cancel()
		}
	}()
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if !c.post(func() { c.core.HandleReplica(time.Now(), m) }) {
			return errStopped
		}
	}
}

// Work serves the stream of one worker for as long as it is a member.
func (s *Server) Work(stream *transport.WorkServer) error {
	c, t, err := s.conducting(stream.Context())
	if err != nil {
		return err
	}
	var hello kintsugi.Hello
	err = t.during(func() (err error) {
		hello, err = greeting(stream)
		return err
	})
	if err != nil {
		return err
	}
	return c.serve(t, stream, hello)
}

func greeting(stream *transport.WorkServer) (kintsugi.Hello, error) {
	first, err := stream.Recv()
	if err != nil {
		return kintsugi.Hello{}, err
	}
	hello, ok := first.(kintsugi.Hello)
	if !ok {
		return hello, fmt.Errorf("%w: a worker must say hello first, not %T", kintsugi.ErrOtherModel, first)
	}
	return hello, nil
}

func (s *Server) conducting(ctx context.Context) (*conducting, *tenure, error) {
	t, err := s.serving(ctx)
	if err != nil {
		return nil, nil, err
	}
	if t.conductor == nil {
		return nil, nil, fmt.Errorf("%w: the conductor of view %d runs on server/%d", kintsugi.ErrStaleView, t.view.Number, t.view.Conductor)
	}
	return t.conductor, t, nil
}

// serve serves a worker's stream, and ends an older stream of the same slot. A worker that was
// wrongly taken for dead must hear that its place is taken; otherwise it would compute in vain for
// ever.
func (c *conducting) serve(t *tenure, stream *transport.WorkServer, hello kintsugi.Hello) error {
	out := newOutbox[kintsugi.ConductorMessage]()
	out.try = stream.TrySend
	var refused error
	err := c.do(func() {
		if refused = c.core.HandleHello(time.Now(), hello); refused != nil {
			return
		}
		if old := c.workers[hello.Slot]; old != nil {
			old.out.end(old.replacedBy(hello))
		}
		c.workers[hello.Slot] = &workerStream{incarnation: hello.Incarnation, out: out}
	})
	if err = errors.Join(err, refused); err != nil {
		return err
	}
	var left atomic.Bool
	defer c.post(func() {
		if w := c.workers[hello.Slot]; w != nil && w.out == out {
			delete(c.workers, hello.Slot)
			if left.Load() {
				c.core.WorkerLeft(time.Now(), hello.Slot, hello.Incarnation)
			} else {
				c.core.WorkerGone(time.Now(), hello.Slot, hello.Incarnation)
			}
		}
	})
	return converse(stream.Context(), t, out, stream.Send, func() error {
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) { // the worker has left; one whose stream breaks may come back
				left.Store(true)
				return nil
			}
			if err != nil {
				return err
			}
			ticket, ok := m.(kintsugi.Ticket)
			if !ok || ticket.Push.Slot != hello.Slot {
				return fmt.Errorf("%w: worker/%d sent %T for another slot or a second hello", kintsugi.ErrUsage, hello.Slot, m)
			}
			if !c.post(func() { c.core.HandleTicket(time.Now(), ticket) }) {
				return errStopped
			}
		}
	})
}

func (w *workerStream) replacedBy(h kintsugi.Hello) error {
	if h.Incarnation == w.incarnation {
		return fmt.Errorf("worker/%d has connected again", h.Slot)
	}
	return fmt.Errorf("%w: incarnation %d of worker/%d has taken the place of %d", kintsugi.ErrFenced, h.Incarnation, h.Slot, w.incarnation)
}

// Watch sends the events of the run to a watcher.
func (s *Server) Watch(stream *transport.WatchServer) error {
	c, t, err := s.conducting(stream.Context())
	if err != nil {
		return err
	}
	return t.during(func() error {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		// A watcher may hear of a view before its conductor does. It must not get the events of the
		// earlier line again.
		if req.Line != 0 && req.Line != t.view.Line {
			return fmt.Errorf("%w: this conductor is on line %d, not on %d", kintsugi.ErrStaleView, t.view.Line, req.Line)
		}
		at := 0
		for {
			var batch []kintsugi.RunEvent
			var changed <-chan struct{}
			batch, at, changed = c.events.from(at)
			for _, e := range batch {
				if step, ok := e.(kintsugi.StepEvent); ok && step.Line == req.Line && step.Step <= req.After {
					continue
				}
				if err := stream.Send(e); err != nil {
					return err
				}
			}
			if len(batch) > 0 {
				continue
			}
			select {
			case <-changed:
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		}
	})
}

// eventLog keeps the newest events for watchers.
type eventLog struct {
	mu      sync.Mutex
	dropped int
	kept    []kintsugi.RunEvent
	parts   int // of kept
	changed chan struct{}
}

// partsOf returns how many parts an event counts as, for keptParts. The event of a step names every
// worker, so with a thousand workers it is a thousand times as large.
func partsOf(e kintsugi.RunEvent) int {
	if e, ok := e.(kintsugi.StepEvent); ok {
		return 1 + len(e.Counted) + len(e.Times)
	}
	return 1
}

func (l *eventLog) add(events []kintsugi.RunEvent) {
	if len(events) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, events...)
	for _, e := range events {
		l.parts += partsOf(e)
	}
	if len(l.kept) > keptEvents*5/4 || l.parts > keptParts*5/4 { // rarely, so that it costs nothing per event
		l.drop()
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// drop drops the oldest events beyond the limits.
func (l *eventLog) drop() {
	extra := 0
	for len(l.kept)-extra > keptEvents || l.parts > keptParts && extra < len(l.kept)-1 {
		l.parts -= partsOf(l.kept[extra])
		extra++
	}
	l.kept = slices.Clone(l.kept[extra:]) // otherwise the array would keep the dropped events in memory
	l.dropped += extra
}

// from returns the events from number at on, the number to ask for next, and a channel that is
// closed when there are more.
func (l *eventLog) from(at int) ([]kintsugi.RunEvent, int, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lo := max(0, at-l.dropped)
	return l.kept[lo:len(l.kept):len(l.kept)], l.dropped + len(l.kept), l.changed
}
