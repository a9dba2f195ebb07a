package sim

import (
	"errors"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/roster"
)

const (
	leaseTime   = 2 * time.Second        // of servers and of the leading coordinator
	callTimeout = 400 * time.Millisecond // of one call to the registry
)

var errAway = errors.New("the registry does not answer")

// registry simulates etcd: who is present, which view counts, who leads, and the next fence. A call
// that fails may or may not have taken effect.
type registry struct {
	c        *Cluster
	away     time.Duration // no answers before this time
	revision int64
	places   []place
	view     *kintsugi.View
	before   *kintsugi.View // the view before view
	viewAt   int64
	fence    kintsugi.Fence
	leader   *proc
	leadTo   time.Duration
	acting   acting
	standing kintsugi.ViewNumber // the view in which the run is held and saved
	watches  []*watch
}

// place is a server's entry in the registry: one life, under a lease.
type place struct {
	life   *serverLife // nil: empty
	newest kintsugi.Incarnation
	since  int64
	lease  time.Duration // until this time
	whole  kintsugi.ViewNumber

	leaving, holding bool // what the life says of itself: it wants to leave; it alone holds some shard
	apart            []kintsugi.Life
}

// joined returns the entry of a filled place in the form of the roster.
func (p *place) joined() roster.Joined {
	return roster.Joined{Member: p.life.member, Since: p.since, Holds: p.life.holds, Whole: p.whole, Leaving: p.leaving, Apart: p.apart}
}

// acting is who conducts a view: the server it names, or a server that was promoted since.
type acting struct {
	view  kintsugi.ViewNumber
	fence kintsugi.Fence
	proc  *proc
}

// watch is a process that wants to know of changes.
type watch struct {
	at   *proc
	tell func()
}

// call executes do at the registry and calls then with the outcome. If that is an error, do may
// nevertheless have been executed.
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

// observe calls tell on every change from now on, and once for the current state.
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

// lag draws how late somebody notices a change, or makes the request that the change requires:
// usually not late at all.
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

// register puts a life into its place, or renews its lease. It returns ErrFenced if a later life
// has taken the place.
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

// expire empties a place whose lease has lapsed. While the registry is unavailable, no lease
// lapses; after that, everyone has the time of one lease to renew.
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

// put makes v the view that counts, if p leads and before is the current view.
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
