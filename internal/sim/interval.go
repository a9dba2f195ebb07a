package sim

import (
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/choose"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// interval is what a run has for --checkpoint-every auto, where what goes back does so as often as
// faults happen. It begins anew in each view: that checkpoints come in other places than in the view
// before must not matter.
type interval struct {
	learnt choose.Interval
	cfg    *Config
}

func (c *Cluster) interval() conductor.Interval {
	if !c.cfg.Learns {
		return nil
	}
	return &interval{cfg: &c.cfg}
}

func (i *interval) Step(e kintsugi.StepEvent, beside bool) {
	i.learnt.Step((e.Wait + e.Apply).Seconds(), beside)
}

func (i *interval) Saved(e kintsugi.CheckpointEvent) {
	if e.Err != "" {
		i.learnt.Failed()
		return
	}
	i.learnt.Saved(e.Took.Seconds())
}

// After is a hundredth of what a run would have: one under virtual time lasts seconds.
func (i *interval) After() time.Duration {
	apart := i.learnt.Apart(max(1, i.cfg.FaultEvery.Seconds()))
	return time.Duration(apart * float64(time.Second) / 100)
}
