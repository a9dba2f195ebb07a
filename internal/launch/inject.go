package launch

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Injector carries out a schedule of faults on a cluster.
type Injector struct {
	schedule *Schedule
	cluster  *Cluster
	slower   Slower
	observe  func(Action, error)
	forget   func(Part) error
	step     atomic.Uint64
	poke     chan struct{} // has room for one value: a new step that Run has not seen yet
}

// NewInjector returns an injector. observe, if not nil, is called after each action, with its error
// if it failed. The injector owns the schedule from now on.
func NewInjector(s *Schedule, c *Cluster, slower Slower, observe func(Action, error)) *Injector {
	return &Injector{schedule: s, cluster: c, slower: slower, observe: observe, poke: make(chan struct{}, 1)}
}

// Forget sets the function that removes the state of a server outside its process. Without it there
// is no such state. Call it before Run.
func (in *Injector) Forget(f func(Part) error) { in.forget = f }

// Released notes that step has been released. It never blocks.
func (in *Injector) Released(step kintsugi.Step) {
	in.step.Store(uint64(step))
	select {
	case in.poke <- struct{}{}:
	default: // Run has not yet seen the last signal, and will see the newest step
	}
}

// Run carries out due actions until ctx ends. Elapsed times count from start. It returns the faults
// that have not begun, because the run was too short.
func (in *Injector) Run(ctx context.Context, start time.Time) []Fault {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return in.schedule.Unreached()
		case <-in.poke:
		case <-timer.C:
		}
		for _, a := range in.schedule.Due(kintsugi.Step(in.step.Load()), time.Since(start)) {
			err := in.Do(a)
			if in.observe != nil {
				in.observe(a, err)
			}
		}
		if next, ok := in.schedule.Next(); ok {
			timer.Reset(time.Until(start.Add(next)))
		} else {
			timer.Stop()
		}
	}
}

// Do carries out one action.
func (in *Injector) Do(a Action) error {
	switch a.Kind {
	case ActKill:
		return in.cluster.Kill(a.Part, a.Hold)
	case ActLose: // remove the state first, so that the next life cannot find it, however early it starts
		if in.forget != nil {
			if err := in.forget(a.Part); err != nil {
				return fmt.Errorf("lose %s: %w", a.Part, err)
			}
		}
		return in.cluster.Kill(a.Part, a.Hold)
	case ActNotice:
		return in.cluster.Notice(a.Part)
	case ActStart:
		return in.cluster.Release(a.Part)
	case ActPause:
		return in.cluster.Pause(a.Part)
	case ActResume:
		return in.cluster.Resume(a.Part)
	case ActSlow:
		return in.slow(a.Part, a.Factor)
	case ActUnslow:
		return in.slow(a.Part, 1)
	}
	return fmt.Errorf("inject %s: unknown action", a.Part)
}

func (in *Injector) slow(part Part, factor float64) error {
	if err := in.slower(part.Index, factor); err != nil {
		return fmt.Errorf("slow %s: %w", part, err)
	}
	return nil
}
