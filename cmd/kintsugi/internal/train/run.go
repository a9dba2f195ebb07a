package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/launch/report"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/notice"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
)

// run is one run of the local cluster, from the first process to the report.
type run struct {
	*Training
	*watcher
	faults  []launch.Fault
	earlier []record.Evaluation // of earlier parts of the run
	stdout  io.Writer
	blas    string

	cluster *launch.Cluster
	inject  *launch.Injector
	state   *launch.Outside // nil: servers keep nothing outside their processes
	start   time.Time
	metrics net.Listener // nil: metrics are not served
	id      string       // of this part of the run, for the store of its checkpoints

	etcdFailed <-chan error // nil: the etcd does not run in this process
}

// main runs the cluster and reports the outcome.
func (r *run) main(ctx context.Context) error {
	role.BoundGarbage()
	r.display = launch.NewDisplay(cli.Stderr, os.Stderr, nil)
	log, err := cli.NewLog(r.display, r.LogLevel, cli.OnTerminal()) // prints above the progress line
	if err != nil {
		return err
	}
	r.log = log
	r.display.SetLog(log)
	log.Info("training", "model", r.Model, "device", r.DeviceName()+r.WhyNoGPU())
	if r.passed != "" {
		log.Warn(r.passed)
	}
	r.endsEarly(&r.early, r.Out, r.earlier)
	if err := r.drawFigures(r.Figures, r.Out); err != nil {
		return err
	}
	done, err := r.train(ctx)
	if err == nil {
		err = r.final(ctx, done)
	}
	reason := done.Reason
	if err != nil {
		reason = err.Error()
	}
	r.mu.Lock()
	r.display.Close(r.meter.At(time.Now()))
	r.mu.Unlock()
	run, recErr := r.rec.Finish(time.Now(), reason)
	recErr = errors.Join(recErr, r.drawn())
	page, drawErr := report.DrawRun(run)
	r.print(r.stdout, run.Summary, done, r.Out, page)
	if err == nil && !record.Has(r.Out) { // the run's folder is gone; do not report the consequences
		err = fmt.Errorf("%s has lost the events of this run: somebody has removed or moved them, or the folder, while the run went on, so that there is no report; look whether its checkpoints are there still", r.Out)
	} else if err == nil {
		err = errors.Join(recErr, drawErr)
	}
	stopped := stoppedBy(done.Reason)
	switch {
	case err != nil && stopped != nil: // whoever requested the end is told that it has ended
		return fmt.Errorf("%w: %w", stopped, err)
	case err != nil:
		return err
	}
	return stopped
}

// stoppedBy returns the signal or notice error that corresponds to the reason of a run's end, or
// nil.
func stoppedBy(reason string) error {
	for _, end := range []error{cli.ErrInterrupted, cli.ErrPreempted} {
		if reason == end.Error() {
			return end
		}
	}
	return nil
}

// train starts the cluster and waits until the run is over.
func (r *run) train(ctx context.Context) (kintsugi.Done, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	if r.tls, err = r.Credentials(ctx, mtls.Operator, mtls.Any, r.log); err != nil {
		return kintsugi.Done{}, err
	}
	name, endpoints, closeEtcd, err := r.startEtcd(ctx)
	if err != nil {
		return kintsugi.Done{}, err
	}
	defer closeEtcd()
	if r.client, err = job.DialEtcd(ctx, endpoints, name, etcd.WithTLS(r.tls)); err != nil {
		return kintsugi.Done{}, err
	}
	defer r.client.Close()
	r.creds = r.tls
	if err := r.client.Reopen(ctx); err != nil {
		return kintsugi.Done{}, err
	}
	r.cluster, err = launch.New(launch.Config{Logs: record.LogsDir(r.Out), Observe: r.observe, Warning: r.Warning})
	if err != nil {
		return kintsugi.Done{}, err
	}
	if r.Protects().Outside {
		if r.state, err = launch.NewOutside(r.Servers, r.Out); err != nil {
			return kintsugi.Done{}, errors.Join(err, r.cluster.Stop(ctx))
		}
		defer func() {
			if err := r.state.Remove(); err != nil {
				r.log.Error("remove what servers kept outside of themselves", "err", err)
			}
		}()
	}
	defer r.stopCluster() // before that memory is released
	killed := make(chan error, 1)
	go r.signals(ctx, killed)

	r.inject = launch.NewInjector(launch.NewSchedule(r.faults), r.cluster, launch.SlowFiles(record.ControlDir(r.Out)), r.injected)
	if r.state != nil {
		r.inject.Forget(func(p launch.Part) error { return r.state.Forget(p.Index) })
	}
	r.serveMetrics(ctx, r.metrics)
	r.onStep = func(s kintsugi.Step) {
		r.cluster.Progressed()
		r.inject.Released(s)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before Wait
	wg.Go(func() {
		for _, f := range r.inject.Run(ctx, r.start) {
			r.note("warn", fmt.Sprintf("the run was over before %q", f))
		}
	})
	wg.Go(func() { r.follow(ctx) })
	wg.Go(func() { r.sayWaits(ctx) })
	wg.Go(func() { r.evaluate(ctx) })
	wg.Go(func() { r.progress(ctx) })
	if r.metrics != nil {
		wg.Go(func() { r.count(ctx, launch.Server) })
		wg.Go(func() { r.count(ctx, launch.Worker) })
	}
	if err := r.startProcesses(name, endpoints); err != nil {
		return kintsugi.Done{}, err
	}
	done, err := r.over(ctx, killed)
	if err == nil {
		r.hearOut(ctx)
		// If another run has taken the store, only the checkpoints of this run count.
		var v *kintsugi.View
		if v, _, err = r.client.View(ctx); v != nil {
			r.id = v.Run
		}
	}
	return done, err
}

// over waits until the run is over or cannot go on.
func (r *run) over(ctx context.Context, killed <-chan error) (kintsugi.Done, error) {
	select {
	case <-role.Emptied(ctx, r.client): // only an etcd of --etcd may be
		return kintsugi.Done{}, fmt.Errorf("etcd has lost what it knew of this run; go on with: kintsugi train --resume %s", cli.Words(r.Out))
	case d, ok := <-r.client.WatchDone(ctx):
		if !ok {
			return d, ctx.Err()
		}
		return d, nil
	case err := <-r.cluster.Failed():
		return r.saveWhatIsWell(ctx, err, killed), err
	case err := <-r.etcdFailed: // without etcd, nobody could say that the run is over
		return kintsugi.Done{}, fmt.Errorf("the etcd of this run: %w; make room if a disk is full, then go on with: kintsugi train --resume %s", err, cli.Words(r.Out))
	case err := <-killed:
		return kintsugi.Done{}, err
	}
}

// saveWhatIsWell ends a run in which only gradients are missing. It saves a last checkpoint first,
// if there are steps since the previous one: the servers work normally.
func (r *run) saveWhatIsWell(ctx context.Context, err error, killed <-chan error) kintsugi.Done {
	failed, ok := errors.AsType[launch.GradientsFailed](err)
	r.mu.Lock()
	behind := r.seen.After > r.durable
	r.mu.Unlock()
	if !ok || !behind {
		return kintsugi.Done{}
	}
	ctx, cancel := context.WithTimeout(ctx, r.saveWithin())
	defer cancel()
	r.note("info", failed.Why+": ending the run after a last checkpoint")
	if err := r.client.PutStop(ctx, etcd.Stop{Checkpoint: true, Reason: failed.Why}); err != nil {
		r.note("warn", err.Error())
		return kintsugi.Done{}
	}
	select {
	case d := <-r.client.WatchDone(ctx): // closed if ctx ends
		return d
	case <-killed:
		return kintsugi.Done{}
	}
}

// startEtcd starts the etcd of the run, unless --etcd names one. It returns the name of the run and
// the endpoints.
func (r *run) startEtcd(ctx context.Context) (name string, endpoints []string, closer func(), err error) {
	if len(r.Etcd) > 0 {
		// A new name: views of an earlier run must not be taken for those of this one.
		return fmt.Sprintf("%s-%d", filepath.Base(r.Out), r.start.UnixNano()), r.Etcd, func() {}, nil
	}
	// A resumed run starts with an empty etcd: it continues from its checkpoint.
	dir := filepath.Join(r.Out, "etcd")
	if err := os.RemoveAll(dir); err != nil {
		return "", nil, nil, fmt.Errorf("clear %s: %w", dir, err)
	}
	tls, err := r.Credentials(ctx, mtls.Etcd, mtls.Any, r.log)
	if err != nil {
		return "", nil, nil, err
	}
	e, err := etcd.Embed(ctx, dir, etcd.Options{UnsafeNoFsync: true, TLS: tls})
	if err != nil {
		return "", nil, nil, err
	}
	r.etcdFailed = e.Failed()
	return "local", []string{e.Endpoint()}, e.Close, nil
}

// startProcesses fills every place of the cluster.
func (r *run) startProcesses(name string, endpoints []string) error {
	common := []string{
		"--config", filepath.Join(r.Out, "processes.yaml"), "--etcd", strings.Join(endpoints, ","), "--run", name,
		"--notice", "none", // this process watches for notices of the machine
	}
	where, err := r.StoreName()
	if err != nil {
		return err
	}
	store := []string{"--store", where}
	if err := record.WriteFile(filepath.Join(r.Out, "processes.yaml"), func(w io.Writer) error {
		_, err := w.Write(job.Dump(r.Flags, "out", "resume", "etcd", "store", "fault", "eval-every", "until", "patience", "keep-best", "price", "metrics", "tensorboard", "notice", "notice-endpoint"))
		return err
	}); err != nil {
		return fmt.Errorf("write the settings of the processes: %w", err)
	}
	var files []*os.File
	start := func(role launch.Role, i int, args ...string) error {
		return r.cluster.Start(launch.Spec{Part: launch.Part{Role: role, Index: i}, Args: append([]string{role.String()}, append(args, common...)...), Files: files})
	}
	if err := launch.OrderDeaths(record.ControlDir(r.Out), r.faults); err != nil {
		return err
	}
	if err := start(launch.Coordinator, 0, store...); err != nil {
		return err
	}
	for i := range r.Servers {
		args := append([]string{"--index", strconv.Itoa(i), "--control", record.ControlDir(r.Out), "--threads", strconv.Itoa(r.KernelThreads(r.Servers))}, store...)
		if r.state != nil {
			args, files = append(args, "--outside", launch.Path), []*os.File{r.state.File(i)}
		}
		if r.Price != "" {
			args = append(args, "--price", r.Price)
		}
		if err := start(launch.Server, i, args...); err != nil {
			return err
		}
	}
	files = nil
	for i := range r.Workers {
		if err := start(launch.Worker, i, "--index", strconv.Itoa(i), "--control", record.ControlDir(r.Out), "--blas-threads", strconv.Itoa(r.EngineThreads(r.Workers))); err != nil {
			return err
		}
	}
	return nil
}

// stopCluster ends every process, and kills those that do not end in time.
func (r *run) stopCluster() {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := r.cluster.Stop(ctx); err != nil {
		r.log.Error("stop the cluster", "err", err)
	}
}

// signals ends the run in an orderly way at the first signal, or when this machine is about to go,
// and immediately at the second.
func (r *run) signals(ctx context.Context, killed chan<- error) {
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt)
	if !signal.Ignored(syscall.SIGHUP) { // it is ignored under nohup, whose run should survive the terminal
		signal.Notify(c, syscall.SIGHUP)
	}
	defer signal.Stop(c)
	cfg := r.NoticeConfig(r.Warning)
	cfg.Log = r.log
	notices := notice.Watch(ctx, cfg)
	asks := make(chan asking)
	go func() {
		for {
			var a asking
			select {
			case <-ctx.Done():
				return
			case s := <-c:
				a = asking{s.String(), cli.ErrInterrupted}
			case n := <-notices:
				a = asking{n.Reason, cli.ErrPreempted}
			}
			select {
			case asks <- a:
			case <-ctx.Done():
				return
			}
		}
	}()
	e := ending{
		begun:  r.hasView,
		within: r.saveWithin,
		stop: func(ctx context.Context, end error) error {
			return r.client.PutStop(ctx, etcd.Stop{Checkpoint: true, Reason: end.Error()})
		},
		unsaved: r.unsaved,
		say:     func(text string) { r.note("info", text) },
	}
	if err := e.await(ctx, asks); err != nil {
		killed <- err
	}
}

// saveWithin returns how long this run waits for its last checkpoint.
func (r *run) saveWithin() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return lastSaveWithin(r.Warning, r.slowest)
}

// unsaved describes what would be lost if the run ended now, and how to continue it.
func (r *run) unsaved() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	words := ""
	if r.view.Number != 0 {
		words = fmt.Sprintf(": it was at step %d, and its newest checkpoint is of step %d", r.seen.After, r.durable)
	}
	if r.waits != "" {
		words += "; it waited for its store: " + r.waits
	}
	return words + "; go on with: kintsugi train --resume " + cli.Words(r.Out)
}

// final evaluates the result of the run: its last checkpoint, read from the store.
func (r *run) final(ctx context.Context, done kintsugi.Done) error {
	m, params, err := r.lastCheckpoint(ctx, done)
	if err != nil {
		return err
	}
	ev, err := r.problem.Evaluator(&r.Settings)
	if err != nil || ev == nil {
		return err
	}
	defer ev.Close()
	judged := cli.Meanwhile(func(took time.Duration) {
		r.log.Info("still evaluating the last checkpoint", "seconds", took.Seconds())
	})
	defer judged()
	loss, accuracy, err := ev.Evaluate(ctx, params)
	if err != nil {
		return fmt.Errorf("evaluate the last checkpoint: %w", err)
	}
	r.evaluated(record.Evaluation{
		Line: uint64(m.Line), Step: uint64(m.Step), Loss: record.Number(loss), Accuracy: record.Number(accuracy), Examples: ev.Examples(),
	}, params)
	return nil
}

// lastCheckpoint reads the checkpoint with which the run has ended.
func (r *run) lastCheckpoint(ctx context.Context, done kintsugi.Done) (*ckpt.RunManifest, []float32, error) {
	where, err := r.StoreName()
	if err != nil {
		return nil, nil, err
	}
	at, err := r.Place(ctx, where)
	if err != nil {
		return nil, nil, err
	}
	read := cli.Meanwhile(func(took time.Duration) {
		r.log.Info("still reading the last checkpoint", "store", where, "seconds", took.Seconds())
	})
	defer read()
	m, _, err := ckpt.NewestOf(at.FS, at.Dir, r.id)
	if taken := ckpt.Holds(at.FS, at.Dir, r.id); errors.Is(taken, ckpt.ErrTaken) && (err != nil || m.Step != done.Step) {
		return nil, nil, fmt.Errorf("the run ended at step %d, and its last checkpoint has no place: %w", done.Step, taken)
	}
	if errors.Is(err, ckpt.ErrNoCheckpoint) {
		return nil, nil, fmt.Errorf("the run ended at step %d, but none of its checkpoints is whole; see the checkpoint events in %s: %w", done.Step, r.Out, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the last checkpoint: %w", err)
	}
	if m.Step != done.Step {
		return nil, nil, fmt.Errorf("the run ended at step %d, but its last checkpoint is of step %d; see the checkpoint events in %s", done.Step, m.Step, r.Out)
	}
	params, err := ckpt.Params(ctx, at.FS, at.Dir, r.problem.Layout, m)
	return m, params, err
}
