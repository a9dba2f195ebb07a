package sim

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Fault is a kind of fault.
type Fault uint8

// The faults.
const (
	Cut             Fault = iota // a stream breaks in the middle
	Partition                    // two processes cannot communicate for a while
	Pause                        // a process stops for a while, as with SIGSTOP
	KillServer                   // a server dies and comes back as a new life
	KillWorker                   // a worker dies and comes back as a new life
	KillCoordinator              // the coordinator dies; another one takes over, possibly while the old one is only paused
	Twin                         // a new life of a server starts while the old one is still alive
	Promote                      // another conductor takes over while the old one is still alive
	RegistryAway                 // the registry does not answer for a while
	StoreSlow                    // the store takes seconds
	StoreFull                    // nothing can be written for a while
	StoreBad                     // reading and writing fail for a while
	Repeat                       // pushes and tickets are sent twice
	Damage                       // a frame of a push arrives with changed bytes
	NoticeServer                 // a server is told that it will die, and hands over as far as it can
	NoticeWorker                 // a worker is told that it will die
	faultKinds

	unannounced = NoticeServer // the faults from here on are announced
)

var faultNames = [faultKinds]string{
	"cut", "partition", "pause", "kill-server", "kill-worker", "kill-coordinator", "twin", "promote",
	"registry-away", "store-slow", "store-full", "store-bad", "repeat", "damage", "notice-server", "notice-worker",
}

// String returns the name of a fault.
func (f Fault) String() string { return faultNames[f] }

// FaultSet is a set of faults: bit f for Fault f.
type FaultSet uint32

// AllFaults contains every fault, NetworkFaults those that lose no process and no state.
const (
	AllFaults     FaultSet = 1<<faultKinds - 1
	NetworkFaults FaultSet = 1<<Cut | 1<<Partition | 1<<Pause | 1<<Repeat | 1<<Damage
)

// Has reports whether f is in the set.
func (s FaultSet) Has(f Fault) bool { return s&(1<<f) != 0 }

// String lists the names of the faults.
func (s FaultSet) String() string {
	var names []string
	for f := range faultKinds {
		if s.Has(f) {
			names = append(names, f.String())
		}
	}
	return fmt.Sprintf("[%s]", strings.Join(names, " "))
}

// scheduleFault schedules the next fault.
func (c *Cluster) scheduleFault() {
	if c.cfg.Faults == 0 || c.cfg.FaultEvery == 0 {
		return
	}
	d := time.Duration(c.rng.ExpFloat64() * float64(c.cfg.FaultEvery))
	c.after(nil, d, func() {
		if !c.storming() {
			clear(c.blocked)
			return
		}
		if f := Fault(c.rng.IntN(int(unannounced))); c.cfg.Faults.Has(f) {
			c.inflict(f)
		}
		c.scheduleFault()
	})
}

// scheduleNotice schedules the next notice. Notices come in addition to the other faults, whose
// frequency stays the same.
func (c *Cluster) scheduleNotice() {
	var list []Fault
	for f := unannounced; f < faultKinds; f++ {
		if c.cfg.Faults.Has(f) {
			list = append(list, f)
		}
	}
	if len(list) == 0 || c.cfg.FaultEvery == 0 {
		return
	}
	d := time.Duration(c.rng.ExpFloat64() * float64(c.cfg.FaultEvery) * float64(unannounced) / float64(len(list)))
	c.after(nil, d, func() {
		if c.storming() {
			c.inflict(list[c.rng.IntN(len(list))])
			c.scheduleNotice()
		}
	})
}

func (c *Cluster) inflict(f Fault) {
	c.faults[f]++
	switch f {
	case Cut:
		p := c.anyProc()
		if n := len(p.streams); n > 0 {
			if s := p.streams[c.rng.IntN(n)]; c.chance(0.7) {
				c.breakStream(s)
			} else { // only this stream is slow, while others between the same processes are not
				s.ends[c.rng.IntN(2)].stall(c.spell())
			}
		}
	case Partition:
		c.partition(c.anyProc(), c.anyProc())
	case Pause:
		p := c.anyProc()
		d := c.spell()
		c.say("%s stands still for %v", p.name, d)
		p.paused = max(p.paused, c.now+d)
		for _, s := range c.servers {
			if s.proc == p && !p.dead && c.cfg.pulses() {
				c.pulse(s, false)
				c.after(p, 0, func() { c.pulse(s, true) }) // when it continues
			}
		}
	case KillServer:
		c.kill(c.servers[c.rng.IntN(len(c.servers))].proc, "killed")
	case KillWorker:
		if h := c.workers[c.rng.IntN(len(c.workers))]; !h.finished {
			c.kill(h.proc, "killed")
		}
	case KillCoordinator:
		if o := c.coordinator; c.cfg.rivals && !o.dead && c.chance(0.5) {
			o.paused = max(o.paused, c.now+c.spell())
			c.rivals = append(c.rivals, o)
			c.startCoordinator()
			return
		}
		c.kill(c.coordinator.proc, "killed")
	case Twin:
		i := c.rng.IntN(len(c.servers))
		if s := c.servers[i]; !s.dead && !c.cfg.Outside { // with state outside, the lock on it keeps the second life out
			s.paused = max(s.paused, c.now+c.spell())
			c.startServer(i)
		}
	case Promote:
		c.promote()
	case RegistryAway:
		c.registry.away = c.now + c.spell()
		c.say("the registry is away until %v", c.registry.away)
	case StoreSlow:
		c.store.slow = c.now + c.spell()
	case StoreFull:
		c.store.full = c.now + c.spell()
	case StoreBad:
		c.store.bad = c.now + c.spell()
	case NoticeServer:
		c.servers[c.rng.IntN(len(c.servers))].notice()
	case NoticeWorker:
		if h := c.workers[c.rng.IntN(len(c.workers))]; !h.finished {
			h.notice()
		}
	case Repeat, Damage: // these happen where workers send
	}
}

// spell draws the duration of a fault: a millisecond to six seconds, log-uniformly, but not beyond
// the end of the storm.
func (c *Cluster) spell() time.Duration {
	d := time.Duration(math.Exp(c.rng.Float64()*8.7) * float64(time.Millisecond))
	return max(0, min(d, c.cfg.Storm-c.now))
}

// anyProc draws a living process.
func (c *Cluster) anyProc() *proc {
	for {
		all := len(c.servers) + len(c.workers) + 1 + len(c.promoted)
		var p *proc
		switch i := c.rng.IntN(all); {
		case i < len(c.servers):
			p = c.servers[i].proc
		case i < len(c.servers)+len(c.workers):
			p = c.workers[i-len(c.servers)].proc
		case i < all-len(c.promoted):
			return c.coordinator.proc // dead or alive: some process must be returned
		default:
			p = c.promoted[i-(all-len(c.promoted))].p
		}
		if !p.dead {
			return p
		}
	}
}

// partition delays all messages between two processes, one way or both. Sometimes their streams
// break as a result.
func (c *Cluster) partition(a, b *proc) {
	until := c.now + c.spell()
	c.say("%s does not hear %s until %v", b.name, a.name, until)
	c.blocked[[2]int{a.id, b.id}] = until
	if c.chance(0.5) {
		c.blocked[[2]int{b.id, a.id}] = until
	}
	if c.chance(0.5) {
		for _, s := range a.streams {
			if s.ends[0].at == b || s.ends[1].at == b {
				c.breakStream(s)
			}
		}
	}
}

// promote starts another conductor for the current view, without the knowledge of the old one.
func (c *Cluster) promote() {
	v := c.registry.view
	if v == nil || c.servers[v.Conductor].tenure == nil || c.servers[v.Conductor].tenure.view.Number != v.Number {
		return
	}
	p := c.newProc(fmt.Sprintf("conductor#%d", len(c.promoted)+1))
	c.conductorFence(p, v, func(fence kintsugi.Fence, err error) {
		if err != nil || c.registry.view.Number != v.Number || c.registry.acting.fence > fence {
			return
		}
		x := newConducting(c, p, v, fence)
		c.promoted = append(c.promoted, x)
		p.accept = func(e *end, first any) {
			if _, ok := first.(workCall); ok {
				x.welcome(e)
			} else {
				e.close(errOver)
			}
		}
		c.registry.acting = acting{view: v.Number, fence: fence, proc: p}
		x.run()
		c.registry.changed()
		c.registry.observe(p, func() {
			if c.registry.view.Number != v.Number {
				x.stop()
				c.kill(p, "its view is over")
			}
		})
	})
}

// conductor returns the process that workers of the current view talk to.
func (r *registry) conductor() *proc {
	if r.view == nil {
		return nil
	}
	if r.acting.view == r.view.Number && r.acting.proc != nil {
		return r.acting.proc
	}
	return r.c.lives[r.view.Servers[r.view.Conductor].Incarnation].proc
}
