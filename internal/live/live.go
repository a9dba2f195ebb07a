package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// Config describes a Cluster. Zero fields mean: bsp, the host device, one thread, no
// checkpoint except the last, and SGD.
type Config struct {
	Servers, Workers int
	Replicas         int           // of each shard; 0 means 1
	CopyEvery        kintsugi.Step // server.Config.CopyEvery
	Layout           *kintsugi.Layout
	Init             func(params []float32)
	Gradient         worker.Gradient
	Layered          func(*worker.Layers) worker.Gradient // used instead of Gradient, to push while computing
	Consistency      agg.Config
	Schedule         conductor.Schedule
	Steps, SaveEvery kintsugi.Step
	RunEvery         kintsugi.Step                               // save a quarter of the chunks in the running checkpoint every so many steps
	SaveErr          func(kintsugi.ShardID, kintsugi.Step) error // error with which saving fails; nil: it succeeds
	Device           kernels.Device
	Accelerator      kernels.Accelerator // server.Config.Accelerator
	Threads          int
	Slow             map[kintsugi.Slot]func() float64           // worker.Config.Slow
	Codec            func(kintsugi.Slot) compress.Codec         // worker.Config.Codec; nil: none
	Seed             uint64                                     // worker.Config.Seed
	Reconcile        func(kintsugi.Slot, []kintsugi.ChunkRange) // worker.Config.Reconcile, with the slot; may be nil
	Wire             worker.Wire                                // worker.Config.Wire
	Pull             worker.PullForm                            // worker.Config.Pull
	Lent             bool                                       // worker.Config.InPlace: gradients are computed elsewhere, on parameters that are lent
	Through          func(address string) string                // the address at which workers reach a server; nil: its own
	Between          bool                                       // servers also use Through to reach one another
	LeaveGrace       time.Duration                              // server.Config.LeaveGrace; 0: unlimited
	Log              io.Writer

	// Alive is server.Config.Workers; nil: nobody knows which workers are alive.
	Alive func(ctx context.Context) <-chan map[kintsugi.Slot]kintsugi.Incarnation

	// Save is server.Config.Save. nil: saving keeps a copy in memory, from which the next line
	// starts.
	Save func(ctx context.Context, v kintsugi.View, s server.Shard) (manifest string, bytes uint64, err error)

	// ServerEnters and WorkerEnters, if set, are called as Config.Enter of both roles.
	ServerEnters func(kintsugi.ServerID, server.State)
	WorkerEnters func(kintsugi.Slot, worker.State)

	// Outside is a folder in which servers keep their shards outside their process; empty: they do
	// not.
	Outside string
}

// forEver is longer than any cluster of this package lives. With it, the load of the machine does
// not influence which workers a step counts.
const forEver = 1000 * time.Hour

// Cluster is a cluster of real shells in this process. Its methods are safe for concurrent use.
type Cluster struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	log    *slog.Logger
	wg     sync.WaitGroup

	mu          sync.Mutex
	view        kintsugi.View
	fence       kintsugi.Fence
	incarnation kintsugi.Incarnation
	servers     []*liveServer
	workers     []*liveWorker
	store       map[string]map[kintsugi.ShardID]server.Shard // by run manifest: the shards that it names
	parts       map[string]server.Shard                      // by shard manifest
	newest      string
	running     map[kintsugi.ChunkID]savedChunk // the running checkpoint
	done        chan kintsugi.Done
	errs        []error
}

type liveServer struct {
	cancel context.CancelFunc
	ended  chan struct{}
	views  chan kintsugi.View
	server *server.Server
	member kintsugi.Member
	whole  chan kintsugi.ViewNumber // views that took the server in and in which it has caught up
}

type liveWorker struct {
	incarnation kintsugi.Incarnation
	cancel      context.CancelFunc
	ended       chan struct{}
	views       chan kintsugi.View
}

// Start starts a cluster. The caller must call Close.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Device == nil {
		cfg.Device = kernels.Host
	}
	if cfg.Schedule.Rule == 0 {
		cfg.Schedule.Rule = kintsugi.RuleSGD
	}
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	if cfg.LeaveGrace == 0 {
		cfg.LeaveGrace = forEver
	}
	l := &Cluster{
		cfg: cfg, log: slog.New(slog.NewTextHandler(cfg.Log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		store: make(map[string]map[kintsugi.ShardID]server.Shard), parts: make(map[string]server.Shard),
		done: make(chan kintsugi.Done, 16), running: make(map[kintsugi.ChunkID]savedChunk),
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.servers = make([]*liveServer, cfg.Servers)
	l.workers = make([]*liveWorker, cfg.Workers)
	for i := range cfg.Servers {
		if err := l.StartServer(i); err != nil {
			l.Close()
			return nil, err
		}
	}
	l.NewView("first view")
	for i := range cfg.Workers {
		l.StartWorker(i)
	}
	return l, nil
}

// StartServer starts server i as a new incarnation. It serves nothing until the next view.
func (l *Cluster) StartServer(i int) error {
	lis, err := transport.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.incarnation++
	m := kintsugi.Member{Server: kintsugi.ServerID(i), Incarnation: l.incarnation, Address: lis.Addr().String()}
	whole := make(chan kintsugi.ViewNumber, 16)
	outside, err := l.outside(i)
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	cfg := server.Config{
		ID: m.Server, Incarnation: m.Incarnation, Layout: l.cfg.Layout, Device: l.cfg.Device, Threads: l.cfg.Threads, Accelerator: l.cfg.Accelerator,
		CopyEvery: l.cfg.CopyEvery, Share: l.cfg.Wire != worker.WireGRPC, Slots: l.cfg.Workers, Consistency: l.cfg.Consistency, Schedule: l.cfg.Schedule, Steps: l.cfg.Steps, SaveEvery: l.cfg.SaveEvery,
		Window: transport.DefaultWindow, StartGrace: forEver, RejoinGrace: forEver, LeaveGrace: l.cfg.LeaveGrace, Workers: l.cfg.Alive,
		Planner: l.planner, LoadRunning: l.loadRunning, SaveRunning: l.saveRunning,
		Load: l.load, Save: l.save, Publish: l.publish, NextFence: l.nextFence, Outside: outside,
		Whole: func(_ context.Context, since kintsugi.ViewNumber) error { whole <- since; return nil },
		Done:  func(_ context.Context, d kintsugi.Done) error { l.done <- d; return nil },
		Near:  l.cfg.Wire != worker.WireGRPC, Marks: l.cfg.Pull == worker.PullDelta,
		Log: l.log.With("server", i),
	}
	if l.cfg.ServerEnters != nil {
		cfg.Enter = func(s server.State) { l.cfg.ServerEnters(m.Server, s) }
	}
	if l.cfg.Save != nil {
		cfg.Save = l.cfg.Save
	}
	s := server.New(cfg)
	ctx, cancel := context.WithCancel(l.ctx)
	x := &liveServer{cancel: cancel, ended: make(chan struct{}), views: make(chan kintsugi.View, 16), server: s, member: m, whole: whole}
	l.servers[i] = x
	l.wg.Go(func() {
		defer close(x.ended)
		l.note(s.Run(ctx, lis, x.views))
		if outside != nil {
			l.note(outside.Close())
		}
	})
	return nil
}

// outside opens the file of server i, or returns nil if servers have none.
func (l *Cluster) outside(i int) (*server.Outside, error) {
	if l.cfg.Outside == "" {
		return nil, nil
	}
	return server.OpenOutside(filepath.Join(l.cfg.Outside, fmt.Sprintf("server-%d", i)), "live")
}

// KillServer ends server i as a crash would: its streams break and its state is lost.
func (l *Cluster) KillServer(i int) {
	x := l.servers[i]
	x.cancel()
	<-x.ended
}

// StartWorker starts the worker of slot i as a new incarnation.
func (l *Cluster) StartWorker(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.incarnation++
	ctx, cancel := context.WithCancel(l.ctx)
	x := &liveWorker{incarnation: l.incarnation, cancel: cancel, ended: make(chan struct{}), views: make(chan kintsugi.View, 16)}
	l.workers[i] = x
	x.views <- l.through(l.view)
	cfg := worker.Config{
		Slot: kintsugi.Slot(i), Incarnation: l.incarnation, Layout: l.cfg.Layout, Device: l.cfg.Device, Gradient: l.cfg.Gradient,
		Rate: func(v kintsugi.Step) float64 { return float64(l.cfg.Schedule.At(v + 1).LearningRate) }, // for SGD
		Seed: l.cfg.Seed, Wire: l.cfg.Wire, Window: transport.DefaultWindow, Pull: l.cfg.Pull, Pace: l.cfg.Consistency.Pace(), Slow: l.cfg.Slow[kintsugi.Slot(i)], Log: l.log.With("worker", i),
	}
	if l.cfg.Layered != nil {
		cfg.Layers = &worker.Layers{}
		cfg.Gradient = l.cfg.Layered(cfg.Layers)
	}
	if l.cfg.Lent {
		cfg.Gradient, cfg.InPlace = lend(cfg.Gradient, l.cfg.Layout.Values)
	}
	if l.cfg.Codec != nil {
		cfg.Codec = l.cfg.Codec(cfg.Slot)
	}
	if l.cfg.WorkerEnters != nil {
		cfg.Enter = func(s worker.State) { l.cfg.WorkerEnters(cfg.Slot, s) }
	}
	if l.cfg.Reconcile != nil {
		cfg.Reconcile = func(lost []kintsugi.ChunkRange) { l.cfg.Reconcile(cfg.Slot, lost) }
	}
	l.wg.Go(func() {
		defer close(x.ended)
		if err := worker.Run(ctx, cfg, x.views); !errors.Is(err, context.Canceled) {
			l.note(err)
		}
	})
}

// KillWorker ends the worker of slot i.
func (l *Cluster) KillWorker(i int) {
	x := l.workers[i]
	x.cancel()
	<-x.ended
}

// Workers returns the workers that have not ended.
func (l *Cluster) Workers() map[kintsugi.Slot]kintsugi.Incarnation {
	l.mu.Lock()
	defer l.mu.Unlock()
	alive := make(map[kintsugi.Slot]kintsugi.Incarnation)
	for i, x := range l.workers {
		select {
		case <-x.ended:
		default:
			alive[kintsugi.Slot(i)] = x.incarnation
		}
	}
	return alive
}

// NewView makes a view of the current servers. Each view but the first begins a new line from the
// newest checkpoint, as the coordinator does when a shard is lost.
func (l *Cluster) NewView(reason string) { l.newView(reason, 0, false) }

// NewContinuedView makes a view that continues the line, as the coordinator does when servers have
// found their state outside their process.
func (l *Cluster) NewContinuedView(reason string) { l.newView(reason, 0, true) }

// NewPartialView makes a view whose line continues from what servers have in memory, as the
// coordinator does when it restores only the lost shards.
func (l *Cluster) NewPartialView(reason string) { l.newView(reason, 1, false) }

func (l *Cluster) newView(reason string, keeps kintsugi.Line, continues bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fence++
	v := kintsugi.View{Number: l.view.Number + 1, Line: l.view.Line + 1, Fence: l.fence, Keeps: keeps, Restore: l.newest, Replicas: max(1, l.cfg.Replicas), Reason: reason}
	if continues {
		v.Line, v.Keeps, v.Lost, v.Restore, v.Continues = l.view.Line, l.view.Keeps, l.view.Lost, l.view.Restore, true
	}
	for i, s := range l.servers {
		v.Servers = append(v.Servers, s.member)
		if keeps != 0 && v.Replicas > 1 {
			v.Servers[i].Since = v.Number
		}
		v.Chains = append(v.Chains, l.home(i))
		if keeps != 0 && s.member.Incarnation != l.view.Servers[i].Incarnation {
			v.Lost = append(v.Lost, kintsugi.ShardID(i))
		}
	}
	for _, s := range l.store[v.Restore] {
		v.RestoreStep = s.Step
	}
	l.put(v)
}

// put publishes a view. The caller holds the lock.
func (l *Cluster) put(v kintsugi.View) {
	l.view = v
	for _, s := range l.servers {
		if l.cfg.Between {
			s.views <- l.through(v)
		} else {
			s.views <- v
		}
	}
	for _, w := range l.workers {
		if w != nil {
			w.views <- l.through(v)
		}
	}
}

// through returns a view with the addresses of Config.Through.
func (l *Cluster) through(v kintsugi.View) kintsugi.View {
	if l.cfg.Through == nil {
		return v
	}
	v.Servers = slices.Clone(v.Servers)
	for i := range v.Servers {
		v.Servers[i].Address = l.cfg.Through(v.Servers[i].Address)
	}
	return v
}

// View returns the newest view.
func (l *Cluster) View() kintsugi.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view
}

// Wait waits until the run is over and returns how it ended.
func (l *Cluster) Wait() (kintsugi.Done, error) {
	select {
	case d := <-l.done:
		return d, l.err()
	case <-l.ctx.Done():
		return kintsugi.Done{}, errors.Join(l.ctx.Err(), l.err())
	}
}

// Stop asks the conductor to end the run.
func (l *Cluster) Stop(reason string, save bool) {
	for _, s := range l.servers {
		s.server.Stop(reason, save)
	}
}

// Watch calls f with the events of the run in the current view until ctx ends or f returns false.
func (l *Cluster) Watch(ctx context.Context, f func(kintsugi.RunEvent) bool) error {
	v := l.View()
	p, err := transport.Dial(v.Servers[v.Conductor].Address)
	if err != nil {
		return err
	}
	defer p.Close()
	stream, err := p.Watch(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(transport.WatchRequest{}); err != nil {
		return err
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			return err
		}
		if !f(e) {
			return nil
		}
	}
}

// Params returns the parameters of the newest checkpoint, and its step.
func (l *Cluster) Params() ([]float32, kintsugi.Step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	params := make([]float32, l.cfg.Layout.Values)
	step := kintsugi.Step(0)
	for _, s := range l.store[l.newest] {
		lo, _ := l.cfg.Layout.Span(s.Chunks)
		copy(params[lo:], s.Params)
		step = s.Step
	}
	return params, step
}

// Close kills all processes and waits for their ends.
func (l *Cluster) Close() {
	l.cancel()
	l.wg.Wait()
}

func (l *Cluster) note(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

func (l *Cluster) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}

func (l *Cluster) load(_ context.Context, v kintsugi.View, s *server.Shard) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	lo, hi := l.cfg.Layout.Span(s.Chunks)
	if v.Restore == "" {
		all := make([]float32, l.cfg.Layout.Values)
		if l.cfg.Init != nil {
			l.cfg.Init(all)
		}
		copy(s.Params, all[lo:hi])
		return nil
	}
	for _, saved := range l.store[v.Restore] {
		from, to := l.cfg.Layout.Span(saved.Chunks)
		a, b := max(lo, from), min(hi, to)
		if a >= b {
			continue
		}
		copy(s.Params[a-lo:b-lo], saved.Params[a-from:b-from])
		for i := range s.State {
			copy(s.State[i][a-lo:b-lo], saved.State[i][a-from:b-from])
		}
		s.Step = saved.Step
	}
	return nil
}

func (l *Cluster) save(_ context.Context, v kintsugi.View, s server.Shard) (string, uint64, error) {
	if l.cfg.SaveErr != nil {
		if err := l.cfg.SaveErr(s.ID, s.Step); err != nil {
			return "", 0, err
		}
	}
	s.Params = slices.Clone(s.Params)
	state := make([][]float32, len(s.State))
	for i := range s.State {
		state[i] = slices.Clone(s.State[i])
	}
	s.State = state
	l.mu.Lock()
	defer l.mu.Unlock()
	name := fmt.Sprintf("%d-%d-%d", v.Line, s.Step, s.ID)
	l.parts[name] = s
	return name, uint64(4 * len(s.Params)), nil
}

func (l *Cluster) publish(_ context.Context, c server.Checkpoint) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := fmt.Sprintf("%020d-%020d", c.Line, c.Step)
	l.store[name] = make(map[kintsugi.ShardID]server.Shard)
	for i, m := range c.Manifests {
		l.store[name][kintsugi.ShardID(i)] = l.parts[m]
	}
	l.newest = max(l.newest, name)
	return name, nil
}

func (l *Cluster) nextFence(_ context.Context, v kintsugi.View) (kintsugi.Fence, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.Number != l.view.Number {
		return 0, fmt.Errorf("%w: view %d counts by now", kintsugi.ErrStaleView, l.view.Number)
	}
	l.fence = max(l.fence, v.Fence) + 1
	return l.fence, nil
}
