package etcd

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kintsugi-ml/kintsugi"
)

// State is the state of a process's own registration.
type State uint8

// The states. A registration begins as Held, and may alternate between Held and Silent. The other
// states are final.
const (
	// Held means that etcd has confirmed the lease within its time to live.
	Held State = iota

	// Silent means that etcd has not confirmed the lease for its time to live, or says that it has
	// lapsed: others may take this process for dead. The registration keeps trying.
	Silent

	// Superseded means that a later life has taken the place. This process must end.
	Superseded

	// Forgotten means that etcd does not know this life, although no later one has taken the place:
	// its data were lost. This process must end. Another life can take the place. A backup may know
	// this life: see Client.WentBack.
	Forgotten

	// Closed means that Close was called, or that the context of Register has ended.
	Closed
)

func (s State) String() string {
	return [...]string{"held", "silent", "superseded", "forgotten", "closed"}[s]
}

// Status is a state and its history.
type Status struct {
	State  State
	Lapses int // how often others saw an empty place although this process was alive
}

// Registration fills a place of the run while its process lives. Its methods are safe for
// concurrent use.
type Registration struct {
	client      *Client
	kind        Kind
	index       uint32
	incarnation kintsugi.Incarnation
	mine        string // the value of the life's key
	record      record // mu guards its value
	mu          sync.Mutex
	ttl         int64 // in seconds

	changes latest[Status]
	cancel  context.CancelFunc
	loops   sync.WaitGroup

	// Owned by the loop until it has ended, and then by Close.
	status Status
	lease  clientv3.LeaseID
}

// Tell replaces the value that the process registered. If the lease has lapsed, the new value is
// written with the next lease.
func (r *Registration) Tell(ctx context.Context, value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("register %s/%d: %w", r.kind, r.index, err)
	}
	r.mu.Lock()
	r.record.Value = b
	r.mu.Unlock()
	c, member := r.client, memberKey(r.kind, r.index)
	there := clientv3.Compare(clientv3.CreateRevision(c.prefix+member), ">", 0)
	if _, err = c.etcd.Txn(ctx).If(r.isMine(), there).Then(r.put(clientv3.WithIgnoreLease())).Commit(); err != nil {
		return fmt.Errorf("register %s/%d: %w", r.kind, r.index, err)
	}
	return nil
}

// isMine is the condition that the newest life of the place, as etcd knows it, is this one.
func (r *Registration) isMine() clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(r.client.prefix+lifeKey(r.kind, r.index)), "=", r.mine)
}

// put returns the operation that writes the member's key.
func (r *Registration) put(o clientv3.OpOption) clientv3.Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.client.put(memberKey(r.kind, r.index), r.record, o)
}

// errSuperseded means that a later life has taken the place, and errForgotten that etcd has lost its
// data.
var (
	errSuperseded = errors.New("a later life has taken the place")
	errForgotten  = errors.New("etcd does not know this life: its data were lost")
)

// Register makes this process the current life of a place. It does so even if the lease of the life
// before has not lapsed yet: whoever starts processes must ensure that a place has only one. value
// is stored as JSON and tells others what they need to know; that of a server contains its
// "address". If the process dies, others see the place empty after ttl, which is rounded up to
// whole seconds.
//
// Register returns when others can see the process, or when ctx ends. The registration survives
// outages of etcd. It lasts until Close or until ctx ends; only Close empties the place at once.
func (c *Client) Register(ctx context.Context, k Kind, index uint32, value any, ttl time.Duration) (*Registration, error) {
	b, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("register %s/%d: %w", k, index, err)
	}
	r := &Registration{client: c, kind: k, index: index, record: record{Value: b}, ttl: seconds(ttl), changes: newLatest[Status]()}
	if err := r.beginLife(ctx); err != nil {
		return nil, fmt.Errorf("register %s/%d: %w", k, index, err)
	}
	r.live(ctx)
	return r, nil
}

// live starts the loops of a life that has begun.
func (r *Registration) live(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(ctx)
	newer, watching := context.WithCancelCause(ctx)
	r.loops.Add(2)
	go func() {
		defer r.loops.Done()
		r.watchLives(newer, watching)
	}()
	go func() {
		defer r.loops.Done()
		r.hold(newer, watching)
	}()
}

// Index returns the place.
func (r *Registration) Index() uint32 { return r.index }

// Incarnation returns the number of this life of the place, from 1. There are no gaps unless a
// Register failed half-way.
func (r *Registration) Incarnation() kintsugi.Incarnation { return r.incarnation }

// Changes returns a channel that delivers the status immediately and after each change. It holds
// only the newest status, and is closed after a final one.
func (r *Registration) Changes() <-chan Status { return r.changes }

// Close empties the place. It waits for etcd at most until ctx ends, plus a second; without an
// answer the lease lapses by itself. If a later life has taken the place, that life keeps it.
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

// Leave is Close for a process that leaves because of a notice: as soon as its place is empty, Left
// returns this life. This is a key of its own, since observers that look now and then may only see
// an empty place, and not the last value of the life.
func (r *Registration) Leave(ctx context.Context) error {
	r.cancel()
	r.loops.Wait()
	c := r.client
	bounded, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	_, err := c.etcd.Txn(bounded).
		If(r.isMine()).
		Then(c.put(leftKey(r.kind, r.index), r.incarnation), clientv3.OpDelete(c.prefix+memberKey(r.kind, r.index))).
		Commit()
	if err != nil {
		err = fmt.Errorf("say that %s/%d leaves: %w", r.kind, r.index, err)
	}
	return errors.Join(err, r.Close(ctx))
}

// farewell is how long a process that ends tries to tell etcd so.
const farewell = time.Second

// revoke ends a lease. It is no error if the lease has lapsed already.
func (c *Client) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	_, err := c.etcd.Revoke(ctx, lease)
	if isLeaseLost(err) {
		return nil
	}
	return err
}

// beginLife begins a life in the place, whoever has it.
func (r *Registration) beginLife(ctx context.Context) error {
	lease, err := r.client.etcd.Grant(ctx, r.ttl)
	if err != nil {
		return err
	}
	for range conflicts {
		if begun, err := r.tryLife(ctx, lease.ID, nil); begun || err != nil {
			return err
		}
	}
	return errConflict
}

// tryLife increments the number of lives and writes the member's key, in one transaction: a life is
// never visible under the number of another. It returns false if the place changed meanwhile, or is
// not as may wants it: may gets what is stored of the newest life, nil if there was none, and further
// conditions hold in the same transaction. A nil may takes every place.
func (r *Registration) tryLife(ctx context.Context, lease clientv3.LeaseID, may func(newest []byte) (bool, error), conditions ...clientv3.Cmp) (begun bool, err error) {
	c, key := r.client, lifeKey(r.kind, r.index)
	b, rev, found, err := c.get(ctx, key)
	if err != nil {
		return false, err
	}
	if may != nil {
		if ok, err := may(b); !ok || err != nil {
			return false, err
		}
	}
	var before life
	if found {
		if before, err = decode[life](key, b); err != nil {
			return false, err
		}
	}
	mine, err := json.Marshal(life{Incarnation: before.Incarnation + 1, Mark: rand.Text()})
	if err != nil {
		return false, err
	}
	r.record.Incarnation = before.Incarnation + 1
	t, err := c.etcd.Txn(ctx).
		If(append(conditions, c.unchanged(key, rev))...).
		Then(clientv3.OpPut(c.prefix+key, string(mine)), r.put(clientv3.WithLease(lease))).
		Commit()
	if err != nil || !t.Succeeded {
		return false, err
	}
	r.incarnation, r.mine, r.lease = before.Incarnation+1, string(mine), lease
	return true, nil
}

// watchLives ends the registration when another life takes the place.
func (r *Registration) watchLives(ctx context.Context, end context.CancelCauseFunc) {
	look := func(value []byte) {
		if err := r.other(value); err != nil {
			end(err)
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

// other returns what it means for this life that the life's key has a value: nil if that is its own.
func (r *Registration) other(value []byte) error {
	n, err := decode[life](lifeKey(r.kind, r.index), value)
	switch {
	case err != nil || string(value) == r.mine:
		return nil
	case n.Incarnation > r.incarnation:
		return errSuperseded
	}
	return errForgotten
}

// hold keeps the place until ctx ends, and reports changes of the status. end ends ctx.
func (r *Registration) hold(ctx context.Context, end context.CancelCauseFunc) {
	defer close(r.changes)
	r.say(Held)
	for {
		r.keepAlive(ctx)
		if ctx.Err() != nil {
			break
		}
		r.say(Silent)
		if !r.takeUp(ctx, end) {
			break
		}
		r.say(Held)
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errSuperseded):
		r.say(Superseded)
	case errors.Is(cause, errForgotten):
		r.say(Forgotten)
	default:
		r.say(Closed)
	}
}

func (r *Registration) say(s State) {
	r.status.State = s
	r.changes.send(r.status)
}

// keepAlive renews the lease, three times in its time to live. It returns when ctx ends, when etcd
// has been silent for the lease's time to live, or when the lease is gone.
func (r *Registration) keepAlive(ctx context.Context) {
	answers, err := r.client.etcd.KeepAlive(ctx, r.lease)
	if err != nil {
		return
	}
	for range answers {
	}
}

// takeUp gets a new lease and writes the key with it, as the same life. It returns false when ctx
// has ended, which it sees to itself if another life has the place. If the old lease is still alive
// after all, the key moves to the new lease without ever being away.
func (r *Registration) takeUp(ctx context.Context, end context.CancelCauseFunc) bool {
	for {
		err := r.tryTakeUp(ctx)
		switch {
		case err == nil:
			return true
		case errors.Is(err, errSuperseded), errors.Is(err, errForgotten):
			end(err)
		}
		if !pause(ctx) {
			return false
		}
	}
}

func (r *Registration) tryTakeUp(ctx context.Context) error {
	// A call that began before an outage may hang on a dead connection, so make a new one now and
	// then.
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.ttl)*time.Second)
	defer cancel()
	c, key, member := r.client, lifeKey(r.kind, r.index), memberKey(r.kind, r.index)
	lease, err := c.etcd.Grant(ctx, r.ttl)
	if err != nil {
		return err
	}
	t, err := c.etcd.Txn(ctx).
		If(r.isMine()).
		Then(clientv3.OpGet(c.prefix+member), r.put(clientv3.WithLease(lease.ID))).
		Else(clientv3.OpGet(c.prefix + key)).
		Commit()
	if err != nil {
		return err // whether or not it was written, the next attempt writes it again
	}
	if !t.Succeeded {
		c.revoke(ctx, lease.ID) // no key depends on it; otherwise it lapses by itself
		for _, kv := range t.Responses[0].GetResponseRange().Kvs {
			return cmp.Or(r.other(kv.Value), errForgotten)
		}
		return errForgotten // nobody has ever had the place
	}
	if len(t.Responses[0].GetResponseRange().Kvs) == 0 {
		r.status.Lapses++
	}
	old := r.lease
	r.lease = lease.ID
	c.revoke(ctx, old) // no key depends on it any more; otherwise it lapses by itself
	return nil
}
