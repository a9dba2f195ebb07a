package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// replica is the shell of one shard. The core decides; the loop owns the core and the table of held
// pushes.
type replica struct {
	*loop
	cfg    *Config
	view   kintsugi.View
	id     kintsugi.ShardID
	chain  []kintsugi.ServerID // the servers that hold the shard in this view
	at     int                 // the place of this server in chain; 0: the head
	chunks kintsugi.ChunkRange
	lo     int // first value of the shard in the flat vector
	values int
	log    *slog.Logger
	fail   func(error) // makes Server.Run return an error
	joined func()      // called when this replica has caught up

	state
	core     *shard.Replica
	held     map[kintsugi.PushID]*held
	spare    []*held                            // buffers of freed pushes
	replies  []*outbox[kintsugi.ReplicaMessage] // of the open streams that have taken this replica under the promised fence
	hearing  []*outbox[kintsugi.ReplicaMessage] // of the open streams that listen to this replica, which is not the head
	before   *outbox[kintsugi.FollowerMessage]  // to the replica before this one; nil: not connected, or this is the head
	after    *after                             // nil: no replica follows this one, or it is not connected
	sum      *sum                               // of the step that was applied last, pinned; nil if no replica ever follows
	given    *sum                               // from which the next step is applied, pinned; nil in a head
	outside  *shm.Memory                        // the shard outside the process, nil: nowhere; used by the goroutine that applies a step
	moved    chan struct{}                      // closed, and replaced, when a step has been applied, the line has begun, or this replica has become whole
	early    *making                            // of the commit that the core foresees; nil: none
	quiet    <-chan struct{}                    // closed when the newest making has ended; nil: there was none
	work     sync.WaitGroup                     // apply, and the threads of makings
	saves    *sync.WaitGroup                    // of the server
	attempts *atomic.Uint64                     // of the server: how often replicas have tried to follow

	pushed, pulled atomic.Uint64 // bytes, for the run's events
	publishing     atomic.Int64  // nanoseconds of handing versions to readers since the last answer
	waited         atomic.Int64  // nanoseconds for which steps have waited for the checkpoint since the last answer
	wasAhead       atomic.Int64  // nanoseconds for which the newest step had been in the making when it was committed, until that is answered
}

// state is what this process has of a shard. It outlives views: the replica of the next view takes
// it over.
type state struct {
	versions *versions
	sums     *sums
	lag      []kintsugi.Step // by chunk, how many steps fewer it has taken than the version; nil: none
	taken    []uint64        // of a shard that came back, by chunk, the steps that it has taken; nil once the line has begun
	saved    *savedValues    // of the running checkpoint; nil: there is none
	velocity []float32       // of a shard that came back, until the line has begun; nil: its values do not coast
	lostAt   []kintsugi.Step // by chunk, with velocity: the version that came back
	fell     bool            // the waiting version is what a replica has, which may be older than the step at which the line begins
}

// newReplica returns the replica of a shard at a place in its chain. It takes over the replica of
// the view before, if v goes on with its line or keeps it. It starts with nothing, if the line goes
// on and this server has come into the chain. Otherwise it starts with the version that the view
// starts from.
func (s *Server) newReplica(ctx context.Context, v kintsugi.View, id kintsugi.ShardID, chunks kintsugi.ChunkRange, at int) (*replica, error) {
	cfg := &s.cfg
	lo, hi := cfg.Layout.Span(chunks)
	r := &replica{
		cfg: cfg, view: v, id: id, chain: v.Chains[id], at: at, chunks: chunks, lo: lo, values: hi - lo,
		log:  cfg.Log.With("shard", id),
		fail: s.fail, saves: &s.saves, attempts: &s.attempts, joined: func() {},
		held: make(map[kintsugi.PushID]*held), moved: make(chan struct{}),
	}
	r.loop = newLoop(ctx, r.perform)
	if old := s.continues(v, id); old != nil {
		return r, r.goOn(old)
	}
	if old := s.keeps(v, id, chunks); old != nil && at == 0 {
		return r, r.keepOn(old)
	}
	return r, r.start(ctx)
}

// precedes reports whether a replica comes after this one in the chain.
func (r *replica) precedes() bool { return r.at+1 < len(r.chain) }

// goOn takes over the replica of the view before, on the same line.
func (r *replica) goOn(old *replica) error {
	r.state, r.outside, r.sum = old.state, old.outside, old.sum
	r.core = old.core.GoOn(r.view.Number, r.at > 0, r.precedes())
	r.nextAnswers()
	r.knowsSaved()
	if r.cfg.CopyEvery > 0 && old.at > 0 && r.at == 0 {
		return fmt.Errorf("shard %d: this server has copies of it, and view %d makes it the head on the same line", r.id, r.view.Number)
	}
	if err := r.mayServe(); err != nil {
		return err
	}
	return r.beginAgain()
}

// keepOn takes over the replica of the view before, on a new line that keeps the old one's state.
// The replica is a head, and waits to be told at which step the line begins.
func (r *replica) keepOn(old *replica) error {
	r.state = old.state
	r.versions.wait()
	r.comeHome()
	if old.at > 0 && (r.cfg.CopyEvery > 0 || slices.Contains(r.view.Lost, r.id)) {
		r.fell, r.core = true, old.core.FallBack(r.view.Line, r.view.Number)
		if r.cfg.CopyEvery == 0 {
			r.versions.released()
		}
	} else {
		r.core = old.core.Continue(r.view.Line, r.view.Number)
	}
	if !r.fell {
		r.tellSums("a shard waits for its line to begin", r.versions.waiting...)
	}
	r.core.Place(false, r.precedes())
	r.nextAnswers()
	r.knowsSaved()
	return r.mayServe()
}

// start sets up a replica that this server did not have in the view before.
func (r *replica) start(ctx context.Context) error {
	r.versions = newVersions(r.cfg.Layout, r.chunks, r.cfg.Schedule.Rule.States())
	r.versions.keep = r.cfg.Consistency.Controller != ""
	r.versions.marks = r.cfg.Marks
	r.versions.arrays = newArrays(r.cfg, r.chunks)
	r.versions.banks = r.cfg.Outside
	r.sums = &sums{cut: newCut(r.cfg.Layout, r.chunks), arrays: r.versions.arrays}
	if err := r.source()(ctx); err != nil {
		return fmt.Errorf("load shard %d: %w", r.id, err)
	}
	r.core.CopyEvery(r.cfg.CopyEvery)
	r.core.Place(r.at > 0, r.precedes())
	r.nextAnswers()
	r.core.Hold(r.cfg.Consistency.Held())
	return r.mayServe()
}

// nextAnswers tells the core that the next replica answers for those behind it, if
// Config.NextAnswers is set.
func (r *replica) nextAnswers() {
	if r.cfg.NextAnswers {
		r.core.NextAnswers(r.at)
	}
}

// source returns the function that gets a shard which is not in this process.
func (r *replica) source() func(context.Context) error {
	v := r.view
	came := v.Since(r.id, r.cfg.ID) != 0
	switch {
	case came && r.at > 0:
		return r.lack
	case (r.cfg.CopyEvery > 0 || r.cfg.NextAnswers) && r.at == 0 && v.Keeps != 0:
		return r.noCopy
	// If the view continues the line, this life has missed the view in which the shard was lost.
	case r.at == 0 && slices.Contains(v.Lost, r.id) && !(v.Continues && r.heldOutside(v.Line)):
		return r.load
	case v.Keeps == 0 && (!v.Continues || !came && !r.hasOutside()): // the same
		return r.load
	}
	return r.recall
}

// lack makes the replica wait for a snapshot: the line goes on, and this server has come into the
// chain.
func (r *replica) lack(context.Context) error {
	r.core = shard.New(r.id, int(r.chunks.Hi-r.chunks.Lo), r.view.Line, r.view.Number, 0)
	r.core.Lack()
	return nil
}

// noCopy returns the error that ends this life: the view relies on a replica that this server does
// not have.
func (r *replica) noCopy(context.Context) error {
	return fmt.Errorf("view %d relies on a replica of the shard that this server does not have; its next life has to catch up", r.view.Number)
}

// mayServe returns an error for a replica that has become the head and may lack released steps. The
// shard is then lost here, and this process must end, so that the next life shows the others that
// it is.
func (r *replica) mayServe() error {
	if r.at == 0 && !r.core.Whole() {
		return fmt.Errorf("shard %d: this server was catching up when those before it died; steps may have been released that it has not", r.id)
	}
	return nil
}

// load gets the version that the view starts from. In a view that keeps an earlier line, it gets
// what the running checkpoint has of this shard.
func (r *replica) load(ctx context.Context) error {
	rule := r.cfg.Schedule.Rule
	x := r.versions.take(r.view.RestoreStep)
	outside := r.view.Keeps == 0 && r.hasOutside() && r.format()
	if outside {
		// The state is loaded where it stays, and not to memory that would be garbage at once.
		if _, err := r.beginOutside(0, x); err != nil {
			return err
		}
	}
	s := Shard{ID: r.id, Chunks: r.chunks, Line: r.view.Line, Step: r.view.RestoreStep, Rule: rule, Params: x.params, State: x.arrays()}
	n := int(r.chunks.Hi - r.chunks.Lo)
	if r.view.Keeps == 0 {
		if err := r.cfg.Load(ctx, r.view, &s); err != nil {
			return err
		}
		x.step = s.Step
		if err := x.send(); err != nil {
			return err
		}
		r.versions.publish(x)
		r.core = shard.New(r.id, n, r.view.Line, r.view.Number, s.Step)
		r.fallBehind(s.Step, s.Taken)
		if r.at == 0 {
			if err := r.holdSaved(x, nil, slices.Repeat([]kintsugi.Step{s.Step}, n)); err != nil {
				return err
			}
		}
		if outside {
			return r.copyTo(0, x, outsideRecord{lag: r.lag}, 0)
		}
		return nil
	}
	saved, err := r.cfg.LoadRunning(ctx, r.view, &s)
	if err != nil {
		return err
	}
	if err := x.send(); err != nil {
		return err
	}
	r.versions.waiting = []*version{x}
	r.taken = s.Taken
	r.core = shard.New(r.id, n, r.view.Line, r.view.Number, 0)
	if s.Velocity != nil {
		r.velocity, r.lostAt = s.Velocity, saved
	}
	err = r.holdSaved(x, s.Velocity, saved)
	r.core.Lose(saved)
	return err
}

// fallBehind sets lag for a version of step, where the chunks have taken these numbers of steps.
func (r *replica) fallBehind(step kintsugi.Step, taken []uint64) {
	r.lag, r.taken = nil, nil
	for i, n := range taken {
		if n >= uint64(step) {
			continue
		}
		if r.lag == nil {
			r.lag = make([]kintsugi.Step, len(taken))
		}
		r.lag[i] = step - kintsugi.Step(n)
	}
}

// fallBehindBy notes that each chunk has taken so many more steps fewer than the version.
func (r *replica) fallBehindBy(steps kintsugi.Step) {
	if steps == 0 {
		return
	}
	if r.lag == nil {
		r.lag = make([]kintsugi.Step, r.chunks.Hi-r.chunks.Lo)
	}
	for i := range r.lag {
		r.lag[i] += steps
	}
}

// adopt begins the line: the waiting version becomes the version of step.
func (r *replica) adopt(step kintsugi.Step) {
	if r.taken != nil {
		r.fallBehind(step, r.taken)
	}
	r.comeHome() // a view may have come meanwhile that goes on with this line
	r.coast(step)
	was := r.versions.adopt(step)
	x, _ := r.versions.pin(0)
	if r.fell {
		r.fell = false
		r.fallBehindBy(step - min(was, step))
		r.log.Info("a shard falls back to what a replica has", "line", r.view.Line, "step", step, "replica", was)
	} else {
		r.tellSums("a shard goes on", x)
	}
	r.knowsSaved()
	if err := r.begin(x); err != nil {
		r.fail(fmt.Errorf("begin line %d outside the process: %w", r.view.Line, err))
	}
	r.versions.unpin(x)
	r.work.Go(r.joined)
}

// shard returns a version in the form in which it is saved. If it is on an accelerator, fetch it.
func (r *replica) shard(x *version) Shard {
	s := Shard{
		ID: r.id, Chunks: r.chunks, Line: r.view.Line, Step: x.step, Rule: r.cfg.Schedule.Rule,
		Params: x.params, State: slices.Clone(x.state[:x.states]),
	}
	if r.saved != nil {
		s.Saved = r.kept
	}
	for _, lag := range r.lag {
		s.Taken = append(s.Taken, uint64(x.step-lag))
	}
	return s
}

// fetch fetches from an accelerator what is saved of x.
func (s *Shard) fetch(x *version) error {
	if x.far == nil {
		return nil
	}
	err := x.fetchState()
	s.State = x.arrays()
	return err
}

// arrays returns the arrays of optimizer state.
func (x *version) arrays() [][]float32 {
	x.open()
	return slices.Clone(x.state[:x.states])
}

// buffers is the number of versions that a shard has memory for: the one that is read, the one that
// is written and, if there are saves, the one that is being saved.
func (r *replica) buffers() int {
	if r.cfg.saves() && r.at == 0 {
		return 3
	}
	return 2
}

func (r *replica) run() {
	r.work.Go(func() { r.versions.prepare(r.buffers(), !r.hasOutside()) })
	r.loop.run()
	r.overturn() // streams may still land chunks that nobody makes any more
	r.work.Wait()
}

// perform carries out what the core has decided.
func (r *replica) perform() {
	ready := r.core.Ready()
	if ready.Overturned {
		r.overturn()
	}
	if ready.Withdraw {
		r.versions.withdraw()
	}
	for _, p := range ready.Free {
		if h := r.held[p]; h != nil && h.landed && r.idle() && len(r.spare) < 2*r.cfg.Slots {
			h.forget()
			r.spare = append(r.spare, h)
		}
		delete(r.held, p)
	}
	if ready.Adopt != nil {
		r.adopt(*ready.Adopt)
		r.move()
	}
	if ready.Publish != nil {
		r.versions.publish(nil)
		r.cfg.Enter(Publishing)
	}
	if ready.Offer {
		r.versions.offer()
	}
	if ready.Foreseen != nil {
		r.foresee(*ready.Foreseen)
	}
	if ready.Apply != nil {
		r.apply(*ready.Apply)
	}
	for _, m := range ready.Down {
		r.hand(m)
	}
	start := time.Now()
	if ready.Save != nil {
		r.save(*ready.Save)
	}
	if ready.Run != nil {
		r.saveRunning(*ready.Run)
	}
	if ready.Save != nil || ready.Run != nil {
		r.waited.Add(int64(time.Since(start)))
	}
	for _, m := range ready.Replies {
		if up, ok := m.(kintsugi.FollowerMessage); ok && r.at > 0 && r.before != nil {
			if s, ok := up.(kintsugi.Stable); ok {
				s.Products = nil // the head has the same
				up = s
				for _, out := range r.hearing {
					out.put(s)
				}
			}
			r.before.put(up)
		}
		if s, ok := m.(kintsugi.Stable); ok {
			s.Saving = time.Duration(r.waited.Swap(0))
			s.Publish = time.Duration(r.publishing.Swap(0))
			s.Ahead = time.Duration(r.wasAhead.Swap(0))
			m = s
		}
		for _, out := range r.replies {
			out.put(m)
		}
	}
	if ready.Done != nil {
		r.log.Info("run is over", "step", ready.Done.Step, "reason", ready.Done.Reason)
	}
}

// apply makes the step of a commit, or finishes it if it was foreseen. It runs outside the loop:
// gradients of the next step may land meanwhile.
func (r *replica) apply(c kintsugi.Commit) {
	start := time.Now()
	m, before := r.early, r.quiet
	early := m != nil
	if !early {
		var err error
		if m, err = r.newMaking(c); err != nil {
			r.fail(err)
			return
		}
		r.quiet = m.ended
	} else {
		r.early = nil
		r.wasAhead.Store(int64(m.ahead(start)))
	}
	if m.total != nil {
		m.total.step, m.total.decided = c.Step, c.Decided
		r.ahead(c, m.total)
	}
	r.work.Go(func() {
		r.cfg.Enter(Committing)
		if !early {
			if before != nil {
				<-before
			}
			m.begin()
			m.all()
		}
		products, err := m.wait()
		if err == nil && r.outside != nil {
			answer := kintsugi.Stable{Shard: r.id, Fence: c.Fence, Step: c.Step, Decided: c.Decided, Products: products}
			err = r.finish(m.dst, outsideRecord{commit: &c, answer: answer, lag: r.lag}, c.Decided)
		}
		m.unpin()
		// The device is lost, and this process with it: recovery does the rest.
		if err != nil {
			r.versions.discard(m.dst)
			r.fail(fmt.Errorf("apply step %d to shard %d: %w", c.Step, r.id, err))
			return
		}
		took := time.Since(start)
		r.post(func() {
			r.versions.applied(m.dst)
			r.sums.unpin(r.sum)
			r.sum = m.total
			r.core.Applied(c.Decided, products, took, r.pushed.Load(), r.pulled.Load())
			r.move()
		})
	})
}

// save writes the released version to the checkpoint in the background, while steps go on.
func (r *replica) save(step kintsugi.Step) {
	x, _ := r.versions.pin(step)
	if x == nil || x.step != step {
		if x != nil {
			r.versions.unpin(x)
		}
		r.core.Saved(kintsugi.Saved{Shard: r.id, Step: step, Err: fmt.Sprintf("version %d is not here any more", step)})
		return
	}
	bank, err := r.versions.pinWhole(x)
	s := r.shard(x)
	r.saves.Go(func() {
		r.cfg.Enter(Saving)
		start := time.Now()
		var name string
		var bytes uint64
		if err == nil {
			err = s.fetch(x)
		}
		if err == nil {
			name, bytes, err = r.cfg.Save(r.ctx, r.view, s)
		}
		if err == nil {
			r.durable(x, r.all(), nil)
		}
		r.versions.unpinWhole(x, bank)
		m := kintsugi.Saved{Shard: r.id, Step: step, Manifest: name, Bytes: bytes, Took: time.Since(start)}
		if err != nil {
			m.Err = err.Error()
			r.log.Error("save", "step", step, "err", err)
		}
		r.post(func() { r.core.Saved(m) })
	})
}
