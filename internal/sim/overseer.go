package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

const coordinatorRetry = 200 * time.Millisecond

// overseer is one life of a coordinator: the shell of package recovery under virtual time. Its
// knowledge begins anew each time it becomes the leader.
type overseer struct {
	*proc
	c       *Cluster
	state   *roster.State
	leads   bool
	present []roster.Joined                            // by server; Since 0: not present
	silent  map[kintsugi.ServerID]kintsugi.Incarnation // lives that are taken for dead
	view    *kintsugi.View
	again   int // number of the current timer; older ones are ignored
	busy    bool
}

func (c *Cluster) startCoordinator() {
	c.coordinators++
	o := &overseer{proc: c.newProc(fmt.Sprintf("coordinator@%d", c.coordinators)), c: c}
	c.coordinator = o
	o.campaign()
	c.registry.observe(o.proc, o.look)
}

// campaign tries to become the leader. As the leader, it renews the leadership as long as it lives.
func (o *overseer) campaign() {
	won := false
	o.c.registry.call(o.proc, func() error { won = o.c.registry.campaign(o.proc); return nil }, func(err error) {
		o.c.after(o.proc, leaseTime/4, o.campaign)
		switch {
		case err == nil && won && !o.leads:
			o.lead()
		case err == nil && !won && o.leads:
			o.c.say("%s has lost the leadership", o.name)
			o.leads = false
		}
	})
}

func (o *overseer) lead() {
	state, err := roster.New(roster.Config{Servers: o.c.cfg.Servers, Replicas: o.c.cfg.Replicas, LapsesForgiven: o.c.cfg.LapsesForgiven, Hold: o.c.cfg.Hold, Partial: o.c.cfg.Partial, Copies: o.c.cfg.Copies > 0, NextAnswers: o.c.cfg.NextAnswers && o.c.cfg.plant != nextWhole, Chooses: o.c.cfg.Choose > 0, MoveAfter: o.c.cfg.MoveAfter, Settle: settle})
	if err != nil {
		o.c.fail(notAtFault, "new roster: %v", err)
		return
	}
	o.c.say("%s leads", o.name)
	o.leads, o.busy, o.state, o.present = true, true, state, make([]roster.Joined, o.c.cfg.Servers)
	o.silent = make(map[kintsugi.ServerID]kintsugi.Incarnation)
	o.readView()
}

// readView tells the core which view counts, and continues with who is present.
func (o *overseer) readView() {
	var v *kintsugi.View
	var at int64
	o.busy = true
	o.c.registry.call(o.proc, func() error { v, at = o.c.registry.view, o.c.registry.viewAt; return nil }, func(err error) {
		if err != nil {
			o.c.after(o.proc, coordinatorRetry, o.readView)
			return
		}
		o.view, o.busy = v, false
		o.state.Handle(o.c.wall(), roster.Viewed{View: v, At: at})
		o.look()
	})
}

// look notes which servers have come and gone, and decides.
func (o *overseer) look() {
	if !o.leads || o.busy {
		return
	}
	now := o.c.wall()
	for i, p := range o.c.registry.places {
		switch {
		case p.life == nil && o.present[i].Since != 0:
			delete(o.silent, kintsugi.ServerID(i))
			o.present[i] = roster.Joined{}
			o.state.Handle(now, roster.Left{Server: kintsugi.ServerID(i)})
		case p.life != nil && !saysSame(o.present[i], p.joined()):
			o.present[i] = p.joined()
			if o.silent[kintsugi.ServerID(i)] == p.life.member.Incarnation {
				continue // what it says counts when its pulse is felt again
			}
			o.state.Handle(now, o.present[i])
		}
	}
	o.decide()
}

// saysSame reports whether two entries of a server say the same.
func saysSame(a, b roster.Joined) bool {
	return a.Member == b.Member && a.Since == b.Since && a.Holds == b.Holds && a.Whole == b.Whole && a.Leaving == b.Leaving && slices.Equal(a.Apart, b.Apart)
}

func (o *overseer) decide() {
	if !o.leads || o.busy || o.dead {
		return
	}
	d := o.state.Decide(o.c.wall())
	switch {
	case d.View != nil:
		o.put(*d.View)
	case d.Ask:
		o.lookUp(d.FenceOnly)
	case !d.Again.IsZero():
		o.later(d.Again.Sub(o.c.wall()))
	}
}

func (o *overseer) later(d time.Duration) {
	o.again++
	n := o.again
	o.c.after(o.proc, max(d, time.Millisecond), func() {
		if n == o.again {
			o.look() // servers that came while it was busy were not noted
		}
	})
}

// lookUp reads what a new view needs. It takes the fence last, so that no later one exists.
func (o *overseer) lookUp(fenceOnly bool) {
	o.busy = true
	if fenceOnly {
		o.askFence(roster.Found{FenceOnly: true})
		return
	}
	o.c.after(o.proc, o.c.store.took(), func() {
		newest, err := o.c.store.newest()
		if err != nil {
			o.busy = false
			o.later(coordinatorRetry)
			return
		}
		o.askFence(roster.Found{Newest: newest})
	})
}

// askFence completes the findings with a fence.
func (o *overseer) askFence(found roster.Found) {
	v := o.view
	if v == nil {
		v = &kintsugi.View{}
	}
	o.c.takeFence(o.proc, v, func(fence kintsugi.Fence, err error) {
		if o.busy = false; err != nil {
			o.later(coordinatorRetry)
			return
		}
		found.Fence = fence
		o.state.Handle(o.c.wall(), found)
		o.look()
	})
}

// put publishes v as the view that counts. If the outcome is uncertain, it reads the registry
// again.
func (o *overseer) put(v kintsugi.View) {
	var before kintsugi.ViewNumber
	if o.view != nil {
		before = o.view.Number
	}
	o.busy = true
	o.c.registry.call(o.proc, func() error { return o.c.registry.put(o.proc, before, v) }, func(err error) {
		if errors.Is(err, errNotLeader) {
			o.leads, o.busy = false, false
			return
		}
		o.readView()
	})
}

// wish tells the coordinator, at random times, how many replicas each shard should have. If nothing
// else happens in the run, it waits for the first step: a server that hears only of the view after
// the first holds nothing that this one could keep, and ends.
func (c *Cluster) wish() {
	if c.cfg.Choose == 0 || !c.storming() {
		return
	}
	c.after(nil, time.Duration(c.rng.ExpFloat64()*float64(c.cfg.Choose)), func() {
		early := c.cfg.Faults == 0 && !c.oracle.hasSteps()
		if o := c.coordinator; o.leads && !o.dead && !early {
			w := roster.Wanted{Replicas: 1 + c.rng.IntN(c.cfg.Servers), Why: "somebody says so"}
			c.say("%d replicas are wanted", w.Replicas)
			o.state.Handle(c.wall(), w)
			o.look()
		}
		c.wish()
	})
}
