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

// Shard is the state of one shard at one version. The server owns the slices; a function that is
// given a Shard may use them until it returns.
type Shard struct {
	ID     kintsugi.ShardID
	Chunks kintsugi.ChunkRange
	Line   kintsugi.Line
	Step   kintsugi.Step
	Rule   kintsugi.Rule
	Params []float32   // the values of Chunks, in the order of the flat vector
	State  [][]float32 // the rule's arrays of optimizer state, each as long as Params

	// Taken is how many optimizer steps each of Chunks has taken; nil: each has taken Step steps.
	// Chunks that came back from the running checkpoint have taken fewer.
	Taken []uint64

	// Velocity is how far Params move in one step where saved values coast (see Copy.Coasts); nil:
	// they do not. Config.LoadRunning sets it: a shard that came back moves on by it until the step
	// at which its line begins.
	Velocity []float32

	// Saved returns copies of what the running checkpoint has of one of Chunks: its parameters and,
	// where saved values coast, its velocity. nil: there is no running checkpoint.
	Saved func(kintsugi.ChunkID) Kept
}

// Kept is what the running checkpoint has of a chunk. Params is nil where no exact copy of it is
// here, and Velocity where saved values do not coast.
type Kept struct{ Params, Velocity []float32 }

// Ran is the result of a save for the running checkpoint.
type Ran struct {
	Manifest string
	Bytes    uint64
	Kept     map[kintsugi.ChunkID]Kept // of chunks that were not saved exactly
}

// Checkpoint names the parts of a full checkpoint that is to be published.
type Checkpoint struct {
	Line      kintsugi.Line
	Step      kintsugi.Step
	Fence     kintsugi.Fence
	Manifests []string // by shard
	Run       string   // kintsugi.View.Run
}

// Config is what a server must know. A field may be nil or zero only if its comment says what that
// means. The server may call the functions from several goroutines at once.
type Config struct {
	ID          kintsugi.ServerID
	Incarnation kintsugi.Incarnation
	Layout      *kintsugi.Layout
	Device      kernels.Device
	Threads     int // the number of threads that run kernels; below 1: one. Results do not depend on it

	// Accelerator executes the steps and keeps the arrays of shards; nil: Device executes them in
	// the memory of the host. Results do not depend on it. The caller still owns it, and closes it
	// after Run.
	Accelerator kernels.Accelerator

	// CopyEvery relaxes chains: all replicas but the head get a copy of the shard every so many
	// steps, and no updates. A shard whose head is gone falls back to the newest copy, by a view
	// that Keeps. 0: every update goes down the chain.
	CopyEvery kintsugi.Step

	// NextAnswers makes a step stable as soon as the replica after the head has applied it; those
	// behind follow later. A shard that loses its head and the next replica together falls back to
	// the version that the third one knows to be released, by a view that Keeps. It is of use with
	// three replicas or more.
	NextAnswers bool

	Share       bool // replicas on one host pass sums through memory that both can read
	Slots       int
	Consistency agg.Config
	Schedule    conductor.Schedule
	Steps       kintsugi.Step
	SaveEvery   kintsugi.Step // as conductor.Config
	SaveAfter   time.Duration // as conductor.Config
	StartGrace  time.Duration // for the first line; later lines wait for RejoinGrace
	RejoinGrace time.Duration
	LeaveGrace  time.Duration

	// Interval returns, for a view, the rule that chooses the time between two full checkpoints in
	// place of SaveAfter; nil: SaveAfter is that time.
	Interval func(v kintsugi.View) conductor.Interval

	// Planner returns the planner of running checkpoint saves for one view; nil: there is no
	// running checkpoint.
	Planner func(v kintsugi.View) (conductor.Planner, error)

	// Load fills s with the version that the view starts from, sets s.Step, and sets s.Taken if
	// chunks have taken fewer steps. s.Params and s.State are allocated; State holds zeros.
	Load func(ctx context.Context, v kintsugi.View, s *Shard) error

	// LoadRunning fills s with the newest saved values of its chunks, each of its own version, sets
	// s.Taken and, if saved values coast, s.Velocity, and returns those versions. It is called for
	// a shard that was lost, in a view that Keeps. Required if there are such views.
	LoadRunning func(ctx context.Context, v kintsugi.View, s *Shard) (saved []kintsugi.Step, err error)

	// SaveRunning makes the given chunks of s durable; their ids ascend. In one view it is not
	// called again for a shard before it has returned. Steps, and the next view, go on meanwhile.
	// Required if Planner is set.
	SaveRunning func(ctx context.Context, v kintsugi.View, s Shard, chunks []kintsugi.ChunkID) (Ran, error)

	// Copy says how a shard keeps a copy of its saved values in memory, for distances and
	// increments.
	Copy Copy

	// Outside keeps the shard of this server where it outlives the process; nil: nowhere. The
	// caller still owns it, and closes it after Run.
	Outside *Outside

	// Save makes a version of a shard durable and returns its shard manifest and its size in bytes.
	Save func(ctx context.Context, v kintsugi.View, s Shard) (manifest string, bytes uint64, err error)

	// Publish publishes a run manifest and returns its name.
	Publish func(ctx context.Context, c Checkpoint) (name string, err error)

	// NextFence returns a fence for the conductor of v that is larger than any before and than that
	// of v. It returns kintsugi.ErrStaleView if there is a newer view by now; so the conductor of a
	// later view always has the larger fence.
	NextFence func(ctx context.Context, v kintsugi.View) (kintsugi.Fence, error)

	// Whole is called when this server has caught up with all chains that it was taken into, or
	// moved up in, in the view since. From then on the other members of those chains may die. It is
	// called again if it returned an error. nil: nobody is told.
	Whole func(ctx context.Context, since kintsugi.ViewNumber) error

	// Apart is called with the lives of the servers that this server should reach and has not
	// reached for a while, whenever that list changes. It is called again if it returned an error.
	// nil: nobody is told.
	Apart func(ctx context.Context, whom []kintsugi.Life) error

	// Workers sends which workers' processes are alive, at once and after each change, until ctx
	// ends. The receiver owns the map. In all views but the run's first, the first step waits for
	// those workers only, and no step waits for the connection of a dead one. nil: nobody knows
	// which are alive. The first step then waits for all workers, for at most RejoinGrace, and each
	// step for a worker whose connection broke, for at most LeaveGrace.
	Workers func(ctx context.Context) <-chan map[kintsugi.Slot]kintsugi.Incarnation

	// Held is called when the run stands still because of Hold and the step at which it stands is
	// durable: the servers that are about to go may go now. It is called again if it returned an
	// error, as long as the view lasts. It may be nil if Hold is never called.
	Held func(ctx context.Context, view kintsugi.ViewNumber, step kintsugi.Step) error

	// Marks makes the server compare each version with the one before, so that readers may ask for
	// what has changed only.
	Marks bool

	// TLS is how this server and its peers prove to each other who they are. nil: they do not, and
	// connections are plain TCP.
	TLS *mtls.Credentials

	// Window is the number of bytes of a stream that may be on their way to this server before it
	// has read them; 0: gRPC estimates it. See transport.DefaultWindow.
	Window int

	// Near lets the conductor send messages to servers on its own host through pipes; see
	// transport.Peer.
	Near bool

	// Done is called when the run is over, and again if it returned an error. Nothing waits for it.
	Done func(ctx context.Context, d kintsugi.Done) error

	// Over returns the value that any server has passed to Done, as far as this server knows; nil:
	// none yet. It is called when this server begins to conduct. Over itself may be nil: then
	// nothing is known.
	Over func() *kintsugi.Done

	// Enter, if set, is called whenever a part of the server enters a state, before that part goes
	// on, so that a test can end the process there. It may be called from several goroutines at
	// once.
	Enter func(State)

	Log *slog.Logger // nil: slog.Default
}

// saves reports whether full checkpoints are taken during the run.
func (c *Config) saves() bool { return c.SaveEvery > 0 || c.SaveAfter > 0 || c.Interval != nil }

// interval returns the rule that chooses the time between full checkpoints in a view, nil if there
// is none.
func (c *Config) interval(v kintsugi.View) conductor.Interval {
	if c.Interval == nil {
		return nil
	}
	return c.Interval(v)
}

// sizes returns the numbers that bound the messages of the run. A step counts no more pushes of a
// worker than a shard holds of it.
func (c *Config) sizes() transport.Sizes {
	return transport.Sizes{Chunks: len(c.Layout.Chunks), Workers: c.Slots, Pushes: c.Slots * c.Consistency.Held()}
}

// Server holds the replicas that the current view assigns to it, and the conductor if the view
// assigns that to it.
type Server struct {
	cfg Config

	mu     sync.Mutex
	tenure *tenure             // nil: no view yet
	left   *tenure             // the tenure before, while there is no current one; the next may take over its shards
	change chan struct{}       // closed when tenure or out changes
	told   kintsugi.ViewNumber // the newest view for which this server has told others that it has caught up
	stop   *stopRequest
	out    bool              // nobody needs this server: it holds nothing in the newest view, or there is none yet
	going  []kintsugi.Member // servers that hold the only copy of something and are about to go

	life   context.Context // of Run
	failed chan error      // capacity 1
	saves  sync.WaitGroup  // saves under way, also of earlier tenures: a slow store must not hold up the next view

	attempts atomic.Uint64 // how often replicas have tried to follow the one before, in all views

	entered chan kintsugi.View // the newest view, for meet

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
	conductor *conducting // nil: another server conducts
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

// fail makes Run return err. Only the first error counts.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// Run serves on lis and follows views. It returns nil when ctx ends, and an error if a view cannot
// be entered or the server fails: the process should then end and start again.
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
				return nil // the end of ctx has interrupted a load
			} else if err != nil {
				return fmt.Errorf("enter view %d: %w", v.Number, err)
			}
		}
	}
}

// Stop asks the conductor to end the run, now or as soon as this server becomes the conductor.
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
	case <-s.entered: // an older view that nobody has looked at
	default:
	}
	s.entered <- v
	if v.Keeps == 0 && !v.Continues {
		s.left = nil // free its memory before that is needed again
	}
	if int(s.cfg.ID) >= len(v.Servers) || v.Servers[s.cfg.ID].Incarnation != s.cfg.Incarnation {
		// The view has an earlier life of this server: the coordinator will make another view.
		s.cfg.Log.Info("not a member of the view", "view", v.Number)
		s.isOut()
		return nil
	}
	if !slices.ContainsFunc(v.Chains, func(chain []kintsugi.ServerID) bool { return slices.Contains(chain, s.cfg.ID) }) {
		s.left = nil // steps go on without this server, so its state is useless now
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
	t.wg.Go(func() { s.caughtUp(t) }) // everything may be whole already, or have become so in the view before, which ended before this server could say it
	s.stand()
	s.cfg.Log.Info("entered view", "view", v.Number, "line", v.Line, "step", v.RestoreStep, "shards", len(t.replicas), "conductor", t.conductor != nil)
	return nil
}

// newTenure begins what a view assigns to this server: all of it, or nothing if there is an error.
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
			t.wg.Go(r.follow) // only when all replicas are there: follow asks the others whether they are whole
		}
	}
	return t, nil
}

// caughtUp tells the other servers and the health service, once every replica of the tenure is
// whole.
func (s *Server) caughtUp(t *tenure) {
	outside := false // whether a replica keeps its state there
	for _, r := range t.replicas {
		whole := false
		if r.do(func() { whole, outside = r.core.CaughtUp(), outside || r.outside != nil }) != nil || !whole {
			return
		}
	}
	since := t.view.Newest(s.cfg.ID)
	s.mu.Lock()
	if s.tenure == t {
		s.ready(true)
	}
	again := since == 0 || s.told >= since
	// The next life must not find the shard of an earlier line once this line is over.
	if o := s.cfg.Outside; o != nil && !again && !outside && t.joins(kintsugi.ShardID(s.cfg.ID)) {
		if err := o.drop(); err != nil {
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

// continues returns the replica of a shard that goes on unchanged in v; nil: this server does not
// have it, or steps have gone on without it.
func (s *Server) continues(v kintsugi.View, id kintsugi.ShardID) *replica {
	if t := s.left; t != nil && v.Continues && t.view.Line == v.Line && t.view.Number >= v.Since(id, s.cfg.ID) {
		return t.replicas[id]
	}
	return nil
}

// keeps returns the replica of a shard whose state the line of v keeps; nil: it is not in this
// process.
func (s *Server) keeps(v kintsugi.View, id kintsugi.ShardID, chunks kintsugi.ChunkRange) *replica {
	t := s.left
	if t == nil || v.Keeps == 0 || t.view.Line < v.Keeps || t.view.Line >= v.Line {
		return nil
	}
	r := t.replicas[id]
	switch {
	case r == nil || r.chunks != chunks || !r.core.Whole():
		return nil
	// With copies, or where the next answers, a lost shard falls back to what a replica has.
	case slices.Contains(v.Lost, id) && s.cfg.CopyEvery == 0 && !s.cfg.NextAnswers:
		return nil
	}
	return r
}

// serving returns the tenure. If there is none yet, it waits for one: clients may learn of a view
// as early as servers do.
func (s *Server) serving(ctx context.Context) (t *tenure, err error) {
	err = s.until(ctx, func() bool { t = s.tenure; return t != nil })
	return t, err
}

// until waits until there returns true, or ctx ends. It calls there with mu locked.
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

// joins reports whether the state of this server outside its process is useless because other
// servers have its shard too.
func (t *tenure) joins(id kintsugi.ShardID) bool {
	r := t.replicas[id]
	return t.view.Replicas > 1 || r != nil && r.at > 0
}

// replica returns the replica of a shard that this server heads, and ErrStaleView if it does not
// head it.
func (t *tenure) replica(id kintsugi.ShardID) (*replica, error) {
	r := t.replicas[id]
	if r == nil || r.at > 0 {
		return nil, fmt.Errorf("%w: this server does not head shard %d in view %d", kintsugi.ErrStaleView, id, t.view.Number)
	}
	return r, nil
}

// during runs f, which blocks on a stream, and returns when f does or when the tenure ends. The
// handler's return ends the stream, and with it f.
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
