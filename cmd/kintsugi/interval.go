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

// networkSpeed is how many bytes per second two servers send each other, where nobody has measured it.
const networkSpeed = 1e9

// interval says how far apart full checkpoints are, for --checkpoint-every auto. It outlasts the
// views that this process conducts: what steps and saves take does not depend on who is there. The
// conductor's loop owns it.
type interval struct {
	choose.Interval
	option     choose.Option
	conditions choose.Conditions // of the view
	died, lost int               // processes of servers, and hosts
	step       kintsugi.Step     // the newest
	said       time.Duration     // in the log
	log        *slog.Logger
}

// interval returns what makes the interval of a view, nil if it is fixed.
func (p *process) interval(l *kintsugi.Layout) func(v kintsugi.View) conductor.Interval {
	if !p.saves().Auto {
		return nil
	}
	i := &interval{log: p.log}
	return func(v kintsugi.View) conductor.Interval {
		states := 0
		if rule, err := conductor.ParseRule(p.Optimizer); err == nil { // else there is no conductor
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

// deaths counts the deaths that a view tells of: of processes of servers, and of hosts with them.
func deaths(v *kintsugi.View) (processes, hosts int) {
	for _, m := range v.Servers {
		processes += int(m.Incarnation) - 1
	}
	return processes, len(v.Lost)
}

// rates sets how far apart deaths are, by those that were seen in so many seconds.
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
