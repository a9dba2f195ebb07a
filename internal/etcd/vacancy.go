package etcd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Tenure names one life of one place. A process that keeps it where its own next life finds it, and
// nobody else does, comes back to its place at once: see Vacancy.
type Tenure struct {
	Index uint32 `json:"index"`
	Life  string `json:"life"`
}

// Tenure returns the name of this life.
func (r *Registration) Tenure() Tenure { return Tenure{Index: r.index, Life: r.mine} }

// Vacancy says which places RegisterAny may fill.
type Vacancy struct {
	Places uint32 // how many there are of this kind, numbered from 0

	// Before is the last life of this process, which is known to be dead. If no other has taken its
	// place since, that one is taken, although its lease may not have lapsed yet. The zero value is
	// no life.
	Before Tenure

	// Grace is how long a place must have been empty whose last process has not said that it leaves:
	// if etcd was away for the time of a lease, that process is back in it before.
	Grace time.Duration

	// Value returns what is registered for a place: see Register.
	Value func(index uint32) any

	// Host is what Waiting says of this process while it waits, and Full is called once before that;
	// nil: nothing.
	Host string
	Full func()
}

// RegisterAny is Register for a process without a place of its own. It takes the first that is
// empty. If all are filled, it waits until one of them becomes empty, as when a process leaves or
// its lease lapses. Several processes that wait may do so for any time: each place is filled by one.
func (c *Client) RegisterAny(ctx context.Context, k Kind, v Vacancy, ttl time.Duration) (*Registration, error) {
	r := &Registration{client: c, kind: k, ttl: seconds(ttl), changes: newLatest[Status]()}
	var waiting sync.WaitGroup
	defer waiting.Wait()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	members, at, waits := c.WatchMembers(watching, k), newEmptiness(v.Places), false
	var late <-chan time.Time // when a place will have been empty for the grace
	for {
		select {
		case there, ok := <-members:
			if !ok {
				return nil, fmt.Errorf("register as any %s: %w", k, context.Cause(ctx))
			}
			at.see(there, time.Now())
		case <-late:
		}
		taken, err := r.takeAny(ctx, &v, at)
		if err != nil {
			return nil, fmt.Errorf("register as any %s: %w", k, err)
		}
		if taken {
			r.live(ctx)
			return r, nil
		}
		if late = nil; at.full() && !waits {
			waits = true
			waiting.Go(func() { c.wait(watching, k, v.Host, r.ttl) })
			if v.Full != nil {
				v.Full()
			}
		}
		if next, ok := at.next(time.Now(), v.Grace); ok {
			late = time.After(next)
		}
	}
}

// takeAny tries to fill one of the places that may be filled by now. It returns false if there is
// none. What took them meanwhile has changed the members.
func (r *Registration) takeAny(ctx context.Context, v *Vacancy, at *emptiness) (bool, error) {
	if own := v.Before; own.Life != "" && own.Index < v.Places {
		v.Before = Tenure{} // if it is another's by now, it stays so
		taken, err := r.fill(ctx, v, []uint32{own.Index}, false, func(newest []byte) (bool, error) { return string(newest) == own.Life, nil })
		if taken || err != nil {
			return taken, err
		}
	}
	now := time.Now()
	taken, err := r.fill(ctx, v, at.places(now, v.Grace, true), true, nil)
	if taken || err != nil {
		return taken, err
	}
	return r.fill(ctx, v, at.places(now, v.Grace, false), true, func(newest []byte) (bool, error) { return r.hasLeft(ctx, newest) })
}

// fill begins a life in the first of the given places of which may allows it, as in tryLife; if empty
// is set, only where nobody is.
func (r *Registration) fill(ctx context.Context, v *Vacancy, places []uint32, empty bool, may func(newest []byte) (bool, error)) (taken bool, err error) {
	if len(places) == 0 {
		return false, nil
	}
	// An etcd that is away shows in the error, and not in a process that waits for nothing.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.ttl)*time.Second)
	defer cancel()
	lease, err := r.client.etcd.Grant(ctx, r.ttl)
	if err != nil {
		return false, err
	}
	for _, r.index = range places {
		if r.record.Value, err = json.Marshal(v.Value(r.index)); err != nil {
			break
		}
		var conditions []clientv3.Cmp
		if empty {
			conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(r.client.prefix+memberKey(r.kind, r.index)), "=", 0))
		}
		if taken, err = r.tryLife(ctx, lease.ID, may, conditions...); taken || err != nil {
			break
		}
	}
	if !taken {
		_ = r.client.revoke(ctx, lease.ID) // no key depends on it; otherwise it lapses by itself
	}
	return taken, err
}

// hasLeft reports whether a place that is empty is so for good: it never had a process, or the last
// one has said that it leaves.
func (r *Registration) hasLeft(ctx context.Context, newest []byte) (bool, error) {
	if newest == nil {
		return true, nil
	}
	last, err := decode[life](lifeKey(r.kind, r.index), newest)
	if err != nil {
		return false, err
	}
	left, err := r.client.Left(ctx, r.kind, r.index)
	return left == last.Incarnation, err
}

// emptiness knows which places are empty, and since when. It is pure.
type emptiness struct {
	since []time.Time // by place; zero: it is filled, or nothing has been seen yet
}

func newEmptiness(places uint32) *emptiness {
	return &emptiness{since: make([]time.Time, places)}
}

// see takes in who is there.
func (e *emptiness) see(members []Member, now time.Time) {
	filled := make([]bool, len(e.since))
	for _, m := range members {
		if int(m.Index) < len(filled) {
			filled[m.Index] = true
		}
	}
	for i, f := range filled {
		switch {
		case f:
			e.since[i] = time.Time{}
		case e.since[i].IsZero():
			e.since[i] = now
		}
	}
}

// full reports whether no place is empty.
func (e *emptiness) full() bool {
	return !slices.ContainsFunc(e.since, func(t time.Time) bool { return !t.IsZero() })
}

// places returns the places that have been empty for the grace, or those that have not.
func (e *emptiness) places(now time.Time, grace time.Duration, long bool) (places []uint32) {
	for i, t := range e.since {
		if !t.IsZero() && (now.Sub(t) >= grace) == long {
			places = append(places, uint32(i))
		}
	}
	return places
}

// next returns when a place that is empty will have been so for the grace.
func (e *emptiness) next(now time.Time, grace time.Duration) (in time.Duration, ok bool) {
	for _, t := range e.since {
		if left := grace - now.Sub(t); !t.IsZero() && left > 0 && (!ok || left < in) {
			in, ok = left, true
		}
	}
	return in, ok
}

// waitingKey returns the key of a process that waits for a place, or with an empty name what such keys
// begin with.
func waitingKey(k Kind, name string) string { return fmt.Sprintf("waiting/%s/%s", k, name) }

// wait says that a process waits for a place, until ctx ends. Nothing depends on it but what Waiting
// returns, so errors are no obstacle.
func (c *Client) wait(ctx context.Context, k Kind, host string, ttl int64) {
	key := waitingKey(k, rand.Text())
	for ctx.Err() == nil {
		lease, err := c.etcd.Grant(ctx, ttl)
		if err == nil {
			_, err = c.etcd.Txn(ctx).Then(c.put(key, host, clientv3.WithLease(lease.ID))).Commit()
		}
		if err == nil {
			var answers <-chan *clientv3.LeaseKeepAliveResponse
			if answers, err = c.etcd.KeepAlive(ctx, lease.ID); err == nil {
				for range answers {
				}
			}
		}
		if !pause(ctx) && lease != nil {
			ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
			_ = c.revoke(ended, lease.ID) // otherwise it lapses by itself
			cancel()
		}
	}
}

// Waiting returns the hosts of the processes that wait for a place in RegisterAny, sorted.
func (c *Client) Waiting(ctx context.Context, k Kind) ([]string, error) {
	r, err := c.etcd.Get(ctx, c.prefix+waitingKey(k, ""), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("list %ss that wait for a place: %w", k, err)
	}
	var hosts []string
	for _, kv := range r.Kvs {
		if host, err := decode[string](string(kv.Key), kv.Value); err == nil {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts, nil
}
