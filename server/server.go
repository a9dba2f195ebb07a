package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// Shard is the state of one shard at one version. Slices are owned by the server; whoever is handed a
// Shard uses them until the call returns.
type Shard struct {
	ID     kintsugi.ShardID
	Chunks kintsugi.ChunkRange
	Line   kintsugi.Line
	Step   kintsugi.Step
	Rule   kintsugi.Rule
	Params []float32   // the values of Chunks, in the order of the flat vector
	State  [][]float32 // the rule's arrays of optimizer state, each as long as Params

	// Taken are the optimizer steps that each of Chunks has taken; nil: Step, all of them. They are fewer for chunks
	// that came back from the running checkpoint.
	Taken []uint64

	// Velocity, unless nil, is how far Params go in a step where what was saved of them coasts: a
	// shard that came back goes on so until the step at which its line begins.
	Velocity []float32

	// Saved returns copies of what is saved of one of Chunks, its parameters and, where saved
	// values coast, its velocity; nil where there is no running checkpoint.
	Saved func(kintsugi.ChunkID) Kept
}

// Kept is what is saved of a chunk, where that is not what it was.
type Kept struct{ Params, Velocity []float32 }

// Ran is what a save for the running checkpoint has done.
type Ran struct {
	Manifest string
	Bytes    uint64
	Kept     map[kintsugi.ChunkID]Kept // of chunks that were not saved exactly
}

// Checkpoint names the parts of a checkpoint that is to be published.
type Checkpoint struct {
	Line      kintsugi.Line
	Step      kintsugi.Step
	Fence     kintsugi.Fence
	Manifests []string // by shard
	Run       string   // kintsugi.View.Run
}

// Config is what a server must know. All fields but Log are required; functions may be called from
// several goroutines at once.
type Config struct {
	ID          kintsugi.ServerID
	Incarnation kintsugi.Incarnation
	Layout      *kintsugi.Layout
	Device      kernels.Device
	Threads     int // that run kernels; the result does not depend on it

	// Accelerator does the steps, and keeps the arrays of shards; nil: Device does, in the memory
	// of the host. The result does not depend on it. It stays the caller's, who closes it after
	// Run.
	Accelerator kernels.Accelerator

	// CopyEvery relaxes chains: replicas that are no heads get a copy of the shard every so many
	// steps, and no updates. A shard whose head is gone falls back to the newest copy, by a view
	// that Keeps. 0: every update goes down the chain.
	CopyEvery kintsugi.Step

	// NextAnswers lets the replica after the head answer for all behind it: they follow. A shard
	// whose head and next are gone together falls back to what the one after them knows to be
	// released, by a view that Keeps. It is of use with three replicas and more.
	NextAnswers bool

	Share       bool // sums between replicas of one host travel through memory that both have
	Slots       int
	Consistency agg.Config
	Schedule    conductor.Schedule
	Steps       kintsugi.Step
	SaveEvery   kintsugi.Step // as conductor.Config
	SaveAfter   time.Duration // as conductor.Config
	StartGrace  time.Duration // for the first line; later lines wait RejoinGrace
	RejoinGrace time.Duration
	LeaveGrace  time.Duration

	// Interval returns what says in a view how far apart full checkpoints are, in time, instead of
	// SaveAfter; nil: SaveAfter does.
	Interval func(v kintsugi.View) conductor.Interval

	// Planner returns what plans the saves of the running checkpoint, for one view; nil: there is
	// no running checkpoint.
	Planner func(v kintsugi.View) (conductor.Planner, error)

	// Load fills s with the version that the view starts from and sets s.Step, and s.Taken if they differ. s.Params
	// and s.State are allocated; State holds zeros.
	Load func(ctx context.Context, v kintsugi.View, s *Shard) error

	// LoadRunning fills s with the newest saved values of its chunks, of whatever versions, sets s.Taken, and returns
	// the versions. It is called for a shard that was lost, in a view that Keeps. Required if a view does.
	LoadRunning func(ctx context.Context, v kintsugi.View, s *Shard) (saved []kintsugi.Step, err error)

	// SaveRunning makes chunks of s durable, which ascend. In one view it is not called
	// again for a shard before it has returned; steps, and the next view, go on meanwhile. Required if Planner is set.
	SaveRunning func(ctx context.Context, v kintsugi.View, s Shard, chunks []kintsugi.ChunkID) (Ran, error)

	// Copy is how what is saved is held beside the parameters, for distances and increments.
	Copy Copy

	// Outside keeps the shard of this server where it outlives the process; nil: nowhere. It stays
	// the caller's, who closes it after Run.
	Outside *Outside

	// Save makes a version of a shard durable and returns its manifest and size in bytes.
	Save func(ctx context.Context, v kintsugi.View, s Shard) (manifest string, bytes uint64, err error)

	// Publish publishes a run manifest and returns its name.
	Publish func(ctx context.Context, c Checkpoint) (name string, err error)

	// NextFence returns a fence for the conductor of v, larger than any before and than that of v:
	// kintsugi.ErrStaleView if another view counts by now, so that whoever conducts a later view
	// has a larger one.
	NextFence func(ctx context.Context, v kintsugi.View) (kintsugi.Fence, error)

	// Whole is called when this server, which was taken into chains in the view since, or moved up
	// in one, has caught up with all of them, and again if it returned an error: from then on the
	// chains' other members may die. nil: nobody is told.
	Whole func(ctx context.Context, since kintsugi.ViewNumber) error

	// Apart is called with the lives of servers that this one has not reached for a while, although
	// it should, whenever they change, and again if it returned an error. nil: nobody is told.
	Apart func(ctx context.Context, whom []kintsugi.Life) error

	// Workers tells of which workers the processes live, at once and after each change, until ctx
	// ends: the first step of a view after the run's first does not wait for others. nil: nobody
	// knows, and it waits for all of them, RejoinGrace at most.
	Workers func(ctx context.Context) <-chan []kintsugi.Slot
	// Held is called when the run stands because of Hold, and the step at which it stands is
	// durable: whoever is about to go may go. It is called again if it returned an error, as long
	// as the view lasts. It may be nil where Hold is not called.
	Held func(ctx context.Context, view kintsugi.ViewNumber, step kintsugi.Step) error

	// Marks lets the server compare each version with the one before, so that readers may ask for what has changed.
	Marks bool

	// TLS is how this server and those that it speaks with prove to each other who they are. nil:
	// they do not, and connections are plain TCP.
	TLS *mtls.Credentials

	// Window is how many bytes of a stream may be on their way to this server before it has read
	// them; 0: gRPC finds out how many. See transport.DefaultWindow.
	Window int

	// Near lets the conductor's messages to servers of this host travel through pipes; see transport.Peer.
	Near bool

	// Done is called when the run is over, and again if it returned an error. Nothing waits for it.
	Done func(ctx context.Context, d kintsugi.Done) error

	// Over returns what Done of any server was called with, as far as is known here; nil: it was
	// not. It is asked when this server begins to conduct, and may be nil: then nobody knows.
	Over func() *kintsugi.Done

	// Enter, if set, is told by whoever enters a state, before it goes on, so that a test can end the
	// process there. It may be called from several goroutines at once.
	Enter func(State)

	Log *slog.Logger // nil: slog.Default
}

// saves reports whether full checkpoints are taken while the run lasts.
func (c *Config) saves() bool { return c.SaveEvery > 0 || c.SaveAfter > 0 || c.Interval != nil }

// interval returns what says in a view how far apart they are, nil if nothing does.
func (c *Config) interval(v kintsugi.View) conductor.Interval {
	if c.Interval == nil {
		return nil
	}
	return c.Interval(v)
}

// sizes are what the messages of the run grow with. A shard holds that many pushes of one worker at
// most, so that no step counts more.
func (c *Config) sizes() transport.Sizes {
	return transport.Sizes{Chunks: len(c.Layout.Chunks), Workers: c.Slots, Pushes: c.Slots * c.Consistency.Held()}
}

// Server holds the replicas that the current view assigns to it, and the conductor if it is the
// conductor's place.
type Server struct {
	cfg Config

	mu     sync.Mutex
	tenure *tenure             // nil: no view yet
	left   *tenure             // the one before, as long as there is none; its shards may go on in the next
	change chan struct{}       // closed when tenure or out changes
	told   kintsugi.ViewNumber // the newest view for which others were told that this server has caught up
	stop   *stopRequest
	out    bool              // nobody needs this server: it holds nothing in the newest view, or there is none yet
	going  []kintsugi.Member // that hold the only copy of something and are about to go

	life   context.Context // of Run
	failed chan error      // holds one
	saves  sync.WaitGroup  // under way, of tenures that are over too: a slow store must not hold up the next view

	attempts atomic.Uint64 // of replicas to follow the one before, in all views

	entered chan kintsugi.View // holds the newest, for meet

	ready func(bool) // tells the health service whether this server has all that the view assigns to it
}

type stopRequest struct {
	reason string
	save   bool
}

// tenure is what a server holds in one view. Everything in it ends with its context.
type tenure struct {
	view      kintsugi.View
	ctx       context.Context
	cancel    context.CancelFunc
	replicas  map[kintsugi.ShardID]*replica
	conductor *conducting // nil: it is somewhere else
	wg        sync.WaitGroup
}

// New returns a server that holds nothing yet.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Enter == nil {
		cfg.Enter = func(State) {}
	}
	cfg.Threads = max(1, cfg.Threads)
	return &Server{cfg: cfg, change: make(chan struct{}), failed: make(chan error, 1), out: true, entered: make(chan kintsugi.View, 1), ready: func(bool) {}}
}

// fail makes Run return err; only the first one counts.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// Run serves on lis and follows views until ctx ends, which is no error, or until a view cannot be
// entered, which is one: the process should end and start again.
func (s *Server) Run(ctx context.Context, lis net.Listener, views <-chan kintsugi.View) error {
	g := transport.NewServer(lis, s, transport.ServeTLS(s.cfg.TLS), transport.ServeWindow(s.cfg.Window), transport.ServeSizes(s.cfg.sizes()))
	s.mu.Lock()
	s.ready = g.SetReady
	s.mu.Unlock()
	served := make(chan error, 1)
	go func() { served <- g.Serve() }()
	ctx, cancel := context.WithCancel(ctx)
	s.life = ctx
	var meets sync.WaitGroup
	if s.cfg.Apart != nil {
		meets.Go(func() { s.meet(ctx, newPings(s.cfg.TLS)) })
	}
	defer func() {
		cancel()
		meets.Wait()
		s.leave()
		g.Stop()
		<-served
		s.saves.Wait()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			served <- nil
			return fmt.Errorf("serve on %s: %w", g.Address(), err)
		case err := <-s.failed:
			return err
		case v, ok := <-views:
			if !ok {
				return errors.New("the watch of views has ended")
			}
			if err := s.enter(ctx, v); ctx.Err() != nil {
				return nil // whatever was being loaded was interrupted
			} else if err != nil {
				return fmt.Errorf("enter view %d: %w", v.Number, err)
			}
		}
	}
}

// Stop asks the conductor, if it is here, now or later, to end the run.
func (s *Server) Stop(reason string, save bool) {
	s.mu.Lock()
	s.stop = &stopRequest{reason, save}
	t := s.tenure
	s.mu.Unlock()
	if t != nil && t.conductor != nil {
		t.conductor.stop(reason, save)
	}
}

// enter leaves the view before and takes up what v assigns to this server.
func (s *Server) enter(ctx context.Context, v kintsugi.View) error {
	s.leave()
	terms := kintsugi.Terms{Protocol: kintsugi.ProtocolVersion, Model: s.cfg.Layout.Agreement()}
	if err := terms.Agree(fmt.Sprintf("server/%d", s.cfg.ID), v.Terms, "the run's coordinator"); err != nil {
		return err
	}
	select {
	case <-s.entered: // an older one that nobody has looked at
	default:
	}
	s.entered <- v
	if v.Keeps == 0 && !v.Continues {
		s.left = nil // before its memory is needed again
	}
	if int(s.cfg.ID) >= len(v.Servers) || v.Servers[s.cfg.ID].Incarnation != s.cfg.Incarnation {
		// A view of an earlier life of this server: the coordinator will make another one.
		s.cfg.Log.Info("not a member of the view", "view", v.Number)
		s.isOut()
		return nil
	}
	if !slices.ContainsFunc(v.Chains, func(chain []kintsugi.ServerID) bool { return slices.Contains(chain, s.cfg.ID) }) {
		s.left = nil // steps go on without this server: what it has is worth nothing any more
		s.cfg.Log.Warn("taken out of the view; the next one takes this server in again", "view", v.Number)
		s.isOut()
		return nil
	}
	t, err := s.newTenure(ctx, v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.tenure, s.left, s.out = t, nil, false
	stop := s.stop
	s.changed()
	s.mu.Unlock()
	if stop != nil && t.conductor != nil {
		t.conductor.stop(stop.reason, stop.save)
	}
	t.wg.Go(func() { s.caughtUp(t) }) // at once, or in the view before, which was over before it could say so
	s.stand()
	s.cfg.Log.Info("entered view", "view", v.Number, "line", v.Line, "step", v.RestoreStep, "shards", len(t.replicas), "conductor", t.conductor != nil)
	return nil
}

// newTenure begins what a view assigns to this server, all of it or nothing.
func (s *Server) newTenure(ctx context.Context, v kintsugi.View) (_ *tenure, err error) {
	t := &tenure{view: v, replicas: make(map[kintsugi.ShardID]*replica)}
	t.ctx, t.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			t.cancel()
			t.wg.Wait()
		}
	}()
	for i, chunks := range s.cfg.Layout.Split(len(v.Chains)) {
		id := kintsugi.ShardID(i)
		at := slices.Index(v.Chains[id], s.cfg.ID)
		if at < 0 {
			continue
		}
		r, err := s.newReplica(t.ctx, v, id, chunks, at)
		if err != nil {
			return nil, err
		}
		r.joined = func() { s.caughtUp(t) }
		r.foresees()
		t.replicas[id] = r
		t.wg.Go(r.run)
	}
	if v.Conductor == s.cfg.ID {
		switch c, err := s.newConducting(t.ctx, v); {
		case err == nil:
			t.conductor = c
			t.wg.Go(c.run)
		case errors.Is(err, kintsugi.ErrStaleView):
			s.cfg.Log.Info("the view is over, and nobody conducts it: waiting for the next", "view", v.Number)
		default:
			return nil, err
		}
	}
	for _, r := range t.replicas {
		if r.at > 0 {
			t.wg.Go(r.follow) // not before all are there: it asks the others whether they are whole
		}
	}
	return t, nil
}

// caughtUp tells the others when every replica of the tenure is whole, and the health service.
func (s *Server) caughtUp(t *tenure) {
	for _, r := range t.replicas {
		whole := false
		if r.do(func() { whole = r.core.CaughtUp() }) != nil || !whole {
			return
		}
	}
	since := t.view.Newest(s.cfg.ID)
	s.mu.Lock()
	if s.tenure == t {
		s.ready(true)
	}
	again := since == 0 || s.told >= since
	if o := s.cfg.Outside; o != nil && !again && t.joins(kintsugi.ShardID(s.cfg.ID)) { // what it holds of a line before must not be found when this one is over
		if err := o.file.Resize(0); err != nil {
			s.fail(err)
		}
	}
	s.mu.Unlock()
	if s.cfg.Whole == nil || again {
		return
	}
	s.cfg.Log.Info("this server has caught up", "view", t.view.Number, "since", since)
	t.wg.Go(func() {
		insist(t.ctx, s.cfg.Log, "say that this server has caught up", func() error {
			err := s.cfg.Whole(t.ctx, since)
			if err == nil {
				s.mu.Lock()
				s.told = max(s.told, since)
				s.mu.Unlock()
			}
			return err
		})
	})
}

// leave ends the tenure and waits for everything in it.
func (s *Server) leave() {
	s.mu.Lock()
	t := s.tenure
	s.tenure = nil
	s.ready(false)
	s.mu.Unlock()
	if t != nil {
		t.cancel()
		t.wg.Wait()
		s.left = t
	}
}

// continues returns the replica of a shard that goes on in v as it is; nil: it is not here, or
// steps have gone on without it.
func (s *Server) continues(v kintsugi.View, id kintsugi.ShardID) *replica {
	if t := s.left; t != nil && v.Continues && t.view.Line == v.Line && t.view.Number >= v.Since(id, s.cfg.ID) {
		return t.replicas[id]
	}
	return nil
}

// keeps returns the replica of a shard whose state is that of the line of v; nil: it is not in this process.
func (s *Server) keeps(v kintsugi.View, id kintsugi.ShardID, chunks kintsugi.ChunkRange) *replica {
	t := s.left
	if t == nil || v.Keeps == 0 || t.view.Line < v.Keeps || t.view.Line >= v.Line {
		return nil
	}
	r := t.replicas[id]
	switch {
	case r == nil || r.chunks != chunks || !r.core.Whole():
		return nil
	case slices.Contains(v.Lost, id) && s.cfg.CopyEvery == 0 && !s.cfg.NextAnswers: // what a replica has is what a lost shard falls back to
		return nil
	}
	return r
}

// serving returns the tenure, waiting for one for a moment: clients learn of a view as soon as servers do.
func (s *Server) serving(ctx context.Context) (t *tenure, err error) {
	err = s.until(ctx, func() bool { t = s.tenure; return t != nil })
	return t, err
}

// until waits until there holds, which is called with mu locked, or ctx ends.
func (s *Server) until(ctx context.Context, there func() bool) error {
	for {
		s.mu.Lock()
		ok, change := there(), s.change
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-change:
		}
	}
}

// joins reports whether what this server has outside its process is of no use: its shard is on other servers too.
func (t *tenure) joins(id kintsugi.ShardID) bool {
	r := t.replicas[id]
	return t.view.Replicas > 1 || r != nil && r.at > 0
}

// replica returns the replica of a shard that this server heads.
func (t *tenure) replica(id kintsugi.ShardID) (*replica, error) {
	r := t.replicas[id]
	if r == nil || r.at > 0 {
		return nil, fmt.Errorf("%w: this server does not head shard %d in view %d", kintsugi.ErrStaleView, id, t.view.Number)
	}
	return r, nil
}

// during runs f, which blocks on a stream, until it ends or the tenure does. Ending the handler ends the
// stream, and with it f.
func (t *tenure) during(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-t.ctx.Done():
		return t.over()
	}
}

func (t *tenure) over() error {
	return fmt.Errorf("%w: view %d is over", kintsugi.ErrStaleView, t.view.Number)
}
