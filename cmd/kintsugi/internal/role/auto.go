package role

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/cost"
	"github.com/kintsugi-ml/kintsugi/internal/fade"
	"github.com/kintsugi-ml/kintsugi/recovery/choose"
)

// wish is the number of replicas of each shard that the conductor wants, and why.
type wish struct {
	Replicas int    `json:"replicas"`
	Why      string `json:"why"`
}

// chooseEvery is how often a run that chooses for itself reconsiders.
const chooseEvery = 10 * time.Second

// Assumptions until there are measurements, which soon replace them. Rates are those of one server.
const (
	processEvery = 24 * time.Hour
	hostEvery    = 10 * 24 * time.Hour
	together     = 0.05 // share of the deaths that also take the servers with the other replicas

	networkSpeed = 1e9 // bytes per second between two servers
	memorySpeed  = 4e9 // bytes per second that one core copies
	storeSpeed   = 1e8 // in bytes per second, before the first save

	restartTime  = 5 * time.Second // of a process, and of a host if a spare one is ready
	failoverTime = 300 * time.Millisecond
)

// chooser decides, during one view, how the run should survive failures, from the conductor's
// measurements. The conductor's loop owns it.
type chooser struct {
	now     choose.Option
	assumed choose.Conditions // of the view, before anything was measured
	view    kintsugi.View
	tell    func(wish)
	log     *slog.Logger

	looked  time.Time
	network fade.Mean // bytes per second of a gradient in transit
	wanted  int
}

// observe processes an event after l has, and reconsiders at intervals.
func (c *chooser) observe(l *learning, e kintsugi.RunEvent) {
	s, ok := e.(kintsugi.StepEvent)
	if !ok {
		return
	}
	for _, t := range s.Times {
		if t.Transfer > 0 {
			c.network.Add(c.assumed.Model / t.Transfer.Seconds())
		}
	}
	if c.looked.IsZero() {
		c.looked = s.Time
	}
	if s.Time.Sub(c.looked) < chooseEvery {
		return
	}
	c.looked = s.Time
	x, ok := c.conditions(l, s.Step)
	if !ok {
		return
	}
	best := choose.Choose(x, c.options(), &c.now)
	if best.Replicas == c.wanted {
		return
	}
	c.wanted = best.Replicas
	c.log.Info("how to survive was chosen", "recovery", best.Name(), "replicas", best.Replicas, "before", c.now.Replicas, "why", best.Why)
	c.tell(wish{Replicas: best.Replicas, Why: best.Why})
}

// options lists the possible changes while the run lasts: the number of replicas, and, with one
// replica, memory outside the process if servers have it. The running checkpoint is always there,
// and chooses for itself how much it saves.
func (c *chooser) options() []choose.Option {
	list := []choose.Option{{Replicas: 1, Outside: c.assumed.Outside, Running: true}}
	for replicas := 2; replicas <= min(c.assumed.Most, c.assumed.Servers); replicas++ {
		list = append(list, choose.Option{Replicas: replicas, Running: true})
	}
	return list
}

// conditions returns what is known at a step. ok is false before steps were measured.
func (c *chooser) conditions(l *learning, step kintsugi.Step) (x choose.Conditions, ok bool) {
	seconds := l.idle.Value()
	if l.idle.Weight() < 3 {
		seconds = l.busy.Value()
	}
	if !(seconds > 0) || c.network.Weight() < 3 {
		return x, false
	}
	x = c.assumed
	x.Step, x.Network = seconds, c.network.Value()
	if l.store.Weight() >= 3 {
		_, perByte := l.store.Fit()
		x.Store = 1 / max(perByte, 1e-12)
	}
	if l.rework.Weight() >= 3 {
		x.Rework = l.rework.Value()
	}
	died := 0
	for _, m := range c.view.Servers {
		died += int(m.Incarnation) - 1
	}
	elapsed := float64(step) * seconds
	x.ProcessEvery = choose.Rate(died, elapsed, x.ProcessEvery)
	if x.Outside {
		// Memory outside a process outlives the process but not the host, so a shard that was lost was
		// lost with its host. Otherwise a loss is the death of a process, which is counted above.
		x.HostEvery = choose.Rate(c.view.Losses, elapsed, x.HostEvery)
	}
	return x, true
}

// hostsOf returns the number of hosts that the servers of a view run on.
func hostsOf(v *kintsugi.View) int {
	names := make(map[string]bool)
	for _, m := range v.Servers {
		host, _, err := net.SplitHostPort(m.Address)
		if err != nil {
			host = m.Address
		}
		names[host] = true
	}
	return max(1, len(names))
}

// assumed returns what is assumed about a run in a view before anything was measured.
func (p *Process) assumed(l *kintsugi.Layout, rule kintsugi.Rule, v *kintsugi.View) choose.Conditions {
	prices, _, err := cost.Parse(p.Price)
	if err != nil {
		p.log.Warn("prices are not counted", "err", err)
	}
	model, hosts := 4*float64(l.Values), hostsOf(v)
	return choose.Conditions{
		Servers: p.Servers, Workers: p.Workers, Hosts: hosts, Model: model, State: model * float64(1+rule.States()),
		ProcessEvery: processEvery.Seconds() / float64(p.Servers), HostEvery: hostEvery.Seconds() / float64(hosts),
		Network: networkSpeed, Memory: memorySpeed, Store: storeSpeed, Together: together,
		Restart: restartTime.Seconds(), Failover: failoverTime.Seconds(), Rework: -1, Outside: p.Outside != "", Most: p.Protects().Most,
		ServerHour: prices.OnDemand.Server, WorkerHour: prices.OnDemand.Worker,
	}
}

// chooser returns the chooser for a view, or nil if the run does not choose.
func (p *Process) chooser(l *kintsugi.Layout, rule kintsugi.Rule, v kintsugi.View, self *announced) *chooser {
	if !p.Protects().Chooses {
		return nil
	}
	return &chooser{
		now:     choose.Option{Replicas: max(1, v.Replicas), Outside: p.Outside != "" && v.Replicas <= 1, Running: true},
		assumed: p.assumed(l, rule, &v), view: v, log: p.log,
		tell: func(w wish) {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), Lease)
				defer cancel()
				if err := self.tell(ctx, func(v *ServerValue) { v.Wants = &w }); err != nil {
					p.log.Warn("tell the coordinator how many replicas are wanted", "err", err)
				}
			}()
		},
	}
}
