package main

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// What a run learns of itself while it goes on: processes, faults, views, steps.

// observe books what happens to processes.
func (r *run) observe(e launch.ProcessEvent) {
	r.mu.Lock()
	r.meter.Process(e)
	r.mu.Unlock()
	if e.Kind == launch.ProcessPaused {
		r.rec.Record(e.Time, &record.Failure{Part: e.Part.String(), Cause: "paused by a fault", Incarnation: e.Incarnation, Injected: true})
	}
	if e.Kind == launch.ProcessDied || e.Kind == launch.ProcessGivenUp || e.Kind == launch.ProcessFinished {
		r.rec.Record(e.Time, &record.Life{
			Part: e.Part.String(), Incarnation: e.Incarnation, BeganSeconds: r.rec.Seconds(e.Began), CPUSeconds: e.Exit.CPU.Seconds(),
			PeakBytes: e.Exit.PeakBytes, End: e.Exit.String(),
		})
	}
	if e.Kind != launch.ProcessDied && e.Kind != launch.ProcessGivenUp {
		return
	}
	at := e.Time
	switch {
	case e.Left() && !e.NoticedAt.IsZero():
		at = e.NoticedAt
	case !e.KilledAt.IsZero():
		at = e.KilledAt
	}
	r.rec.Record(at, &record.Failure{
		Part: e.Part.String(), Cause: e.Exit.String(), Incarnation: e.Incarnation, Injected: e.Exit.Injected || e.Left() && !e.NoticedAt.IsZero(), Announced: e.Left(),
		SeenSeconds: r.rec.Seconds(e.Time),
	})
	if e.Left() {
		r.log.Info("process left", "part", e.Part.String(), "incarnation", e.Incarnation, "cause", e.Exit.String())
		return
	}
	if e.Part.Role == launch.Worker {
		go r.vacate(e.Part, e.PID)
	}
	r.log.Warn("process died", "part", e.Part.String(), "incarnation", e.Incarnation, "cause", e.Exit.String())
}

// vacate says that a worker's process is dead: a step that waits for those that live need not wait for its lease.
func (r *run) vacate(p launch.Part, pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), lease)
	defer cancel()
	err := r.client.Vacate(ctx, etcd.Worker, uint32(p.Index), func(m etcd.Member) bool {
		var v workerValue
		return json.Unmarshal(m.Value, &v) == nil && v.PID == pid
	})
	if err != nil {
		r.log.Debug("a dead worker keeps its place until its lease lapses", "part", p.String(), "err", err)
	}
}

// injected books what a fault did.
func (r *run) injected(a launch.Action, err error) {
	f := &record.Fault{Action: a.Kind.String(), Part: a.Part.String(), Fault: a.Fault.String()}
	if err != nil {
		f.Error = err.Error()
	}
	r.rec.Record(time.Now(), f)
	r.log.Info("fault", "action", f.Action, "part", f.Part, "err", f.Error)
}

func (r *run) note(level, text string) {
	r.rec.Record(time.Now(), &record.Note{Level: level, Text: text})
	r.log.Info(text)
}

// follow watches the conductor of each view.
func (r *run) follow(ctx context.Context) {
	views := r.client.WatchView(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := func() {}
	for v := range views {
		stop()
		r.mu.Lock()
		if v.Line != r.view.Line {
			r.seen = transport.WatchRequest{Line: v.Line, After: v.RestoreStep}
			r.headed, r.back = nil, make(map[kintsugi.PartialEvent]bool)
			for _, chain := range r.view.Chains {
				r.headed = append(r.headed, chain[0])
			}
		}
		r.returned = r.view.Number != 0
		r.view = v
		if v.Restore != "" {
			r.durable = max(r.durable, v.RestoreStep)
		}
		r.costs.View(v)
		r.mu.Unlock()
		r.rec.Record(time.Now(), record.ViewOf(v))
		r.log.Info("view", "number", v.Number, "line", v.Line, "from_step", v.RestoreStep, "reason", v.Reason)
		var watching context.Context
		watching, stop = context.WithCancel(ctx)
		wg.Go(func() { r.watch(watching, v) })
	}
	stop()
}

// watch books the events of one view until ctx ends, through broken streams. Steps that another view of the line has told of are
// not told again.
func (r *run) watch(ctx context.Context, v kintsugi.View) {
	for ctx.Err() == nil {
		_ = r.watchOnce(ctx, v) // the server died or is not there yet: the next view or try will do
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r *run) watchOnce(ctx context.Context, v kintsugi.View) error {
	peer, err := transport.Dial(v.Servers[v.Conductor].Address, transport.DialTLS(r.tls, v.Conductor))
	if err != nil {
		return err
	}
	defer peer.Close()
	if r.Wire != worker.WireGRPC.String() {
		peer.Near()
	}
	stream, err := peer.Watch(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	seen := r.seen
	r.mu.Unlock()
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
			if r.news(e) {
				r.released(e)
			}
		case kintsugi.PartialEvent:
			p := record.PartialOf(e)
			r.mu.Lock()
			if r.back[e] { // in an earlier view of the line
				r.mu.Unlock()
				continue
			}
			r.back[e] = true
			if int(e.Shard) < len(r.headed) {
				p.Part = launch.Part{Role: launch.Server, Index: int(r.headed[e.Shard])}.String()
			}
			r.costs.Partial(e, p)
			r.mu.Unlock()
			r.log.Info("a shard came back as it was saved or copied last", "part", p.Part, "chunks", p.Chunks, "adopted_at_step", p.AdoptedStep, "oldest_step", p.OldestStep, "mean_age_steps", p.MeanAge, "rework_steps", p.ReworkSteps)
			r.rec.Record(time.Now(), p)
		case kintsugi.CheckpointEvent:
			now := time.Now()
			r.saved(e, now)
			r.rec.Record(now, record.CheckpointOf(e))
			if e.Err != "" {
				r.mu.Lock()
				newest := r.durable
				r.mu.Unlock()
				r.log.Error("a checkpoint failed; training goes on, and a loss would go back further", "step", e.Step, "newest_checkpoint", newest, "err", e.Err)
			}
		case kintsugi.ExposureEvent:
			r.mu.Lock()
			r.costs.Exposed(e)
			r.mu.Unlock()
		case kintsugi.Done:
			return nil
		}
	}
}

// news notes that a step was released. False: another view of the same line has told of it.
func (r *run) news(e kintsugi.StepEvent) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Line != r.seen.Line {
		return true
	}
	news := e.Step > r.seen.After
	r.seen.After = max(r.seen.After, e.Step)
	return news
}

// saved remembers what a loss would bring back.
func (r *run) saved(e kintsugi.CheckpointEvent, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.costs.Checkpoint(e, now)
	if !e.Running && e.Err == "" {
		r.durable = e.Step
	}
}

// released books a step.
func (r *run) released(e kintsugi.StepEvent) {
	for _, recovery := range r.rec.Step(e) {
		if strings.HasPrefix(recovery.Part, "server/") {
			r.mu.Lock()
			r.costs.Recovered(recovery.RecoverySeconds)
			r.mu.Unlock()
		}
		if recovery.LostSteps > 0 && recovery.CaughtUpSeconds.Known() {
			r.log.Info("lost steps are made up for", "part", recovery.Part, "lost_steps", recovery.LostSteps, "seconds", recovery.CaughtUpSeconds)
		} else {
			r.log.Info("steps go on", "part", recovery.Part, "seconds", recovery.RecoverySeconds, "lost_steps", recovery.LostSteps)
		}
	}
	r.cluster.Progressed()
	r.inject.Released(e.Step)
	r.mu.Lock()
	r.meter.Step(e)
	r.step = e.Step
	follows, returned := r.costs.Step(e), r.returned
	r.returned = false
	r.mu.Unlock()
	for _, f := range follows {
		if m, ok := f.(*record.Rework); ok {
			r.log.Info("a partial recovery was measured", "part", m.Part, "predicted_steps", m.Predicted, "measured_steps", m.Measured, "standard_error", m.Deviation,
				"calibration", m.Calibration, "failures", m.Failures)
		}
		r.rec.Record(e.Time, f)
	}
	if (uint64(e.Step)%r.EvalEvery == 0 || returned && r.EvalEvery < r.Steps) && uint64(e.Step) < r.Steps {
		select {
		case r.evaluations <- e.Step:
		default: // the one before is not done: this version is skipped
		}
	}
}

// progress shows how far the run is.
func (r *run) progress(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			r.mu.Lock()
			p := r.meter.At(now)
			if worst, ok := r.costs.Worst(); ok {
				p.AtRisk = float64(worst.Steps)
			} else if p.Step > 0 {
				p.AtRisk = math.NaN()
			}
			p.SavedAgo, _ = r.costs.Age(now)
			r.mu.Unlock()
			r.display.Show(now, p)
		}
	}
}
