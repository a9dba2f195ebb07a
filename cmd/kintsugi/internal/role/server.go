package role

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// ServerCommand returns the command of a server.
func ServerCommand() *cobra.Command {
	return Command("server", "Hold a shard of the parameters",
		"  kintsugi server --config run.yaml --index 0 --listen 10.0.0.5:7070 --etcd 10.0.0.2:2379 --store s3://models/run1",
		withIndex("server"), runServer)
}

// ServerValue is what a server registers about itself, for the coordinator.
type ServerValue struct {
	Address string              `json:"address"`
	Terms   kintsugi.Terms      `json:"terms"`
	Holds   kintsugi.Line       `json:"holds,omitempty"` // the line whose state it has found outside its process
	Whole   kintsugi.ViewNumber `json:"whole,omitempty"` // see roster.Joined
	Leaving bool                `json:"leaving,omitempty"`
	Hold    bool                `json:"hold,omitempty"`  // it alone holds some shard: the run must stand until that is saved
	Wants   *wish               `json:"wants,omitempty"` // of the conductor
	Apart   []kintsugi.Life     `json:"apart,omitempty"` // see roster.Joined
}

// workersThere returns a channel with the registered workers.
func workersThere(ctx context.Context, client *etcd.Client) <-chan map[kintsugi.Slot]kintsugi.Incarnation {
	there := make(chan map[kintsugi.Slot]kintsugi.Incarnation)
	go func() {
		defer close(there)
		for members := range client.WatchMembers(ctx, etcd.Worker) {
			alive := make(map[kintsugi.Slot]kintsugi.Incarnation, len(members))
			for _, m := range members {
				alive[kintsugi.Slot(m.Index)] = m.Incarnation
			}
			select {
			case there <- alive:
			case <-ctx.Done():
			}
		}
	}()
	return there
}

func runServer(ctx context.Context, p *Process) error {
	if err := cmp.Or(p.place("server", p.Servers), checkListen(p.Listen, p.Reached)); err != nil {
		return err
	}
	prob, err := job.Describe(&p.Settings)
	if err != nil {
		return err
	}
	prob.Described(true)
	consistency, err := p.Counting()
	if err != nil {
		return err
	}
	schedule, err := p.Schedule()
	if err != nil {
		return err
	}
	device, accelerator, computes, err := p.ServerDevices()
	if err != nil {
		return err
	}
	p.endsIfItHangs(accelerator)
	at, err := job.OpenPlace(ctx, p.Store, p.Creds)
	if err != nil {
		return err
	}
	enter, err := p.deaths(launch.Server)
	if err != nil {
		return err
	}
	outside, err := p.outside()
	if err != nil {
		return err
	}
	if outside != nil {
		defer func() { _ = outside.Close() }() // the process ends, which releases the lock
	}
	client, err := p.meetAgain(ctx, prob)
	if err != nil {
		return err
	}
	defer client.Close()
	over, err := newLastWord(ctx, client)
	if err != nil {
		return err
	}
	lis, address, err := p.listen()
	if err != nil {
		return err
	}
	self, err := p.takeServer(ctx, client, prob, ServerValue{Address: address, Terms: prob.Terms()}, outside, schedule.Rule)
	if self == nil {
		return errors.Join(err, lis.Close())
	}
	place := self.place
	defer p.leave(place)
	store := job.Checkpoints{Settings: &p.Settings, Problem: prob, FS: p.Limited(at.FS), Dir: at.Dir, Name: p.called(), Forgets: at.Forgets(), Log: p.log}
	s := server.New(server.Config{
		ID: kintsugi.ServerID(p.Index), Incarnation: place.Incarnation(), Layout: prob.Layout, Device: device, Threads: p.KernelThreads(1), Accelerator: accelerator,
		CopyEvery: p.Protects().Copies, NextAnswers: p.Protects().Next, Share: p.shares(), Slots: p.Workers, Consistency: consistency, Schedule: schedule, Steps: kintsugi.Step(p.Steps), SaveEvery: p.Saves().Steps, SaveAfter: p.Saves().Time, Interval: p.interval(prob.Layout, schedule.Rule),
		StartGrace: StartGrace, RejoinGrace: RejoinGrace, LeaveGrace: LeaveGrace,
		Planner: p.planner(prob.Layout, self), LoadRunning: store.LoadRunning, SaveRunning: store.SaveRunning, Copy: p.Protects().Running.Copy(), Near: p.Wire != worker.WireGRPC.String(), Marks: p.Pull == worker.PullDelta.String(),
		Load: store.Load, Save: store.Save, Publish: store.Publish, NextFence: client.ConductorFence, Outside: outside,
		Whole: self.whole, Apart: self.apart,
		Workers: func(ctx context.Context) <-chan map[kintsugi.Slot]kintsugi.Incarnation {
			return workersThere(ctx, client)
		},
		Held: sayStanding(client),
		Done: over.say, Over: over.word.Load,
		Enter: func(s server.State) { enter(string(s)) },
		TLS:   p.Creds, Window: p.WindowBytes(),
		Log: p.log,
	})
	p.heed(ctx, client, s, self)
	p.log.Info("server is up", "index", p.Index, "incarnation", place.Incarnation(), "address", address, "kernels", computes, "threads", p.KernelThreads(1))
	return p.untilOver(ctx, client, func(ctx context.Context) error {
		return p.inPlace(ctx, client, place, func(ctx context.Context) error { return s.Run(ctx, lis, client.WatchView(ctx)) })
	})
}

// takeServer fills a place of a server, and registers value with what the file outside has for that
// place. It returns nil without an error if the run ends first.
func (p *Process) takeServer(ctx context.Context, client *etcd.Client, prob *job.Problem, value ServerValue, outside *server.Outside, rule kintsugi.Rule) (*announced, error) {
	var unusable error // why the file has nothing for the place that was tried last
	place, err := p.take(ctx, client, etcd.Server, p.Servers, value.Terms, func(index uint32) any {
		value.Holds, unusable = 0, nil
		if outside != nil {
			value.Holds, unusable = outside.Holds(prob.Layout, p.Servers, kintsugi.ShardID(index), rule)
		}
		return value
	})
	if place == nil {
		return nil, err
	}
	if unusable != nil { // the first life finds an empty file
		p.log.Info("nothing to go on with outside this process: the shard comes from the checkpoint", "file", p.Outside, "why", unusable)
	}
	return &announced{place: place, value: value}, nil
}

// meetAgain is meet for a server. If the run was over and now has more steps, it says that the run
// goes on.
func (p *Process) meetAgain(ctx context.Context, prob *job.Problem) (*etcd.Client, error) {
	client, err := p.Meet(ctx, "this server", prob.Terms())
	if err != nil {
		return nil, err
	}
	if err := client.GoOn(ctx, kintsugi.Step(p.Steps)); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// heed makes a server react to requests to end or hold the run, and to notices for this process.
func (p *Process) heed(ctx context.Context, client *etcd.Client, s *server.Server, self *announced) {
	go func() {
		for stop := range client.WatchStop(ctx) {
			s.Stop(stop.Reason, stop.Checkpoint)
		}
	}()
	go func() {
		for servers := range client.WatchMembers(ctx, etcd.Server) {
			s.Hold(holding(servers))
		}
	}()
	h := handingOver{Process: p, client: client, server: s, self: self}
	p.onNotice(h.run)
}

// outside opens the file that keeps the shard when this process dies. It returns nil if there is none.
func (p *Process) outside() (*server.Outside, error) {
	if p.Outside == "" {
		return nil, nil
	}
	if protects := p.Protects(); protects.Replicas > 1 && !protects.Chooses {
		return nil, fmt.Errorf("%w: --outside keeps the one shard of a server, and with %d replicas a server has several, which are on other servers too: leave it out, or give all roles --replicas 1", kintsugi.ErrUsage, protects.Replicas)
	}
	return server.OpenOutside(p.Outside, p.Run+" "+p.Store)
}

// shares reports whether this server may share memory with other processes on its host. The
// settings are checked.
func (p *Process) shares() bool {
	wire, _ := worker.ParseWire(p.Wire)
	return wire != worker.WireGRPC
}
