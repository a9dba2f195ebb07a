package train

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// What a run observes of its processes and faults. A watcher observes what the run computes.

// observe records what happens to processes.
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

// vacate reports that a worker's process is dead, so that no step waits for its lease.
func (r *run) vacate(p launch.Part, pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), role.Lease)
	defer cancel()
	err := r.client.Vacate(ctx, etcd.Worker, uint32(p.Index), func(m etcd.Member) bool {
		var v role.WorkerValue
		return json.Unmarshal(m.Value, &v) == nil && v.PID == pid
	})
	if err != nil {
		r.log.Debug("a dead worker keeps its place until its lease lapses", "part", p.String(), "err", err)
	}
}

// injected records what a fault did.
func (r *run) injected(a launch.Action, err error) {
	f := &record.Fault{Action: a.Kind.String(), Part: a.Part.String(), Fault: a.Fault.String()}
	if err != nil {
		f.Error = err.Error()
	}
	r.rec.Record(time.Now(), f)
	r.log.Info("fault", "action", f.Action, "part", f.Part, "err", f.Error)
}
