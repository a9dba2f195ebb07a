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
	back := v.Before.Life != "" && v.Before.Index < v.Places
	var waiting sync.WaitGroup
	defer waiting.Wait()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	waits := false
	for members := range c.WatchMembers(watching, k) {
		filled := make(map[uint32]bool, len(members))
		for _, m := range members {
			filled[m.Index] = true
		}
		var empty []uint32
		for i := range v.Places {
			if !filled[i] {
				empty = append(empty, i)
			}
		}
		taken := false
		var err error
		if back {
			taken, err = r.fill(ctx, v, []uint32{v.Before.Index}, v.Before.Life)
			back = false // if it is another's by now, it stays so
		}
		if !taken && err == nil {
			taken, err = r.fill(ctx, v, empty, "")
		}
		if err != nil {
			return nil, fmt.Errorf("register as any %s: %w", k, err)
		}
		if taken {
			r.live(ctx)
			return r, nil
		}
		if len(empty) == 0 && !waits {
			waits = true
			waiting.Go(func() { c.wait(watching, k, v.Host, r.ttl) })
			if v.Full != nil {
				v.Full()
			}
		}
	}
	return nil, fmt.Errorf("register as any %s: %w", k, context.Cause(ctx))
}

// fill begins a life in the first of the given places that is empty, or whose newest life is the
// given one. It returns false if there is none. What took them meanwhile has changed the members.
func (r *Registration) fill(ctx context.Context, v Vacancy, places []uint32, before string) (taken bool, err error) {
	if len(places) == 0 {
		return false, nil
	}
	// An etcd that is away shows in the error, and not in a process that waits for nothing.
	bounded, cancel := context.WithTimeout(ctx, time.Duration(r.ttl)*time.Second)
	defer cancel()
	lease, err := r.client.etcd.Grant(bounded, r.ttl)
	if err != nil {
		return false, err
	}
	for _, r.index = range places {
		if r.record.Value, err = json.Marshal(v.Value(r.index)); err != nil {
			break
		}
		if before != "" {
			taken, err = r.tryLife(bounded, lease.ID, func(newest []byte) bool { return string(newest) == before })
		} else {
			empty := clientv3.Compare(clientv3.CreateRevision(r.client.prefix+memberKey(r.kind, r.index)), "=", 0)
			taken, err = r.tryLife(bounded, lease.ID, nil, empty)
		}
		if taken || err != nil {
			break
		}
	}
	if !taken {
		_ = r.client.revoke(bounded, lease.ID) // no key depends on it; otherwise it lapses by itself
	}
	return taken, err
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
