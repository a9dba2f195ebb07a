package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/sim"
	"github.com/kintsugi-ml/kintsugi/server/agg"
)

// spendOutage runs the protocol under virtual time, with a long outage of all servers in the middle, and tells what workers have kept.
func (s *simulation) spendOutage(w io.Writer) error {
	consistency, err := agg.Preset(s.consistency)
	if err != nil {
		return err
	}
	consistency.Continue = true
	if err := consistency.Check(s.workers); err != nil {
		return err
	}
	if s.workers > 1000 || s.mean < time.Millisecond || s.outage/s.mean > 1_000_000 || s.steps < 10 {
		return fmt.Errorf("%w: simulate --outage takes up to 1000 workers, ten steps, and an outage of up to a million gradients of a millisecond or more (--mean)", kintsugi.ErrUsage)
	}
	fmt.Fprintf(w, "%v without any server, %d workers, %s, a gradient takes %v\n", s.outage, s.workers, s.consistency, s.mean)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RULE\tGRADIENTS COMPUTED\tMOST ARRAYS KEPT BY A WORKER\tBYTES A PARAMETER\tBOUND\tHOLDS\tCOUNTED\tDROPPED\tNEXT STEP AFTER SERVERS ARE BACK")
	for _, rule := range kintsugi.KeepRules() {
		consistency.Keep = rule
		r, err := sim.Run(sim.Config{
			Seed: s.seed, Servers: 2, Workers: s.workers, Chunks: 4, Steps: kintsugi.Step(s.steps), SaveEvery: 50, Outside: true, Consistency: consistency,
			Outage: s.outage, Jitter: 200 * time.Microsecond, Compute: s.mean, Kernel: time.Millisecond,
			StartGrace: startGrace, RejoinGrace: rejoinGrace, LeaveGrace: leaveGrace, LapsesForgiven: true,
		})
		if err != nil {
			return err
		}
		o := r.Outages
		fmt.Fprintf(t, "%v\t%d\t%d\t%d\t%d\t%v\t%d\t%d\t%.2f s\n", rule, o.Computed, o.Most, 4*o.Most, 4*o.Bound, o.Most <= o.Bound, o.Counted, o.Dropped, o.Back.Seconds())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, "the bound, in bytes for each parameter of the model, is that of an outage of any length")
	return err
}
