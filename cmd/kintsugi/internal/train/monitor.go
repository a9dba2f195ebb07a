package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/look"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/gauges"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/launch/report"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// metricsUsage describes --metrics.
const metricsUsage = "host:port that serves metrics for Prometheus at /metrics, such as :9464; anyone who reaches it can read them (default: none)"

// monitor is the monitor command. It follows a run whose processes were started by others, and
// records it as train records its own runs. The run does not wait for it: it may die, and there may
// be several.
type monitor struct {
	Out       string
	Metrics   string
	Figures   bool // for TensorBoard
	EvalEvery uint64
	Price     string
	early
}

// MonitorCommand returns the command that follows a run that others have started.
func MonitorCommand() *cobra.Command {
	m := &monitor{}
	var cmd *cobra.Command
	cmd = role.Command("monitor", "Follow a run on several hosts: show progress, write its folder and report, serve metrics",
		"  kintsugi monitor --config run.yaml --etcd 10.0.0.2:2379 --out runs/mnist --metrics :9464",
		func(_ *role.Process, f *pflag.FlagSet) {
			f.StringVar(&m.Out, "out", "", "folder for the run's events, summary and report; a folder that has some is continued (default runs/RUN)")
			f.StringVar(&m.Metrics, "metrics", "", metricsUsage)
			f.BoolVar(&m.Figures, "tensorboard", false, figuresUsage)
			f.Uint64Var(&m.EvalEvery, "eval-every", 0, "steps between two evaluations on the test set in this process; 0 means none")
			m.early.register(f)
			f.StringVar(&m.Price, "price", "", "what nodes cost, for the bill, as for train")
		}, func(ctx context.Context, p *role.Process) error { return m.run(ctx, p, cmd.OutOrStdout()) })
	cmd.Long = "Monitor follows a run whose coordinator, servers and workers were started one by one. It asks etcd who is there,\n" +
		"and the run's conductor how far it is. It shows the progress, writes events.jsonl, summary.json and report.html as train does, and ends with the\n" +
		"run. Nothing waits for it: it may be started late, killed and started again, on any host that reaches etcd and the servers. Give it the\n" +
		"settings of the run."
	return cmd
}

// run follows the run until it is over.
func (m *monitor) run(ctx context.Context, p *role.Process, stdout io.Writer) error {
	if err := m.checkEarly(); err != nil {
		return err
	}
	if m.EvalEvery == 0 && m.early.uses() {
		return fmt.Errorf("%w: --until, --patience and --keep-best need evaluations: give --eval-every a number of steps", kintsugi.ErrUsage)
	}
	prob, err := job.Describe(&p.Settings)
	if err != nil {
		return err
	}
	defer prob.Close()
	if m.EvalEvery > 0 {
		if err := cmp.Or(prob.Open(&p.Settings), m.early.fits(prob)); err != nil {
			return err
		}
	}
	if m.Out == "" {
		m.Out = filepath.Join("runs", p.Run)
	}
	client, err := p.Meet(ctx, "this monitor", prob.Terms())
	if err != nil {
		return err
	}
	defer client.Close()
	lis, err := listenMetrics(m.Metrics)
	if err != nil {
		return err
	}
	start := time.Now()
	rec, earlier, err := m.record(ctx, p, prob, client, start)
	if err != nil {
		return err
	}
	if p.Elsewhere.Gradients {
		p.Device = "auto" // what it evaluates on; the record has the workers' device
	}
	w := newWatcher(&p.Settings, prob, rec, start)
	w.evalEvery, w.client, w.creds = m.EvalEvery, client, p.Creds
	w.display = launch.NewDisplay(cli.Stderr, os.Stderr, nil)
	if w.log, err = cli.NewLog(w.display, p.LogLevel, cli.OnTerminal()); err != nil {
		return err
	}
	w.display.SetLog(w.log)
	var there presence
	var evaluations []record.Evaluation
	if earlier != nil {
		evaluations = earlier.Evaluations
		w.goOn(earlier)
		there = presenceIn(earlier, rec.Time)
	}
	w.endsEarly(&m.early, m.Out, evaluations)
	if n := len(evaluations); n > 0 {
		w.evaluation = evaluations[n-1]
	}
	if err := w.drawFigures(m.Figures, m.Out); err != nil {
		return err
	}
	done, err := m.follow(ctx, w, lis, there)
	w.mu.Lock()
	w.display.Close(w.meter.At(time.Now()))
	w.mu.Unlock()
	reason := done.Reason
	switch {
	case err != nil:
		reason = err.Error()
	case reason == "":
		reason = "its monitor was ended; the run goes on"
	}
	run, recErr := rec.Finish(time.Now(), reason)
	recErr = errors.Join(recErr, w.drawn())
	page, drawErr := report.DrawRun(run)
	w.print(stdout, run.Summary, done, "", page)
	return errors.Join(err, recErr, drawErr)
}

// record opens the folder of the run, and returns the earlier record in it; nil: there is none.
func (m *monitor) record(ctx context.Context, p *role.Process, prob *job.Problem, client *etcd.Client, start time.Time) (*record.Recorder, *record.Run, error) {
	t := &Training{Settings: p.Settings, Price: m.Price}
	h, err := t.header(prob, start, false)
	if err != nil {
		return nil, nil, err
	}
	h.Device = p.Device + ", on hosts of its own" // --device is the monitor's own
	if record.Has(m.Out) {
		return record.Resume(m.Out, h, func(earlier *record.Run) bool { return wentOn(ctx, earlier, client, p.Creds) })
	}
	rec, err := record.Create(m.Out, job.Dump(p.Flags, "out", "metrics", "tensorboard", "etcd", "run", "tls", "eval-every", "until", "patience", "keep-best"), h)
	return rec, nil, err
}

// wentOn reports whether a run has probably been going on since its record ended: its conductor
// answers, and some server that held shards then still holds some. A run that was stopped, for
// example while its jobs waited for nodes, has only later lives.
func wentOn(ctx context.Context, run *record.Run, client *etcd.Client, creds *mtls.Credentials) bool {
	ctx, cancel := context.WithTimeout(ctx, asksFor)
	defer cancel()
	v, _, err := client.View(ctx)
	return err == nil && v != nil && len(run.Views) > 0 && livedOn(run.Views[len(run.Views)-1], *v) && tells(ctx, *v, creds)
}

// livedOn reports whether a view contains a life of an earlier view.
func livedOn(before record.View, v kintsugi.View) bool {
	for i, life := range record.ViewOf(v).Servers {
		if look.Holds(v, kintsugi.ServerID(i)) && i < len(before.Servers) && before.Servers[i] == life {
			return true
		}
	}
	return false
}

// tells reports whether the conductor of a view sends events of the run.
func tells(ctx context.Context, v kintsugi.View, creds *mtls.Credentials) bool {
	peer, err := transport.Dial(v.Servers[v.Conductor].Address, transport.DialTLS(creds, v.Conductor))
	if err != nil {
		return false
	}
	defer peer.Close()
	stream, err := peer.Watch(ctx)
	if err != nil || stream.Send(transport.WatchRequest{Line: v.Line}) != nil {
		return false
	}
	_, err = stream.Recv()
	return err == nil
}

// follow watches the run until it is over, or ctx ends. there are the processes that were in their
// places when the record ended. The error is role.ErrForgotten.
func (m *monitor) follow(ctx context.Context, w *watcher, lis net.Listener, there presence) (kintsugi.Done, error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before Wait
	w.serveMetrics(ctx, lis)
	over := make(chan kintsugi.Done, 1)
	ended := make(chan struct{})
	wg.Go(func() {
		for d := range w.client.WatchDone(ctx) {
			if d.Ends(kintsugi.Step(w.of.Steps)) {
				over <- d
				close(ended)
				return
			}
		}
	})
	a := &attendance{watcher: w, over: ended, presence: there}
	w.onView = func(v kintsugi.View) { a.sees(ctx, v) }
	w.last = make(chan kintsugi.Done, 1)
	wg.Go(func() { w.follow(ctx) })
	wg.Go(func() { w.sayWaits(ctx) })
	evaluated := make(chan struct{})
	wg.Go(func() {
		defer close(evaluated)
		if m.EvalEvery > 0 { // otherwise no model and no parameters are needed here
			w.evaluate(ctx)
		}
	})
	wg.Go(func() { w.progress(ctx) })
	for _, role := range []launch.Role{launch.Server, launch.Worker} {
		wg.Go(func() { a.attend(ctx, role) })
	}
	select {
	case d := <-over:
		w.gauges.Over()
		w.last <- d
		w.hearOut(ctx)
		a.close(time.Now())
		select {
		case <-evaluated:
		case <-ctx.Done():
		}
		return d, nil
	case <-role.Emptied(ctx, w.client):
		return kintsugi.Done{}, role.ErrForgotten
	case <-ctx.Done():
		return kintsugi.Done{}, nil
	}
}

// goOn lets the watcher continue the record of a run. The conductor repeats all events of the line
// that it has kept; these are not new.
func (w *watcher) goOn(earlier *record.Run) {
	w.earlier = earlier
	last := earlier.Newest
	if earlier.Outline.Steps == 0 {
		return
	}
	line, step := kintsugi.Line(last.Line), kintsugi.Step(last.Step)
	w.seen = transport.WatchRequest{Line: line, After: step}
	w.view.Line = line
	for _, v := range earlier.Views {
		switch {
		case v.Line < last.Line:
			w.headed = headsOf(v)
		case v.Line == last.Line:
			w.view.Chains = nil
			for _, head := range headsOf(v) {
				w.view.Chains = append(w.view.Chains, []kintsugi.ServerID{head})
			}
		}
	}
	w.back, w.saves = make(map[kintsugi.ShardID]kintsugi.Step), make(map[savesOf]kintsugi.CheckpointEvent)
	for _, p := range earlier.Partials {
		if p.Line == last.Line {
			w.back[kintsugi.ShardID(p.Shard)] = kintsugi.Step(p.AdoptedStep)
		}
	}
	saved := w.rec.Time(earlier.First.Seconds)
	for _, c := range earlier.Checkpoints {
		if !c.Running && c.Error == "" && c.Step <= last.Step {
			w.durable, saved = kintsugi.Step(c.Step), w.rec.Time(c.Seconds-c.TookSeconds)
		}
		if kintsugi.Line(c.Line) == line {
			w.saves[savesOf{c.Running, kintsugi.ShardID(c.Shard)}] = kintsugi.CheckpointEvent{Line: line, Step: kintsugi.Step(c.Step), Err: c.Error}
		}
	}
	w.overdue.end(w.durable)
	w.costs.GoOn(line, step, w.durable, saved)
}

// headsOf returns the head of each shard in a view.
func headsOf(v record.View) []kintsugi.ServerID {
	heads := make([]kintsugi.ServerID, len(v.Heads))
	for i, h := range v.Heads {
		heads[i] = kintsugi.ServerID(h)
	}
	return heads
}

// listenMetrics opens the address of --metrics, or returns nil if there is none.
func listenMetrics(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	lis, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: --metrics %s: %w", kintsugi.ErrUsage, address, err)
	}
	return lis, nil
}

// serveMetrics serves the metrics until ctx ends, and then closes lis. If lis is nil, it does
// nothing.
func (w *watcher) serveMetrics(ctx context.Context, lis net.Listener) {
	v := job.Version()
	w.gauges = gauges.New(v.Release, v.Commit, w.of.Steps)
	if lis == nil {
		return
	}
	if w.earlier != nil {
		w.gauges.GoOn(w.earlier, w.rec.Time(0))
		w.earlier = nil // it may be as large as the run is long
	}
	w.rec.Tell(w.gauges.Add)
	mux := http.NewServeMux()
	mux.Handle("/metrics", w.gauges.Handler())
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	w.log.Info("metrics", "url", "http://"+lis.Addr().String()+"/metrics")
	context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() {
		if err := s.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("metrics are not served any more", "err", err)
		}
	}()
}

// count counts the processes of a role, for the metrics, until ctx ends.
func (w *watcher) count(ctx context.Context, role launch.Role) {
	for members := range w.client.WatchMembers(ctx, kindOf(role)) {
		w.gauges.Members(role.String(), len(members))
	}
}

// kindOf returns the etcd kind of a role that registers.
func kindOf(role launch.Role) etcd.Kind {
	if role == launch.Worker {
		return etcd.Worker
	}
	return etcd.Server
}

// attendance records which processes come and go.
type attendance struct {
	*watcher
	over <-chan struct{} // closed when the run is over: processes that leave after that are no failures

	mu sync.Mutex // held while one list or view is processed
	presence
}

// attend follows the leases of a role until ctx ends or the run is over.
func (a *attendance) attend(ctx context.Context, role launch.Role) {
	for members := range a.client.WatchMembers(ctx, kindOf(role)) {
		a.gauges.Members(role.String(), len(members))
		a.mu.Lock()
		now := time.Now()
		gone, came := a.members(now, role, members)
		a.book(ctx, now, gone, came)
		a.mu.Unlock()
	}
}

// sees processes a view.
func (a *attendance) sees(ctx context.Context, v kintsugi.View) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	gone, came := a.views(now, v)
	a.book(ctx, now, gone, came)
}

// book records processes that came and went. The caller holds the lock.
func (a *attendance) book(ctx context.Context, now time.Time, gone []departure, came []launch.Part) {
	for _, d := range gone {
		announced, over := a.asks(ctx, d)
		if over || ctx.Err() != nil {
			return
		}
		part := d.part.String()
		a.rec.Record(now, a.life(d))
		a.rec.Record(now, &record.Failure{Part: part, Cause: d.cause, Incarnation: int(d.incarnation), Announced: announced, SeenSeconds: a.rec.Seconds(now)})
		a.process(launch.ProcessEvent{Kind: launch.ProcessDied, Time: now, Part: d.part})
		if announced {
			a.log.Info("process left", "part", part, "incarnation", d.incarnation, "cause", d.cause)
		} else {
			a.log.Warn("process is gone", "part", part, "incarnation", d.incarnation, "cause", d.cause)
		}
	}
	for _, part := range came {
		a.rec.Record(now, &record.Presence{Part: part.String(), Incarnation: int(a.there[part].incarnation)})
		a.process(launch.ProcessEvent{Kind: launch.ProcessStarted, Time: now, Part: part})
		a.log.Info("process is there", "part", part.String())
	}
}

// life returns the record of a process that is gone.
func (a *attendance) life(d departure) *record.Life {
	return &record.Life{Part: d.part.String(), Incarnation: int(d.incarnation), BeganSeconds: a.rec.Seconds(d.since), End: d.cause}
}

// asks asks etcd what it knew when a process disappeared: whether the process had said that it
// leaves, and whether the run was over. Both are written before the place is empty, or before a
// view continues without the process, but the watch of another key may be late. If etcd does not
// answer within a moment, what is known here counts.
func (a *attendance) asks(ctx context.Context, d departure) (announced, over bool) {
	select {
	case <-a.over:
		return d.leaving, true
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, asksFor)
	defer cancel()
	if done, err := a.client.Done(ctx); err == nil && done != nil && done.Ends(kintsugi.Step(a.of.Steps)) {
		return d.leaving, true
	}
	kind, index := kindOf(d.part.Role), uint32(d.part.Index)
	if left, err := a.client.Left(ctx, kind, index); d.leaving || err == nil && left == d.incarnation {
		return true, false
	}
	members, err := a.client.Members(ctx, kind) // a server that a view has left out may still be registered
	return err == nil && slices.ContainsFunc(members, func(m etcd.Member) bool {
		return m.Index == index && m.Incarnation == d.incarnation && saysLeaving(d.part.Role, m)
	}), false
}

// asksFor is how long to wait for etcd's answer about a possible failure.
const asksFor = 2 * time.Second

// close records the lives that were present when the run ended. A monitor that continues the record
// in a longer run must not take them for failures.
func (a *attendance) close(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, part := range slices.SortedFunc(maps.Keys(a.there), func(x, y launch.Part) int {
		return cmp.Or(cmp.Compare(x.Role, y.Role), cmp.Compare(x.Index, y.Index))
	}) {
		if x := a.there[part]; !x.gone {
			a.rec.Record(now, a.life(departure{part, x, "the run was over"}))
		}
	}
}

// process updates the progress line.
func (a *attendance) process(e launch.ProcessEvent) {
	a.watcher.mu.Lock()
	defer a.watcher.mu.Unlock()
	a.meter.Process(e)
}
