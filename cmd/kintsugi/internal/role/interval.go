package role

import (
	"cmp"
	"log/slog"
	"math"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/choose"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// interval computes the interval of full checkpoints for --checkpoint-every auto. It outlives the
// views that this process conducts, since the times of steps and saves do not depend on the view.
// The conductor's loop owns it.
type interval struct {
	choose.Interval
	assumed float64       // seconds between two failures that take the run back to a full checkpoint, before any was seen
	backs   int           // how often the run has gone back to one
	step    kintsugi.Step // newest step
	said    time.Duration // the interval that was logged last
	log     *slog.Logger
}

// interval returns a function that makes the interval for a view, or nil if the interval is fixed.
func (p *Process) interval(l *kintsugi.Layout, rule kintsugi.Rule) func(v kintsugi.View) conductor.Interval {
	if !p.Saves().Auto {
		return nil
	}
	i := &interval{log: p.log}
	return func(v kintsugi.View) conductor.Interval {
		x, protects := p.assumed(l, rule, &v), p.Protects()
		i.assumed = x.BackEvery(choose.Option{Replicas: max(1, v.Replicas), Outside: protects.Outside, Running: protects.Running != nil})
		// Each line after the first began with a failure, or with --resume. A line that keeps an
		// earlier one has not gone back to a full checkpoint.
		i.backs = int(cmp.Or(v.Keeps, v.Line)) - 1
		return i
	}
}

// Step implements conductor.Interval.
func (i *interval) Step(e kintsugi.StepEvent, beside bool) {
	i.step = e.Step
	i.Interval.Step(e, beside)
}

// After implements conductor.Interval.
func (i *interval) After() time.Duration {
	back := choose.Rate(i.backs, float64(i.step)*i.StepTime(), i.assumed)
	after := time.Duration(i.Apart(back) * float64(time.Second))
	if cost := i.Cost(); cost > 0 && (after > i.said*3/2 || after < i.said*2/3) {
		i.said = after
		i.log.Info("full checkpoints are as far apart as saves and failures cost least", "step", i.step,
			"every_seconds", math.Round(after.Seconds()), "save_costs_seconds", math.Round(1e4*cost)/1e4, "failure_every_seconds", math.Round(min(back, 1e12)))
	}
	return after
}
