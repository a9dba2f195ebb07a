package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kintsugi-ml/kintsugi"
)

// State is what a process may believe of its own registration.
type State uint8

// The states. A registration starts Held and may go back and forth between Held and Silent; the other two are final.
const (
	// Held means that etcd has confirmed the lease less than its time to live ago.
	Held State = iota

	// Silent means that etcd has not confirmed the lease for its time to live, or says that it has lapsed:
	// others may take this process for dead. The registration keeps trying.
	Silent

	// Superseded means that a later life has taken the place. This process must end: it is a ghost.
	Superseded

	// Closed means that Close was called, or that the context of Register has ended.
	Closed
)

func (s State) String() string {
	return [...]string{"held", "silent", "superseded", "closed"}[s]
}

// Status is a state and its history.
type Status struct {
	State  State
	Lapses int // how often others have seen the place empty although this process lived
}

// Registration fills a place in the run as long as its process lives. Its methods are safe for concurrent use.
type Registration struct {
	client      *Client
	kind        Kind
	index       uint32
	incarnation kintsugi.Incarnation
	record      record // its value is guarded by mu
	mu          sync.Mutex
	ttl         int64 // seconds

	changes latest[Status]
	cancel  context.CancelFunc
	loops   sync.WaitGroup

	// Owned by the loop until it has ended, then by Close.
	status Status
	lease  clientv3.LeaseID
}

// Tell replaces what the process has said of itself when it registered. Where the lease has lapsed
// it is said with the next one.
func (r *Registration) Tell(ctx context.Context, value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("register %s/%d: %w", r.kind, r.index, err)
	}
	r.mu.Lock()
	r.record.Value = b
	r.mu.Unlock()
	c, member := r.client, memberKey(r.kind, r.index)
	mine := clientv3.Compare(clientv3.Value(c.prefix+lifeKey(r.kind, r.index)), "=", fmt.Sprint(r.incarnation))
	there := clientv3.Compare(clientv3.CreateRevision(c.prefix+member), ">", 0)
	if _, err = c.etcd.Txn(ctx).If(mine, there).Then(r.put(clientv3.WithIgnoreLease())).Commit(); err != nil {
		return fmt.Errorf("register %s/%d: %w", r.kind, r.index, err)
	}
	return nil
}

// put puts the member's key.
func (r *Registration) put(o clientv3.OpOption) clientv3.Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.client.put(memberKey(r.kind, r.index), r.record, o)
}

// errSuperseded means that a later life has taken the place.
var errSuperseded = errors.New("a later life has taken the place")

// Register makes this process the present life of a place, at once even where the lease of the life before
// has not lapsed yet: who starts processes makes sure that a place has one. value is stored as JSON and
// tells the others what they must know; a server's holds its "address". When the process dies, others see the
// place empty after ttl, which is rounded up to whole seconds.
//
// It returns once the others can see it, or when ctx ends. The registration lives on, through outages of
// etcd, until Close or until ctx ends; only Close empties the place at once.
func (c *Client) Register(ctx context.Context, k Kind, index uint32, value any, ttl time.Duration) (*Registration, error) {
	b, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("register %s/%d: %w", k, index, err)
	}
	r := &Registration{client: c, kind: k, index: index, record: record{Value: b}, ttl: seconds(ttl), changes: newLatest[Status]()}
	if err := r.beginLife(ctx); err != nil {
		return nil, fmt.Errorf("register %s/%d: %w", k, index, err)
	}
	ctx, r.cancel = context.WithCancel(ctx)
	newer, watching := context.WithCancelCause(ctx)
	r.loops.Add(2)
	go func() {
		defer r.loops.Done()
		r.watchLives(newer, watching)
	}()
	go func() {
		defer r.loops.Done()
		r.hold(newer)
	}()
	return r, nil
}

// Incarnation numbers this life of the place, from 1, without gaps unless a Register failed half-way.
func (r *Registration) Incarnation() kintsugi.Incarnation { return r.incarnation }

// Changes delivers the status at once and after each change, the newest only. The channel is closed after a
// final state.
func (r *Registration) Changes() <-chan Status { return r.changes }

// Close empties the place. It waits for etcd no longer than ctx and a second: where etcd does not answer, the
// lease lapses by itself. A later life that has taken the place keeps it.
func (r *Registration) Close(ctx context.Context) error {
	r.cancel()
	r.loops.Wait()
	if r.lease == clientv3.NoLease {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	if err := r.client.revoke(ctx, r.lease); err != nil {
		return fmt.Errorf("close registration of %s/%d: %w", r.kind, r.index, err)
	}
	r.lease = clientv3.NoLease
	return nil
}

// Leave is Close for a process that goes because it had notice: as soon as its place is empty Left
// says so. Whoever looks at the place now and then sees it empty and no more, so what the life has
// said of itself last is no place for this word.
func (r *Registration) Leave(ctx context.Context) error {
	r.cancel()
	r.loops.Wait()
	c, life := r.client, lifeKey(r.kind, r.index)
	bounded, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	mine := clientv3.Compare(clientv3.Value(c.prefix+life), "=", fmt.Sprint(r.incarnation))
	_, err := c.etcd.Txn(bounded).
		If(mine).
		Then(c.put(leftKey(r.kind, r.index), r.incarnation), clientv3.OpDelete(c.prefix+memberKey(r.kind, r.index))).
		Commit()
	if err != nil {
		err = fmt.Errorf("say that %s/%d leaves: %w", r.kind, r.index, err)
	}
	return errors.Join(err, r.Close(ctx))
}

// farewell bounds how long a process that ends tries to tell etcd so.
const farewell = time.Second

// revoke ends a lease; one that has lapsed is no error.
func (c *Client) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	_, err := c.etcd.Revoke(ctx, lease)
	if isLeaseLost(err) {
		return nil
	}
	return err
}

// beginLife counts one more life of the place and puts the member's key, in one transaction: a life is
// never visible under the number of another.
func (r *Registration) beginLife(ctx context.Context) error {
	c, life := r.client, lifeKey(r.kind, r.index)
	lease, err := c.etcd.Grant(ctx, r.ttl)
	if err != nil {
		return err
	}
	for range conflicts {
		b, rev, found, err := c.get(ctx, life)
		if err != nil {
			return err
		}
		var before kintsugi.Incarnation
		if found {
			if before, err = decode[kintsugi.Incarnation](life, b); err != nil {
				return err
			}
		}
		r.record.Incarnation = before + 1
		t, err := c.etcd.Txn(ctx).
			If(c.unchanged(life, rev)).
			Then(c.put(life, before+1), r.put(clientv3.WithLease(lease.ID))).
			Commit()
		if err != nil {
			return err
		}
		if t.Succeeded {
			r.incarnation, r.lease = before+1, lease.ID
			return nil
		}
	}
	return errConflict
}

// watchLives ends the registration when a later life takes the place.
func (r *Registration) watchLives(ctx context.Context, end context.CancelCauseFunc) {
	look := func(value []byte) {
		if n, err := decode[kintsugi.Incarnation]("life", value); err == nil && n > r.incarnation {
			end(errSuperseded)
		}
	}
	r.client.follow(ctx, lifeKey(r.kind, r.index), false, func(kvs []*mvccpb.KeyValue) {
		for _, kv := range kvs {
			look(kv.Value)
		}
	}, func(events []*clientv3.Event) {
		for _, e := range events {
			if e.Type == clientv3.EventTypePut {
				look(e.Kv.Value)
			}
		}
	})
}

// hold keeps the place until ctx ends, and says how it stands.
func (r *Registration) hold(ctx context.Context) {
	defer close(r.changes)
	r.say(Held)
	for {
		r.keepAlive(ctx)
		if ctx.Err() != nil {
			break
		}
		r.say(Silent)
		if !r.takeUp(ctx) {
			break
		}
		r.say(Held)
	}
	if errors.Is(context.Cause(ctx), errSuperseded) {
		r.say(Superseded)
	} else {
		r.say(Closed)
	}
}

func (r *Registration) say(s State) {
	r.status.State = s
	r.changes.send(r.status)
}

// keepAlive renews the lease three times in its life, until ctx ends, etcd has been silent for the life of
// the lease, or the lease is gone.
func (r *Registration) keepAlive(ctx context.Context) {
	answers, err := r.client.etcd.KeepAlive(ctx, r.lease)
	if err != nil {
		return
	}
	for range answers {
	}
}

// takeUp gets a new lease and puts the key under it, as the same life. It reports false when ctx has ended.
// Where the old lease turns out to live still, the key has never been away and moves over.
func (r *Registration) takeUp(ctx context.Context) bool {
	for {
		err := r.tryTakeUp(ctx)
		if err == nil {
			return true
		}
		if errors.Is(err, errSuperseded) {
			<-ctx.Done() // watchLives sees the later life, too, and knows how to say it
		}
		if !pause(ctx) {
			return false
		}
	}
}

func (r *Registration) tryTakeUp(ctx context.Context) error {
	// A call that started before an outage may hang on a connection that is dead: ask anew now and then.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.ttl)*time.Second)
	defer cancel()
	c, life, member := r.client, lifeKey(r.kind, r.index), memberKey(r.kind, r.index)
	lease, err := c.etcd.Grant(ctx, r.ttl)
	if err != nil {
		return err
	}
	mine := clientv3.Compare(clientv3.Value(c.prefix+life), "=", fmt.Sprint(r.incarnation))
	t, err := c.etcd.Txn(ctx).If(mine).Then(clientv3.OpGet(c.prefix+member), r.put(clientv3.WithLease(lease.ID))).Commit()
	if err != nil {
		return err // whether or not it was put, the next attempt puts it again
	}
	if !t.Succeeded {
		c.revoke(ctx, lease.ID) // holds no key; lapses by itself otherwise
		return errSuperseded
	}
	if len(t.Responses[0].GetResponseRange().Kvs) == 0 {
		r.status.Lapses++
	}
	old := r.lease
	r.lease = lease.ID
	c.revoke(ctx, old) // holds no key any more; lapses by itself otherwise
	return nil
}
