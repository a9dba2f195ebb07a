package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/job"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/gauges"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/launch/tensorboard"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// watcher follows what a run computes, from etcd and the conductor of each view: views, steps,
// checkpoints, and shards that came back. It records everything in the folder of the run, whose
// events become metrics, and updates the progress line. The run does not wait for it.
type watcher struct {
	of        *job.Settings
	problem   *job.Problem
	evalEvery uint64              // steps between two evaluations; 0: none
	onStep    func(kintsugi.Step) // called for each released step; may be nil
	onView    func(kintsugi.View) // called for each view, before it is recorded; may be nil

	rec     *record.Recorder
	log     *slog.Logger
	display *launch.Display
	gauges  *gauges.Run
	figures *tensorboard.Live // nil: nobody wants them
	client  *etcd.Client
	creds   *mtls.Credentials // nil: plain TCP

	evaluations chan kintsugi.Step // has room for one: the newest step to evaluate
	last        chan kintsugi.Done // has room for one: the end, whose version is evaluated too; nil: somebody else does that
	evaluation  record.Evaluation  // the newest; only evaluate uses it while that runs
	judge       *judge             // decides by evaluations whether the run ends
	best        *best              // keeps the best parameters; nil: nobody wants them
	told        chan struct{}      // closed when a conductor has said that the run is over
	lastWord    sync.Once

	earlier *record.Run // the earlier record, until it was added to the metrics; nil: none

	mu      sync.Mutex // guards the following fields
	meter   *launch.Meter
	costs   *launch.Costs
	view    kintsugi.View
	headed  []kintsugi.ServerID                  // by shard: its head in the last view of the line before
	seen    transport.WatchRequest               // the newest known step of the view's line
	back    map[kintsugi.ShardID]kintsugi.Step   // the step at which each shard was reported to have come back on the line
	saves   map[savesOf]kintsugi.CheckpointEvent // the newest save that each has reported on the line
	durable kintsugi.Step                        // step of the newest full checkpoint in this part of the run
	slowest time.Duration                        // longest time that a full checkpoint has taken
	overdue overdue
	failing failing
	rising  rising
	stood   kintsugi.StandEvent // the newest that was reported
	waits   string              // what the coordinator waits for, as far as known; "": nothing
	// No step of the view is released yet, and it is not the first view: the next step shows what a
	// failure has left, so it is evaluated.
	returned bool
}

// savesOf identifies the source of saves: full checkpoints of all shards, or a shard in the running
// checkpoint.
type savesOf struct {
	running bool
	shard   kintsugi.ShardID
}

// newWatcher returns a watcher of a run, which rec records. The caller sets log and display, and
// client before it follows.
func newWatcher(s *job.Settings, p *job.Problem, rec *record.Recorder, start time.Time) *watcher {
	protects := s.Protects()
	return &watcher{
		of: s, problem: p, rec: rec, evaluations: make(chan kintsugi.Step, 1), told: make(chan struct{}), judge: &judge{every: 1},
		overdue: overdue{every: s.Saves()}, meter: launch.NewMeter(start, kintsugi.Step(s.Steps), s.Workers), costs: launch.NewCosts(s.Servers, protects.Way(), protects.Copies),
	}
}

func (w *watcher) note(level, text string) {
	w.rec.Record(time.Now(), &record.Note{Level: level, Text: text})
	l := slog.LevelInfo
	_ = l.UnmarshalText([]byte(level)) // the levels of events are valid level names
	w.log.Log(context.Background(), l, text)
}

// hasView reports whether a view counts.
func (w *watcher) hasView() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.view.Number != 0
}

// sayWaits reports what the coordinator waits for: nobody reads the coordinator's own log.
func (w *watcher) sayWaits(ctx context.Context) {
	cli.SayWaits(ctx, w.client.WatchWaits(ctx), func(word string, news bool) {
		w.mu.Lock()
		w.waits = word
		w.mu.Unlock()
		if word == "" {
			return
		}
		text := "the run has not begun: it waits for its store, and begins by itself once that can be read and written"
		if w.hasView() {
			text = "what is lost comes back once the store can be read: the run waits for it, and goes on by itself"
		}
		w.log.Warn(text, "why", word)
		if news {
			w.rec.Record(time.Now(), &record.Note{Level: "warn", Text: text + ": " + word})
		}
	})
}

// follow watches the conductor of each view.
func (w *watcher) follow(ctx context.Context) {
	views := w.client.WatchView(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := func() {}
	for v := range views {
		stop()
		w.mu.Lock()
		if v.Line != w.view.Line {
			w.seen = transport.WatchRequest{Line: v.Line, After: v.RestoreStep}
			w.overdue.end(v.RestoreStep)
			w.headed, w.back, w.saves = nil, make(map[kintsugi.ShardID]kintsugi.Step), make(map[savesOf]kintsugi.CheckpointEvent)
			for _, chain := range w.view.Chains {
				w.headed = append(w.headed, chain[0])
			}
		}
		w.overdue.view()
		w.returned = w.view.Number != 0
		w.view = v
		if v.Restore != "" {
			w.durable = max(w.durable, v.RestoreStep)
		}
		w.costs.View(v)
		w.mu.Unlock()
		if w.onView != nil {
			w.onView(v)
		}
		w.rec.Record(time.Now(), record.ViewOf(v))
		w.log.Info("view", "number", v.Number, "line", v.Line, "from_step", v.RestoreStep, "reason", v.Reason)
		var watching context.Context
		watching, stop = context.WithCancel(ctx)
		wg.Go(func() { w.watch(watching, v) })
	}
	stop()
}

// watch records the events of one view until ctx ends, even through broken streams. It does not
// report steps again that were reported in another view of the line.
func (w *watcher) watch(ctx context.Context, v kintsugi.View) {
	for ctx.Err() == nil {
		_ = w.watchOnce(ctx, v) // the server died or is not there yet: try again, or wait for the next view
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (w *watcher) watchOnce(ctx context.Context, v kintsugi.View) error {
	peer, err := transport.Dial(v.Servers[v.Conductor].Address, transport.DialTLS(w.creds, v.Conductor))
	if err != nil {
		return err
	}
	defer peer.Close()
	if w.of.Wire != worker.WireGRPC.String() {
		peer.Near()
	}
	stream, err := peer.Watch(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	seen := w.seen
	w.mu.Unlock()
	if err := stream.Send(seen); err != nil {
		return err
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			return err
		}
		switch e := e.(type) {
		case kintsugi.StepEvent:
			if w.news(e) {
				w.released(e)
			}
		case kintsugi.PartialEvent:
			p := record.PartialOf(e)
			w.mu.Lock()
			if step, told := w.back[e.Shard]; told && step == e.Step { // reported in an earlier view of the line
				w.mu.Unlock()
				continue
			}
			w.back[e.Shard] = e.Step
			if int(e.Shard) < len(w.headed) {
				p.Part = launch.Part{Role: launch.Server, Index: int(w.headed[e.Shard])}.String()
			}
			w.costs.Partial(e, p)
			w.mu.Unlock()
			w.log.Info("a shard came back as it was saved or copied last", "part", p.Part, "chunks", p.Chunks, "adopted_at_step", p.AdoptedStep, "oldest_step", p.OldestStep, "mean_age_steps", p.MeanAge, "rework_steps", p.ReworkSteps)
			w.rec.Record(time.Now(), p)
		case kintsugi.CheckpointEvent:
			now := time.Now()
			if !w.saved(e, now) {
				continue // an earlier stream has reported it
			}
			w.rec.Record(now, record.CheckpointOf(e))
			if e.Err != "" {
				w.sayFailed(e, now)
			}
		case kintsugi.ExposureEvent:
			w.mu.Lock()
			w.costs.Exposed(e)
			w.mu.Unlock()
		case kintsugi.StandEvent:
			w.stands(e)
		case kintsugi.Done:
			w.lastWord.Do(func() { close(w.told) })
			return nil
		}
	}
}

// hearOut waits, once the run is over, for what its conductor still has to say: the last message comes
// after those of the last steps and of the last checkpoint. A conductor that has died says nothing.
func (w *watcher) hearOut(ctx context.Context) {
	select {
	case <-w.told:
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
}

// news notes that a step was released. It returns false if another view of the same line has
// reported it.
func (w *watcher) news(e kintsugi.StepEvent) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.Line != w.seen.Line {
		return true
	}
	news := e.Step > w.seen.After
	w.seen.After = max(w.seen.After, e.Step)
	return news
}

// saved notes what a failure would bring back. It returns false if that was reported before.
func (w *watcher) saved(e kintsugi.CheckpointEvent, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	who := savesOf{e.Running, e.Shard}
	if before, ok := w.saves[who]; ok && e.Line == w.seen.Line && (e.Step < before.Step || e.Step == before.Step && e.Err == before.Err) {
		return false
	}
	w.saves[who] = e
	w.costs.Checkpoint(e, now)
	if e.Running {
		return true
	}
	w.overdue.end(e.Step)
	if e.Err == "" {
		w.durable, w.slowest = e.Step, max(w.slowest, e.Took)
	}
	return true
}

// released records a step.
func (w *watcher) released(e kintsugi.StepEvent) {
	for _, recovery := range w.rec.Step(e) {
		if strings.HasPrefix(recovery.Part, "server/") {
			w.mu.Lock()
			w.costs.Recovered(recovery.RecoverySeconds)
			w.mu.Unlock()
		}
		if recovery.LostSteps > 0 && recovery.CaughtUpSeconds.Known() {
			w.log.Info("lost steps are made up for", "part", recovery.Part, "lost_steps", recovery.LostSteps, "seconds", recovery.CaughtUpSeconds)
		} else {
			w.log.Info("steps go on", "part", recovery.Part, "seconds", recovery.RecoverySeconds, "lost_steps", recovery.LostSteps)
		}
	}
	if w.onStep != nil {
		w.onStep(e.Step)
	}
	w.mu.Lock()
	w.meter.Step(e)
	rises, best, was := w.rising.step(e.Step, float64(e.Loss)), w.rising.at, w.rising.best
	follows, returned := w.costs.Step(e), w.returned
	w.returned = false
	w.mu.Unlock()
	if rises {
		w.sayRises(e, best, was)
	}
	for _, f := range follows {
		if m, ok := f.(*record.Rework); ok {
			w.log.Info("a partial recovery was measured", "part", m.Part, "predicted_steps", m.Predicted, "measured_steps", m.Measured, "standard_error", m.Deviation,
				"calibration", m.Calibration, "failures", m.Failures)
		}
		w.rec.Record(e.Time, f)
	}
	if dueAt(uint64(e.Step), w.of.Steps, w.evalEvery, returned, w.last != nil) {
		select {
		case w.evaluations <- e.Step:
		default: // the last evaluation is still running: skip this version
		}
	}
}

// dueAt reports whether a released step is evaluated: each of so many, the first one after a failure
// if there are others, and the last one if nobody else does that.
func dueAt(step, steps, every uint64, returned, last bool) bool {
	switch {
	case every == 0:
		return false
	case step >= steps:
		return last
	}
	return step%every == 0 || returned && every < steps
}

// progress updates the progress line.
func (w *watcher) progress(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.mu.Lock()
			p := w.meter.At(now)
			if worst, ok := w.costs.Worst(); ok {
				p.AtRisk = float64(worst.Steps)
			} else if p.Step > 0 {
				p.AtRisk = math.NaN()
			}
			p.SavedAgo, _ = w.costs.Age(now)
			w.mu.Unlock()
			w.display.Show(now, p)
			w.sayOverdue(now)
		}
	}
}

// evaluate evaluates versions on the test set, without delaying steps.
func (w *watcher) evaluate(ctx context.Context) {
	ev, err := w.problem.Evaluator(w.of)
	if err != nil {
		w.note("error", fmt.Sprintf("no evaluations: %v", err))
		return
	}
	if ev == nil {
		return
	}
	defer ev.Close()
	params := make([]float32, w.problem.Layout.Values)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.evaluations:
			why, err := w.evaluateNewest(ctx, ev, params, 0)
			if err != nil {
				continue // the view is changing
			}
			if why != "" && w.evaluation.Step < w.of.Steps {
				w.endEarly(ctx, why)
			}
		case d := <-w.last:
			_, err := w.evaluateNewest(ctx, ev, params, lastPull)
			if err != nil && ctx.Err() == nil && w.evaluation.Step != uint64(d.Step) { // with --end-with-run, servers wait for workers alone
				w.note("warn", fmt.Sprintf("step %d, the last one, is not evaluated: %v", d.Step, err))
			}
			return
		}
	}
}

// lastPull is how long a monitor waits for the last version, which servers that end may not send.
const lastPull = 10 * time.Second

// evaluateNewest evaluates the newest version of the view, unless it has done that already, records
// the evaluation, and returns why the run should end, or "". The error says why there is no version to
// be had, within a time unless that is 0.
func (w *watcher) evaluateNewest(ctx context.Context, ev *job.Evaluator, params []float32, within time.Duration) (why string, err error) {
	w.mu.Lock()
	v := w.view
	w.mu.Unlock()
	if v.Number == 0 {
		return "", errors.New("no view is known yet")
	}
	pull, cancel := context.WithCancel(ctx)
	defer cancel()
	if within > 0 {
		defer time.AfterFunc(within, cancel).Stop()
	}
	step, err := worker.Pull(pull, w.creds, w.problem.Layout, v, params)
	if err != nil {
		return "", err
	}
	if was := w.evaluation; kintsugi.Line(was.Line) == v.Line && kintsugi.Step(was.Step) == step {
		return "", nil
	}
	loss, accuracy, err := ev.Evaluate(ctx, params)
	if err != nil {
		if ctx.Err() == nil {
			w.note("warn", fmt.Sprintf("no evaluation of step %d: %v", step, err))
		}
		return "", nil
	}
	w.evaluation = record.Evaluation{
		Line: uint64(v.Line), Step: uint64(step), Loss: record.Number(loss), Accuracy: record.Number(accuracy), Examples: ev.Examples(),
	}
	w.evaluated(w.evaluation, params)
	return w.judge.add(step, loss, accuracy), nil
}

// evaluated records an evaluation of parameters.
func (w *watcher) evaluated(e record.Evaluation, params []float32) {
	w.rec.Record(time.Now(), &e)
	w.mu.Lock()
	w.meter.Evaluated(float64(e.Accuracy))
	w.mu.Unlock()
	if w.best != nil {
		if err := w.best.add(w.problem.Layout, e, params); err != nil {
			w.note("warn", err.Error())
		}
	}
}

// stands reports that no step is taken, and what the run waits for: people do not read the log of
// the server that conducts. It is recorded only once.
func (w *watcher) stands(e kintsugi.StandEvent) {
	w.mu.Lock()
	before := w.stood
	news := e.Time.After(before.Time) && !(e.Line == w.seen.Line && e.Step < w.seen.After)
	if news {
		w.stood = e
	}
	w.mu.Unlock()
	if !news {
		return // reported already, or over: conductors keep it for later watchers
	}
	w.log.Warn("no step is taken", "seconds", e.Lasts.Seconds(), "step", e.Step, "waits_for", e.Waits)
	if e.Line != before.Line || e.Step != before.Step || e.Waits != before.Waits {
		w.rec.Record(e.Time, &record.Note{Level: "warn", Text: fmt.Sprintf("no step is taken for %.0f s, and the run waits for %s", e.Lasts.Seconds(), e.Waits)})
	}
}
