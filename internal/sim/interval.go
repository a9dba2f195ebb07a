package sim

import (
	"time"

	"github.com/kintsugi-ml/kintsugi/recovery/choose"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// interval simulates --checkpoint-every auto, with faults as the events. It begins anew in each
// view, so that checkpoints come at other steps than in the view before. That must not matter.
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

// After is a hundredth of the real value: a run under virtual time lasts seconds.
func (i *interval) After() time.Duration {
	apart := i.Apart(max(1, i.cfg.FaultEvery.Seconds()))
	return time.Duration(apart * float64(time.Second) / 100)
}
