package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/cost"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/notice"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/recovery"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/object"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// lease is how long after its death a process that nobody replaces is still believed to live.
const lease = 5 * time.Second

// Grace periods of the conductor: guesses, generous where waiting costs little.
const (
	startGrace  = 60 * time.Second // for workers to be there at the start: they may be opening data
	rejoinGrace = 5 * time.Second  // for workers to come back after a restore
	leaveGrace  = time.Second      // for a worker's broken stream to come back
)

// process is one role of a cluster.
type process struct {
	settings
	Config  string
	Etcd    []string
	Run     string
	Store   string
	Index   int
	Listen  string
	Control string
	Outside string
	Price   string
	notices
	security

	flags *pflag.FlagSet
	log   *slog.Logger
	tls   *mtls.Credentials // nil: plain TCP

	handOver atomic.Pointer[func(context.Context, notice.Notice)] // what to do after a notice; nil: nothing
	over     atomic.Bool                                          // the run is: there is nothing to start again for
}

const storeDefault = "checkpoints"

// register adds the flags that all roles share.
func (p *process) register(f *pflag.FlagSet) {
	p.settings.register(f)
	p.notices.register(f)
	p.security.register(f)
	f.StringVar(&p.Config, "config", "", "YAML file of settings; flags win over it")
	f.StringSliceVar(&p.Etcd, "etcd", []string{"127.0.0.1:2379"}, "addresses of etcd")
	f.StringVar(&p.Run, "run", "default", "name of the run in etcd")
	f.StringVar(&p.Store, "store", storeDefault, "folder or s3://bucket/prefix?endpoint=URL of the checkpoint, the same for all servers and the coordinator; keys come from the environment")
	p.flags = f
}

// roleCommand returns the command of a role whose work is done by run.
func roleCommand(use, short, example string, more func(*process, *pflag.FlagSet), run func(context.Context, *process) error) *cobra.Command {
	p := &process{}
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, Args: programAfterDash,
		RunE: func(cmd *cobra.Command, _ []string) error {
			device := p.flags.Changed("device") && !p.flags.Changed("server-device")
			if err := load(p.flags, p.Config); err != nil {
				return err
			}
			p.Store = cmp.Or(p.Store, storeDefault) // in the settings of a run of train an empty one is below its folder
			if device && use == "server" {          // its own, not that of the workers, which the file has
				p.ServerDevice = p.Device
			}
			if err := p.check(); err != nil {
				return err
			}
			var err error
			if p.log, err = newLog(os.Stderr, p.LogLevel, onTerminal()); err != nil {
				return err
			}
			if err := p.checkNotices(p.Warning); err != nil {
				return err
			}
			role := mtls.Role(use)
			if use == "monitor" {
				role = mtls.Operator
			}
			if p.tls, err = p.credentials(cmd.Context(), role, p.Index, p.log); err != nil {
				return err
			}
			return p.untilNotice(cmd.Context(), run)
		},
	}
	p.register(cmd.Flags())
	if more != nil {
		more(p, cmd.Flags())
	}
	return cmd
}

func withIndex(what string) func(*process, *pflag.FlagSet) {
	return func(p *process, f *pflag.FlagSet) {
		f.IntVar(&p.Index, "index", 0, "place of this "+what+" in the run, from 0")
		if what == "server" {
			f.StringVar(&p.Listen, "listen", "127.0.0.1:0", "host:port to serve on; workers and servers must reach it")
			f.StringVar(&p.Price, "price", "", "what nodes cost, for --recovery auto: "+cost.Forms)
			f.StringVar(&p.Outside, "outside", "", "file in memory (/dev/shm) that keeps the shard when this process dies; empty: none")
		}
		f.StringVar(&p.Control, "control", "", "folder where a launcher leaves word for this "+what)
	}
}

func serverCommand() *cobra.Command {
	return roleCommand("server", "Hold a shard of the parameters",
		"  kintsugi server --config run.yaml --index 0 --listen 10.0.0.5:7070 --etcd 10.0.0.2:2379 --store s3://models/run1",
		withIndex("server"), runServer)
}

func workerCommand() *cobra.Command {
	return roleCommand("worker", "Compute gradients",
		"  kintsugi worker --config run.yaml --index 3 --etcd 10.0.0.2:2379",
		withIndex("worker"), func(ctx context.Context, p *process) error { return meetsAgain(runWorker(ctx, p)) })
}

func coordinatorCommand() *cobra.Command {
	return roleCommand("coordinator", "Decide which server holds which shard",
		"  kintsugi coordinator --config run.yaml --etcd 10.0.0.2:2379 --store s3://models/run1",
		nil, runCoordinator)
}

// serverValue is what a server tells the coordinator of itself.
type serverValue struct {
	Address string              `json:"address"`
	Terms   kintsugi.Terms      `json:"terms"`
	Holds   kintsugi.Line       `json:"holds,omitempty"` // the line whose state it has found outside of itself
	Whole   kintsugi.ViewNumber `json:"whole,omitempty"` // see roster.Joined
	Leaving bool                `json:"leaving,omitempty"`
	Hold    bool                `json:"hold,omitempty"`  // nobody else has what it holds: the run is to stand until it is durable
	Wants   *wish               `json:"wants,omitempty"` // of whoever conducts
}

// workerValue is what a worker tells of itself: by its PID whoever has started it empties its place when it dies.
type workerValue struct {
	PID int `json:"pid"`
}

// workersThere tells which workers are registered.
func workersThere(ctx context.Context, client *etcd.Client) <-chan []kintsugi.Slot {
	there := make(chan []kintsugi.Slot)
	go func() {
		defer close(there)
		for members := range client.WatchMembers(ctx, etcd.Worker) {
			var slots []kintsugi.Slot
			for _, m := range members {
				slots = append(slots, kintsugi.Slot(m.Index))
			}
			select {
			case there <- slots:
			case <-ctx.Done():
			}
		}
	}()
	return there
}

// place checks --index against the number of places.
func (p *process) place(what string, n int) error {
	if p.Index < 0 || p.Index >= n {
		return fmt.Errorf("%w: --index %d: the run has %d %ss, numbered from 0", kintsugi.ErrUsage, p.Index, n, what)
	}
	return nil
}

func runServer(ctx context.Context, p *process) error {
	if err := cmp.Or(p.place("server", p.Servers), checkListen(p.Listen)); err != nil {
		return err
	}
	prob, err := describe(&p.settings)
	if err != nil {
		return err
	}
	consistency, err := p.counting()
	if err != nil {
		return err
	}
	schedule, err := p.schedule()
	if err != nil {
		return err
	}
	device, accelerator, computes, err := p.serverDevices()
	if err != nil {
		return err
	}
	at, err := openPlace(ctx, p.Store, p.tls)
	if err != nil {
		return err
	}
	enter, err := p.deaths(launch.Server)
	if err != nil {
		return err
	}
	if protects := p.protects(); p.Outside != "" && protects.replicas > 1 && !protects.chooses {
		return fmt.Errorf("%w: --outside keeps the one shard of a server; with --replicas a server has several", kintsugi.ErrUsage)
	}
	outside, holds, err := p.outside(prob, schedule.Rule)
	if err != nil {
		return err
	}
	if outside != nil {
		defer func() { _ = outside.Close() }() // the process ends, and the lock with it
	}
	client, err := p.meet(ctx, "this server", prob.terms())
	if err != nil {
		return err
	}
	defer client.Close()
	lis, address, err := p.listen()
	if err != nil {
		return err
	}
	value := serverValue{Address: address, Terms: prob.terms(), Holds: holds}
	place, err := client.Register(ctx, etcd.Server, uint32(p.Index), value, lease)
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	defer leave(place)
	self := &announced{place: place, value: value}
	store := checkpoints{settings: &p.settings, problem: prob, fs: p.limited(at.fs), dir: at.dir, log: p.log}
	s := server.New(server.Config{
		ID: kintsugi.ServerID(p.Index), Incarnation: place.Incarnation(), Layout: prob.layout, Device: device, Threads: p.kernelThreads(), Accelerator: accelerator,
		CopyEvery: p.protects().copies, NextAnswers: p.protects().next, Share: p.shares(), Slots: p.Workers, Consistency: consistency, Schedule: schedule, Steps: kintsugi.Step(p.Steps), SaveEvery: p.saveEvery(),
		StartGrace: startGrace, RejoinGrace: rejoinGrace, LeaveGrace: leaveGrace,
		Planner: p.planner(prob.layout, self), LoadRunning: store.loadRunning, SaveRunning: store.saveRunning, Copy: p.protects().running.copy(), Near: p.Wire != worker.WireGRPC.String(), Marks: p.Pull == worker.PullDelta.String(),
		Load: store.load, Save: store.save, Publish: store.publish, NextFence: client.NextFence, Outside: outside,
		Whole: func(ctx context.Context, since kintsugi.ViewNumber) error {
			return self.tell(ctx, func(v *serverValue) { v.Whole = since })
		},
		Workers: func(ctx context.Context) <-chan []kintsugi.Slot { return workersThere(ctx, client) },
		Held:    p.sayStanding(client),
		Done: func(d kintsugi.Done) {
			if _, err := client.PutDone(ctx, d); err != nil {
				p.log.Error("say that the run is over", "err", err)
			}
		},
		Enter: func(s server.State) { enter(string(s)) },
		TLS:   p.tls, Window: p.window(),
		Log: p.log,
	})
	p.heed(ctx, client, s, self)
	p.log.Info("server is up", "index", p.Index, "incarnation", place.Incarnation(), "address", address, "kernels", computes)
	return p.inPlace(ctx, place, func(ctx context.Context) error { return s.Run(ctx, lis, client.WatchView(ctx)) })
}

// heed has a server hear of those who want the run to end, or to stand, and of what takes this process away.
func (p *process) heed(ctx context.Context, client *etcd.Client, s *server.Server, self *announced) {
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
	h := handingOver{process: p, client: client, server: s, self: self}
	p.onNotice(h.run)
}

// outside opens the file that keeps the shard when this process dies, and says of which line it holds the state; nil if there is none.
func (p *process) outside(prob *problem, rule kintsugi.Rule) (*server.Outside, kintsugi.Line, error) {
	if p.Outside == "" {
		return nil, 0, nil
	}
	o, err := server.OpenOutside(p.Outside, p.Run+" "+p.Store)
	if err != nil {
		return nil, 0, err
	}
	line, err := o.Holds(prob.layout, p.Servers, kintsugi.ShardID(p.Index), rule)
	if err != nil { // the first life finds an empty file
		p.log.Info("nothing to go on with outside this process: the shard comes from the checkpoint", "file", p.Outside, "why", err)
	}
	return o, line, nil
}

// leave gives a place back so that nobody waits for the lease.
func leave(r *etcd.Registration) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.Close(ctx) // the lease ends what this cannot
}

// shares reports whether this server may share memory with others of its host. The settings are checked.
func (p *process) shares() bool {
	wire, _ := worker.ParseWire(p.Wire)
	return wire != worker.WireGRPC
}

// deaths arms what a fault has ordered for this process, if there is a launcher.
func (p *process) deaths(role launch.Role) (enter func(state string), err error) {
	if p.Control == "" {
		return func(string) {}, nil
	}
	return launch.Deaths(p.Control, launch.Part{Role: role, Index: p.Index}, func() error {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
}

// slowness is by how much a fault has this worker take longer.
func (p *process) slowness() float64 {
	if p.Control == "" {
		return 1
	}
	factor, err := launch.SlowFactor(p.Control, p.Index)
	if err != nil {
		p.log.Warn("read the slow factor", "err", err)
		return 1
	}
	return factor
}

// travels returns how gradients travel.
func (p *process) travels() (compress.Codec, worker.Wire, error) {
	codec, err := compress.Parse(p.Codec)
	if err != nil {
		return nil, 0, err
	}
	wire, err := worker.ParseWire(p.Wire)
	return codec, wire, err
}

func runWorker(ctx context.Context, p *process) error {
	if err := p.place("worker", p.Workers); err != nil {
		return err
	}
	lib, err := useBLAS(&p.settings)
	if err != nil {
		return err
	}
	prob, err := describe(&p.settings)
	if err != nil {
		return err
	}
	if err := prob.open(&p.settings); err != nil {
		return err
	}
	if prob.program != nil {
		prob.program.output, prob.program.initial = &lines{log: p.log}, nil // that are the servers' to begin with
	}
	device, err := p.kernelDevice()
	if err != nil {
		return err
	}
	enter, err := p.deaths(launch.Worker)
	if err != nil {
		return err
	}
	gradient, m, err := prob.compute(ctx, &p.settings)
	if err != nil {
		return err
	}
	defer m.Close()
	client, err := p.meet(ctx, "this worker", prob.terms())
	if err != nil {
		return err
	}
	defer client.Close()
	place, err := client.Register(ctx, etcd.Worker, uint32(p.Index), workerValue{PID: os.Getpid()}, lease)
	if err != nil {
		return err
	}
	defer leave(place)
	consistency, err := p.counting()
	if err != nil {
		return err
	}
	schedule, err := p.schedule()
	if err != nil {
		return err
	}
	codec, wire, err := p.travels()
	if err != nil {
		return err
	}
	pull, err := worker.ParsePull(p.Pull)
	if err != nil {
		return err
	}
	encoded, err := prob.encode(m, codec, consistency.Pace(), p.Seed)
	if err != nil {
		return err
	}
	p.log.Info("worker is up", "index", p.Index, "incarnation", place.Incarnation(), "engine", p.Engine, "device", p.computes(m), "blas", multiplies(m, lib), "kernels", device.Name(), "codec", codec.Name())
	leaving := make(chan struct{})
	p.onNotice(func(ctx context.Context, _ notice.Notice) {
		close(leaving)
		<-ctx.Done()
	})
	cfg := worker.Config{
		Leave: leaving,
		Slot:  kintsugi.Slot(p.Index), Incarnation: place.Incarnation(), Layout: prob.layout, Device: device,
		Gradient: gradient, Layers: prob.layers, Reconcile: prob.reconcile, Codec: codec, Encoded: encoded, Wire: wire, Pull: pull, Seed: p.Seed, Pace: consistency.Pace(),
		Rate: longRate(schedule), Slow: p.slowness, AtLeast: p.GradientTime, Enter: func(s worker.State) { enter(string(s)) }, TLS: p.tls, Window: p.window(), Log: p.log,
	}
	return p.inPlace(ctx, place, func(ctx context.Context) error { return p.work(ctx, cfg, client) })
}

// work is the life of a worker: until the run is over or it is asked to leave.
func (p *process) work(ctx context.Context, cfg worker.Config, client *etcd.Client) error {
	for {
		err := worker.Run(ctx, cfg, client.WatchView(ctx))
		if errors.Is(err, context.Canceled) || errors.Is(err, worker.ErrLeft) {
			return nil // asked to leave
		}
		if err != nil {
			return err
		}
		if p.runIsOver(ctx, client) {
			p.over.Store(true)
			return nil
		}
		if ctx.Err() != nil {
			return nil // asked to leave before the word was here, as by a launcher that has heard it
		}
		p.log.Warn("a conductor said that the run is over, but the run did not end: it was one of the past")
	}
}

// doneWithin is how long after a conductor's last word etcd has it too, if the word counts.
const doneWithin = 5 * time.Second

// runIsOver reports whether the run has ended for all to see. A conductor that was replaced and does not
// know it may say so as well; a worker that believed it would be missing on the line that goes on.
func (p *process) runIsOver(ctx context.Context, client *etcd.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, doneWithin)
	defer cancel()
	return p.ends(ctx, client)
}

// ends waits for the end of the run, and reports whether it came before that of ctx. The word of fewer steps than the run has now is that of a time when it
// had no more.
func (p *process) ends(ctx context.Context, client *etcd.Client) bool {
	for d := range client.WatchDone(ctx) {
		if d.Ends(kintsugi.Step(p.Steps)) {
			return true
		}
	}
	return false
}

func runCoordinator(ctx context.Context, p *process) error {
	prob, err := describe(&p.settings)
	if err != nil {
		return err
	}
	at, err := openPlace(ctx, p.Store, p.tls)
	if err != nil {
		return err
	}
	if err := at.probe(); errors.Is(err, object.ErrAway) {
		p.log.Warn("the store does not answer; the first view waits for it", "err", err)
	} else if err != nil {
		return err
	}
	client, err := etcd.Dial(ctx, p.Etcd, p.Run, etcd.WithTLS(p.tls))
	if err != nil {
		return err
	}
	defer client.Close()
	store := checkpoints{settings: &p.settings, problem: prob, fs: at.fs, dir: at.dir, log: p.log}
	protects := p.protects()
	c, err := recovery.NewCoordinator(recovery.Config{
		Etcd: client, Terms: prob.terms(), Newest: store.newest, TLS: p.tls, Log: p.log,
		Roster: roster.Config{
			Servers: p.Servers, Replicas: protects.replicas, LapsesForgiven: true, Partial: protects.running != nil, Copies: protects.copies > 0,
			NextAnswers: protects.next,
			Chooses:     protects.chooses, MoveAfter: time.Duration(p.MoveAfter),
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before Wait
	wg.Go(func() {
		if p.ends(ctx, client) {
			p.over.Store(true)
		}
	})
	return c.Run(ctx)
}
