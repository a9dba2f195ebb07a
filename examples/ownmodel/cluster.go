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

// job is what a run must know of a model.
type job struct {
	name   string
	layout *kintsugi.Layout
	start  func(params []float32) // fills the parameters of version 0; they are zeros before
	rate   float64
	steps  kintsugi.Step

	// gradient makes the gradient function of one worker, and a function that frees what it uses.
	gradient func() (worker.Gradient, func() error, error)

	// judge says in words how good parameters are.
	judge func(params []float32) (string, error)
}

// result is what a run ends with.
type result struct {
	params []float32
	lives  kintsugi.Incarnation // of the server
}

// cluster is one server and its workers. The parts of a run find one another by a view: who the servers
// are, at which address, and what they start from. `kintsugi train` has a coordinator and etcd for that;
// here the views are made by hand and told on channels.
type cluster struct {
	job      job
	kill     kintsugi.Step               // the server dies once it has a checkpoint of this step; 0: never
	views    [workers]chan kintsugi.View // to the workers
	shelf    shelf
	finished chan struct{} // closed when every worker has returned
}

// train trains j, and kills the server when it has a checkpoint of step kill, or a later one; 0: it is left
// alone.
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
		default: // the server is dead and the run is not over: start it again
		}
	}
}

// work is a worker. Run returns when the run is over; until then it outlives what happens to the server.
func (c *cluster) work(ctx context.Context, slot int, gradient worker.Gradient) error {
	return worker.Run(ctx, worker.Config{
		Slot: kintsugi.Slot(slot), Incarnation: 1, Layout: c.job.layout, Device: kernels.Best(), Gradient: gradient,
		Pace: agg.Config{}.Pace(),
		Log:  slog.New(slog.DiscardHandler),
	}, c.views[slot])
}

// serve is one life of the server. It ends when the run does, or by its death.
func (c *cluster) serve(ctx context.Context, life kintsugi.Incarnation) error {
	ctx, die := context.WithCancel(ctx)
	defer die()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := server.New(server.Config{
		ID: 0, Incarnation: life, Layout: c.job.layout, Device: kernels.Best(), Threads: 1, Slots: workers,
		// Consistency is left at its zero value: each step waits for every worker.
		Schedule:    conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: c.job.rate},
		Steps:       c.job.steps,
		SaveEvery:   10,
		StartGrace:  time.Minute, // how long the first step waits for workers that are missing
		RejoinGrace: time.Minute, // the same after a death of the server
		LeaveGrace:  time.Minute, // how long a step waits for a worker whose connection broke
		Load:        c.shelf.load, Save: c.shelf.save, NextFence: c.shelf.nextFence,
		Publish: func(_ context.Context, p server.Checkpoint) (string, error) {
			name := c.shelf.publish(p)
			if c.kill > 0 && p.Step >= c.kill && life == 1 {
				die() // as if the power were cut: streams break, and what the server knew is gone
			}
			return name, nil
		},
		Done: func(context.Context, kintsugi.Done) error { return nil }, // the workers are told as well
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

// view describes a life of the server. One server holds everything, so that there is one shard, whose chain
// is that server alone. Each life is another line: the steps since the checkpoint are computed again.
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

// shelf keeps the newest checkpoint in memory. `kintsugi train` has files for that, which outlive more.
// Servers call it from several goroutines.
type shelf struct {
	job job

	mu     sync.Mutex
	saved  map[string]server.Shard // by name, until one of them is published
	newest server.Shard
	label  string // of newest; empty: none yet
	fence  kintsugi.Fence
}

// load fills s with what the view starts from.
func (f *shelf) load(_ context.Context, v kintsugi.View, s *server.Shard) error {
	if v.Restore == "" {
		f.job.start(s.Params) // all of them: one shard is the whole model
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(s.Params, f.newest.Params)
	for i := range s.State { // the optimizer's: Adam has two numbers for each parameter
		copy(s.State[i], f.newest.State[i])
	}
	s.Step = f.newest.Step
	return nil
}

// save copies a version, which the server needs back.
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

// publish makes a saved version the newest. The conductor asks for it when all shards are saved: here, one.
func (f *shelf) publish(c server.Checkpoint) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.label = c.Manifests[0]
	f.newest = f.saved[f.label]
	delete(f.saved, f.label)
	return f.label
}

// name returns the newest checkpoint and its step.
func (f *shelf) name() (string, kintsugi.Step) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.label, f.newest.Step
}

// nextFence returns a number that is larger than any before. With it a server that was thought dead and
// is not is told apart from the one in its place.
func (f *shelf) nextFence(_ context.Context, v kintsugi.View) (kintsugi.Fence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fence = max(f.fence, v.Fence) + 1
	return f.fence, nil
}
