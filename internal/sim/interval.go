package sim

import (
	"time"

	"github.com/kintsugi-ml/kintsugi/recovery/choose"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// interval is what a run has for --checkpoint-every auto, where what goes back does so as often as
// faults happen. It begins anew in each view: that checkpoints come in other places than in the view
// before must not matter.
type interval struct {
	choose.Interval
	cfg *Config
}

func (c *Cluster) interval() conductor.Interval {
	if !c.cfg.Learns {
		return nil
	}
	return &interval{cfg: &c.cfg}
}

// After is a hundredth of what a run would have: one under virtual time lasts seconds.
func (i *interval) After() time.Duration {
	apart := i.Apart(max(1, i.cfg.FaultEvery.Seconds()))
	return time.Duration(apart * float64(time.Second) / 100)
}
