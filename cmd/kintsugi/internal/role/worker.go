package role

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/notice"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// WorkerCommand returns the command of a worker.
func WorkerCommand() *cobra.Command {
	return Command("worker", "Compute gradients",
		"  kintsugi worker --config run.yaml --index 3 --etcd 10.0.0.2:2379",
		withIndex("worker"), func(ctx context.Context, p *Process) error { return cli.MeetsAgain(runWorker(ctx, p)) })
}

// WorkerValue is what a worker registers about itself. With its PID, the process that has started
// it empties its place when it dies.
type WorkerValue struct {
	PID int `json:"pid"`
}

// slowness returns the factor by which a fault slows down this worker.
func (p *Process) slowness() float64 {
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

// travels returns how gradients are encoded and transferred.
func (p *Process) travels() (compress.Codec, worker.Wire, error) {
	codec, err := compress.Parse(p.Codec)
	if err != nil {
		return nil, 0, err
	}
	wire, err := worker.ParseWire(p.Wire)
	return codec, wire, err
}

func runWorker(ctx context.Context, p *Process) error {
	if err := p.place("worker", p.Workers); err != nil {
		return err
	}
	lib, err := job.UseBLAS(&p.Settings)
	if err != nil {
		return err
	}
	prob, err := job.Describe(&p.Settings)
	if err != nil {
		return err
	}
	if err := prob.Open(&p.Settings); err != nil {
		return err
	}
	if err := prob.ForWorker(p.log); err != nil {
		return err
	}
	device, err := p.KernelDevice()
	if err != nil {
		return err
	}
	enter, err := p.deaths(launch.Worker)
	if err != nil {
		return err
	}
	gradient, m, err := prob.Compute(ctx, &p.Settings)
	if err != nil {
		return err
	}
	defer m.Close()
	p.endsIfItHangs(m)
	client, err := p.Meet(ctx, "this worker", prob.Terms())
	if err != nil {
		return err
	}
	defer client.Close()
	place, err := p.take(ctx, client, etcd.Worker, p.Workers, prob.Terms(), func(uint32) any { return WorkerValue{PID: os.Getpid()} })
	if place == nil {
		return err
	}
	defer p.leave(place)
	consistency, err := p.Counting()
	if err != nil {
		return err
	}
	schedule, err := p.Schedule()
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
	encoded, err := prob.Encode(m, codec, consistency.Pace(), p.Seed)
	if err != nil {
		return err
	}
	memory, err := p.memoryOf(ctx, prob, m, consistency)
	if err != nil {
		return err
	}
	p.log.Info("worker is up", "index", p.Index, "incarnation", place.Incarnation(), "engine", p.Engine, "device", p.Computes(m), "threads", p.ThreadsOf(m), "blas", job.Multiplies(m, lib), "kernels", device.Name(), "codec", codec.Name())
	leaving := make(chan struct{})
	p.onNotice(func(ctx context.Context, _ notice.Notice) {
		close(leaving)
		<-ctx.Done()
	})
	cfg := worker.Config{
		Leave: leaving,
		Slot:  kintsugi.Slot(p.Index), Incarnation: place.Incarnation(), Layout: prob.Layout, Device: device,
		Gradient: gradient, InPlace: memory, Layers: prob.Layers, Reconcile: prob.Reconcile, Codec: codec, Encoded: encoded, Wire: wire, Pull: pull, Seed: p.Seed, Pace: consistency.Pace(),
		Rate: job.LongRate(schedule), Slow: p.slowness, AtLeast: p.LeastTime(), Enter: func(s worker.State) { enter(string(s)) }, TLS: p.Creds, Window: p.WindowBytes(), Log: p.log,
	}
	return p.inPlace(ctx, client, place, func(ctx context.Context) error { return p.work(ctx, cfg, client) })
}

// memoryOf returns the memory in which m uses parameters and leaves gradients without a copy, if it
// may be read into. With other consistencies a worker reads parameters while a gradient on older ones
// is computed.
func (p *Process) memoryOf(ctx context.Context, prob *job.Problem, m io.Closer, c agg.Config) (*worker.InPlace, error) {
	if !c.Certain() || c.Busy == kintsugi.Wait {
		return nil, nil
	}
	return prob.InPlace(ctx, &p.Settings, m)
}

// work is the life of a worker: until the run is over, or until it is asked to leave.
func (p *Process) work(ctx context.Context, cfg worker.Config, client *etcd.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go p.endsAlone(ctx, client, cancel)
	for {
		err := worker.Run(ctx, cfg, client.WatchView(ctx))
		if errors.Is(err, context.Canceled) || errors.Is(err, worker.ErrLeft) {
			return nil // asked to leave, or the run is over
		}
		if err != nil {
			return err
		}
		if p.runIsOver(ctx, client) {
			p.over.Store(true)
			return nil
		}
		if ctx.Err() != nil {
			return nil // asked to leave before the message arrived, as by a launcher that already knows
		}
		p.log.Warn("a conductor said that the run is over, but the run did not end: it was one of the past")
	}
}

// doneWithin is how long etcd may take to have a conductor's declaration that the run is over.
const doneWithin = 5 * time.Second

// runIsOver reports whether the run has ended for everybody. A conductor that was replaced and does
// not know it may also say so. A worker that believed it would be missing on the line that goes on.
func (p *Process) runIsOver(ctx context.Context, client *etcd.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, doneWithin)
	defer cancel()
	return p.ends(ctx, client)
}
