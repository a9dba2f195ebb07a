package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
)

const workers = 3

// job is everything that a run needs to know about a model.
type job struct {
	name   string
	layout *kintsugi.Layout
	start  func(params []float32) // fills the parameters of version 0, which are zero before
	rate   float64
	steps  kintsugi.Step

	// gradient returns the gradient function of one worker, and a function that frees its
	// resources.
	gradient func() (worker.Gradient, func() error, error)

	// judge says in words how good parameters are.
	judge func(params []float32) (string, error)
}

// result is the outcome of a run.
type result struct {
	params []float32
	lives  kintsugi.Incarnation // number of lives that the server has had
}

// cluster is one server and its workers. A view tells the parts of a run who the servers are, at
// which address, and which checkpoint they start from. In `kintsugi train` a coordinator makes the
// views and etcd distributes them; here they are made by hand and sent on channels.
type cluster struct {
	job      job
	kill     kintsugi.Step               // the server dies as soon as it has a checkpoint of this step or a later one; 0: never
	views    [workers]chan kintsugi.View // to the workers
	shelf    shelf
	finished chan struct{} // closed when every worker has returned
}

// train trains j. It kills the server once, as soon as there is a checkpoint of step kill or a
// later one; 0 means never.
func train(ctx context.Context, j job, kill kintsugi.Step) (result, error) {
	ctx, stop := context.WithCancelCause(ctx)
	c := &cluster{job: j, kill: kill, shelf: shelf{job: j, saved: make(map[string]server.Shard)}, finished: make(chan struct{})}
	var working sync.WaitGroup
	defer func() { stop(nil); working.Wait() }()
	for slot := range c.views {
		c.views[slot] = make(chan kintsugi.View, 1)
		gradient, free, err := j.gradient()
		if err != nil {
			return result{}, err
		}
		working.Go(func() {
			if err := errors.Join(c.work(ctx, slot, gradient), free()); err != nil {
				stop(fmt.Errorf("worker %d: %w", slot, err))
			}
		})
	}
	go func() { working.Wait(); close(c.finished) }()

	for life := kintsugi.Incarnation(1); ; life++ {
		if err := c.serve(ctx, life); err != nil {
			return result{}, err
		}
		if err := context.Cause(ctx); err != nil {
			return result{}, err
		}
		select {
		case <-c.finished:
			return result{params: c.shelf.newest.Params, lives: life}, nil
		default: // the server is dead and the run is not over, so start it again
		}
	}
}

// work is one worker. worker.Run returns when the run is over; until then it survives the deaths of
// the server.
func (c *cluster) work(ctx context.Context, slot int, gradient worker.Gradient) error {
	return worker.Run(ctx, worker.Config{
		Slot: kintsugi.Slot(slot), Incarnation: 1, Layout: c.job.layout, Device: kernels.Best(), Gradient: gradient,
		Pace: agg.Config{}.Pace(),
		Log:  slog.New(slog.DiscardHandler),
	}, c.views[slot])
}

// serve is one life of the server. It ends when the run is over or the server is killed.
func (c *cluster) serve(ctx context.Context, life kintsugi.Incarnation) error {
	ctx, die := context.WithCancel(ctx)
	defer die()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := server.New(server.Config{
		ID: 0, Incarnation: life, Layout: c.job.layout, Device: kernels.Best(), Threads: 1, Slots: workers,
		// Consistency has its zero value: each step waits for every worker.
		Schedule:    conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: c.job.rate},
		Steps:       c.job.steps,
		SaveEvery:   10,
		StartGrace:  time.Minute, // how long the first step waits for missing workers
		RejoinGrace: time.Minute, // how long the first step after a restart of the server waits
		LeaveGrace:  time.Minute, // how long a step waits for a worker whose connection is broken
		Load:        c.shelf.load, Save: c.shelf.save, NextFence: c.shelf.nextFence,
		Publish: func(_ context.Context, p server.Checkpoint) (string, error) {
			name := c.shelf.publish(p)
			if c.kill > 0 && p.Step >= c.kill && life == 1 {
				die() // like a power cut: streams break, and everything the server knew is lost
			}
			return name, nil
		},
		Done: func(context.Context, kintsugi.Done) error { return nil }, // nothing to do: the conductor tells the workers
		Log:  slog.New(slog.DiscardHandler),
	})
	view, err := c.view(ctx, life, lis.Addr().String())
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	own := make(chan kintsugi.View, 1)
	own <- view
	go func() {
		for _, v := range c.views {
			select {
			case v <- view:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-c.finished:
			die()
		case <-ctx.Done():
		}
	}()
	return s.Run(ctx, lis, own)
}

// view returns the view for one life of the server. One server holds everything, so there is one
// shard, and its chain is that server alone. Each life has a new line, since the steps after the
// checkpoint are computed again.
func (c *cluster) view(ctx context.Context, life kintsugi.Incarnation, address string) (kintsugi.View, error) {
	fence, err := c.shelf.nextFence(ctx, kintsugi.View{})
	v := kintsugi.View{
		Number: kintsugi.ViewNumber(life), Line: kintsugi.Line(life), Fence: fence, Conductor: 0,
		Servers: []kintsugi.Member{{Server: 0, Incarnation: life, Address: address}},
		Chains:  [][]kintsugi.ServerID{{0}},
		Reason:  "the server has started",
	}
	v.Restore, v.RestoreStep = c.shelf.name()
	return v, err
}

// shelf keeps the newest checkpoint in memory. `kintsugi train` uses files, which survive the
// process. Servers call its methods from several goroutines.
type shelf struct {
	job job

	mu     sync.Mutex
	saved  map[string]server.Shard // by name, until one of them is published
	newest server.Shard
	label  string // name of newest; empty: there is none yet
	fence  kintsugi.Fence
}

// load fills s with the state that the view starts from.
func (f *shelf) load(_ context.Context, v kintsugi.View, s *server.Shard) error {
	if v.Restore == "" {
		f.job.start(s.Params) // s has all parameters, since one shard is the whole model
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(s.Params, f.newest.Params)
	for i := range s.State { // state of the optimizer: Adam has two values for each parameter
		copy(s.State[i], f.newest.State[i])
	}
	s.Step = f.newest.Step
	return nil
}

// save copies a version. It must copy, since the server uses the memory again.
func (f *shelf) save(_ context.Context, v kintsugi.View, s server.Shard) (name string, bytes uint64, err error) {
	s.Params = slices.Clone(s.Params)
	s.State = slices.Clone(s.State)
	for i := range s.State {
		s.State[i] = slices.Clone(s.State[i])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name = fmt.Sprintf("line %d step %d", v.Line, s.Step)
	f.saved[name] = s
	return name, uint64(4 * len(s.Params) * (1 + len(s.State))), nil
}

// publish makes a saved version the newest. The conductor calls it when all shards are saved; here
// there is one.
func (f *shelf) publish(c server.Checkpoint) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.label = c.Manifests[0]
	f.newest = f.saved[f.label]
	delete(f.saved, f.label)
	return f.label
}

// name returns the name of the newest checkpoint and its step.
func (f *shelf) name() (string, kintsugi.Step) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.label, f.newest.Step
}

// nextFence returns a number larger than any before. It distinguishes a server that was thought
// dead, but is alive, from the server that has replaced it.
func (f *shelf) nextFence(_ context.Context, v kintsugi.View) (kintsugi.Fence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fence = max(f.fence, v.Fence) + 1
	return f.fence, nil
}
