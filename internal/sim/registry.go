package sim

import (
	"errors"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

const (
	leaseTime   = 2 * time.Second        // of servers and of the coordinator that leads
	callTimeout = 400 * time.Millisecond // of one call to the registry
)

var errAway = errors.New("the registry does not answer")

// registry stands for etcd: who is present, which view counts, who leads, which fence is next. Calls to it
// can fail with and without having had their effect.
type registry struct {
	c        *Cluster
	away     time.Duration // nothing is answered before this instant
	revision int64
	places   []place
	view     *kintsugi.View
	before   *kintsugi.View // the one before view
	viewAt   int64
	fence    kintsugi.Fence
	leader   *proc
	leadTo   time.Duration
	acting   acting
	standing kintsugi.ViewNumber // in which the run stands, and is durable
	watches  []*watch
}

// place is a server's entry: one life, under a lease.
type place struct {
	life   *serverLife // nil: empty
	newest kintsugi.Incarnation
	since  int64
	lease  time.Duration // until when
	whole  kintsugi.ViewNumber

	leaving, holding bool // what the life says of itself: it wants to go; nobody else has what it holds
	apart            []kintsugi.Life
}

// joined is what a place that is filled says to the roster.
func (p *place) joined() roster.Joined {
	return roster.Joined{Member: p.life.member, Since: p.since, Holds: p.life.holds, Whole: p.whole, Leaving: p.leaving, Apart: p.apart}
}

// acting is who conducts a view: the server it names, or whoever was promoted since.
type acting struct {
	view  kintsugi.ViewNumber
	fence kintsugi.Fence
	proc  *proc
}

// watch is somebody who wants to know of changes.
type watch struct {
	at   *proc
	tell func()
}

// call carries out do at the registry and tells p how it went. An error does not say that do had no effect.
func (r *registry) call(p *proc, do func() error, then func(error)) {
	c := r.c
	c.after(nil, c.delay(p, nil), func() {
		if r.away > c.now {
			c.after(p, callTimeout, func() { then(errAway) })
			return
		}
		err := do()
		if c.cfg.Faults.Has(RegistryAway) && c.storming() && c.chance(0.02) { // the answer is lost
			c.after(p, callTimeout, func() { then(errAway) })
			return
		}
		c.after(p, c.delay(p, nil), func() { then(err) })
	})
}

// observe tells w of every change from now on, and once of the present.
func (r *registry) observe(p *proc, tell func()) {
	w := &watch{at: p, tell: tell}
	kept := r.watches[:0]
	for _, x := range r.watches {
		if !x.at.dead {
			kept = append(kept, x)
		}
	}
	r.watches = append(kept, w)
	r.notify(w)
}

// lag draws how much later than usual somebody hears of a change, or asks for what a change makes
// him ask for: mostly not at all.
func (r *registry) lag() time.Duration {
	if c := r.c; c.cfg.Faults.Has(RegistryAway) && c.storming() && c.chance(0.03) {
		return min(c.spell(), leaseTime/2)
	}
	return 0
}

func (r *registry) notify(w *watch) {
	r.c.after(w.at, r.c.delay(w.at, nil)+r.lag(), func() {
		if r.away > r.c.now {
			r.c.after(w.at, r.away-r.c.now, func() { r.notify(w) })
			return
		}
		w.tell()
	})
}

func (r *registry) changed() {
	r.revision++
	for _, w := range r.watches {
		if !w.at.dead {
			r.notify(w)
		}
	}
}

// register puts a life into its place, or renews its lease. It returns ErrFenced if a later life has taken
// the place.
func (r *registry) register(s *serverLife) error {
	p := &r.places[s.member.Server]
	if p.newest > s.member.Incarnation {
		return kintsugi.ErrFenced
	}
	p.lease = r.c.now + leaseTime
	r.c.at(nil, p.lease, func() { r.expire(int(s.member.Server)) })
	if p.life == s {
		return nil
	}
	p.life, p.newest, p.whole = s, s.member.Incarnation, s.whole
	p.leaving, p.holding, p.apart = s.leaving, s.holding, s.apart
	r.changed()
	p.since = r.revision
	return nil
}

// expire empties a place whose lease has lapsed. While the registry is away no lease lapses: when it is
// back, everyone has the time of one lease to renew.
func (r *registry) expire(i int) {
	p := &r.places[i]
	if p.life == nil || p.lease > r.c.now {
		return
	}
	if r.away > r.c.now {
		p.lease = r.away + leaseTime
		r.c.at(nil, p.lease, func() { r.expire(i) })
		return
	}
	r.c.say("registry: the lease of %s lapses", p.life.name)
	p.life = nil
	r.changed()
}

// campaign makes p the leader if nobody else is.
func (r *registry) campaign(p *proc) bool {
	if r.leader != nil && r.leader != p && r.leadTo > r.c.now {
		return false
	}
	r.leader, r.leadTo = p, r.c.now+leaseTime
	return true
}

var errNotLeader, errOtherView = errors.New("somebody else leads"), errors.New("another view counts")

// put makes v the view that counts, if p leads and the view before is the one p knows.
func (r *registry) put(p *proc, before kintsugi.ViewNumber, v kintsugi.View) error {
	if r.leader != p {
		return errNotLeader
	}
	if (r.view == nil && before != 0) || (r.view != nil && r.view.Number != before) {
		return errOtherView
	}
	r.before = r.view
	r.view, r.acting = &v, acting{view: v.Number}
	r.c.checkView(v)
	r.c.leftOut(v)
	r.changed()
	r.viewAt = r.revision
	return nil
}

func (r *registry) nextFence(after kintsugi.Fence) kintsugi.Fence {
	r.fence = max(r.fence, after) + 1
	return r.fence
}
