package main

import (
	"log/slog"
	"math"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/recovery/choose"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// networkSpeed is the assumed speed between two servers, in bytes per second, before it was
// measured.
const networkSpeed = 1e9

// interval computes the interval of full checkpoints for --checkpoint-every auto. It outlives the
// views that this process conducts, since the times of steps and saves do not depend on the view.
// The conductor's loop owns it.
type interval struct {
	choose.Interval
	option     choose.Option
	conditions choose.Conditions // of the view
	died, lost int               // numbers of processes and hosts of servers that died
	step       kintsugi.Step     // newest step
	said       time.Duration     // the interval that was logged last
	log        *slog.Logger
}

// interval returns a function that makes the interval for a view, or nil if the interval is fixed.
func (p *process) interval(l *kintsugi.Layout) func(v kintsugi.View) conductor.Interval {
	if !p.saves().Auto {
		return nil
	}
	i := &interval{log: p.log}
	return func(v kintsugi.View) conductor.Interval {
		states := 0
		if rule, err := conductor.ParseRule(p.Optimizer); err == nil { // otherwise there is no conductor
			states = kernels.Rule(rule).States()
		}
		model := 4 * float64(l.Values)
		protects := p.protects()
		i.option = choose.Option{Replicas: max(1, v.Replicas), Outside: protects.outside, Running: protects.running != nil}
		i.conditions = choose.Conditions{
			Servers: p.Servers, Workers: p.Workers, Hosts: hostsOf(&v), Model: model, State: model * float64(1+states),
			Network: networkSpeed, Memory: memorySpeed, Store: storeSpeed, Together: together, Restart: restartTime.Seconds(), Failover: failoverTime.Seconds(),
		}
		i.died, i.lost = deaths(&v)
		return i
	}
}

// deaths returns the numbers of deaths according to a view: of servers' processes, and of hosts
// with them.
func deaths(v *kintsugi.View) (processes, hosts int) {
	for _, m := range v.Servers {
		processes += int(m.Incarnation) - 1
	}
	return processes, len(v.Lost)
}

// rates sets the time between deaths, from the numbers of deaths seen in the given time.
func rates(x *choose.Conditions, died, lost int, seconds float64) {
	x.ProcessEvery = choose.Rate(died, seconds, processEvery.Seconds()/float64(x.Servers))
	x.HostEvery = choose.Rate(lost, seconds, hostEvery.Seconds()/float64(x.Hosts))
}

// Step implements conductor.Interval.
func (i *interval) Step(e kintsugi.StepEvent, beside bool) {
	i.step = e.Step
	i.Interval.Step(e, beside)
}

// After implements conductor.Interval.
func (i *interval) After() time.Duration {
	rates(&i.conditions, i.died, i.lost, float64(i.step)*i.StepTime())
	back := i.conditions.BackEvery(i.option)
	after := time.Duration(i.Apart(back) * float64(time.Second))
	if cost := i.Cost(); cost > 0 && (after > i.said*3/2 || after < i.said*2/3) {
		i.said = after
		i.log.Info("full checkpoints are as far apart as saves and failures cost least", "step", i.step,
			"every_seconds", math.Round(after.Seconds()), "save_costs_seconds", math.Round(1e4*cost)/1e4, "failure_every_seconds", math.Round(min(back, 1e12)))
	}
	return after
}
