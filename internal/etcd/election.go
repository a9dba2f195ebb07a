package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/kintsugi-ml/kintsugi"
)

// electionPrefix must contain only candidates: a candidate would wait for ever for a key without a
// lease.
const electionPrefix = "election/coordinator"

// isLeaseLost reports whether etcd does not know the lease, or no longer.
func isLeaseLost(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// Leadership is the right to put views. It lasts as long as its lease.
type Leadership struct {
	client  *Client
	session *concurrency.Session
	mine    clientv3.Cmp  // condition: the candidate's key still exists
	lost    chan struct{} // see Lost
}

// Leader returns the id of the leading coordinator, or "" if nobody leads.
func (c *Client) Leader(ctx context.Context) (id string, err error) {
	r, err := c.etcd.Get(ctx, c.prefix+electionPrefix+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return "", fmt.Errorf("ask who leads: %w", err)
	}
	if len(r.Kvs) == 0 {
		return "", nil
	}
	return string(r.Kvs[0].Value), nil
}

// Depose withdraws the candidacies, and with it the leadership, of processes that are known to be
// dead, so that nobody has to wait for their leases. gone decides by the id that a candidate gave to
// Campaign. If it is wrong, nothing is lost: views are put under a candidacy, and a leader whose
// candidacy is gone learns of it by Lost.
func (c *Client) Depose(ctx context.Context, gone func(id string) bool) error {
	r, err := c.etcd.Get(ctx, c.prefix+electionPrefix+"/", clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("ask who campaigns: %w", err)
	}
	for _, kv := range r.Kvs {
		if id := string(kv.Value); gone(id) {
			same := clientv3.Compare(clientv3.CreateRevision(string(kv.Key)), "=", kv.CreateRevision)
			if _, err := c.etcd.Txn(ctx).If(same).Then(clientv3.OpDelete(string(kv.Key))).Commit(); err != nil {
				return fmt.Errorf("depose %s: %w", id, err)
			}
		}
	}
	return nil
}

// errLapsed means that a candidate's lease lapsed before it led.
var errLapsed = errors.New("the lease lapsed while waiting")

// Campaign waits until this process leads, or until ctx ends. id names the candidate for people who
// look into etcd. If the leader dies, the next candidate leads after ttl, which is rounded up to
// whole seconds. If the leader resigns, the next one leads at once.
func (c *Client) Campaign(ctx context.Context, id string, ttl time.Duration) (*Leadership, error) {
	l, err := c.campaign(ctx, id, seconds(ttl), func() {})
	if err != nil {
		return nil, fmt.Errorf("campaign as coordinator: %w", err)
	}
	return l, nil
}

// campaign is Campaign, and calls looked whenever it has looked whether etcd has lost data.
func (c *Client) campaign(ctx context.Context, id string, ttl int64, looked func()) (*Leadership, error) {
	lease, err := c.etcd.Grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// If the wait ends early, package concurrency tries to withdraw the candidacy under the
	// client's own context, which would take for ever if etcd is unavailable. So give it a client
	// with our context. The lease withdraws the candidacy anyway.
	bounded := clientv3.NewCtxClient(waiting, clientv3.WithZapLogger(zap.NewNop()))
	bounded.KV, bounded.Lease, bounded.Watcher = c.etcd.KV, c.etcd.Lease, c.etcd.Watcher

	// The session must outlive ctx: resigning comes last.
	session, err := concurrency.NewSession(bounded, concurrency.WithLease(lease.ID), concurrency.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		return nil, err
	}
	lost := c.lost(session, looked)
	// If the lease lapsed during the wait, the candidate would find nobody before it and believe
	// that it leads. If etcd went back, it would wait for something to change that has changed
	// already.
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-lost:
			cancel(errLapsed)
		case <-over:
		}
	}()
	election := concurrency.NewElection(session, c.prefix+electionPrefix)
	if err := election.Campaign(waiting, id); err != nil {
		cause := context.Cause(waiting)
		session.Orphan()
		c.giveBack(lease.ID)
		if cause != nil {
			return nil, cause
		}
		return nil, err
	}
	return &Leadership{
		client:  c,
		session: session,
		lost:    c.deposed(lost, election),
		mine:    clientv3.Compare(clientv3.CreateRevision(election.Key()), "=", election.Rev()),
	}, nil
}

// deposed returns a channel that is closed when lost is, or when the candidacy of the leader is
// withdrawn: see Depose.
func (c *Client) deposed(lost <-chan struct{}, election *concurrency.Election) chan struct{} {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		select {
		case <-lost:
			cancel()
		case <-ctx.Done():
		}
		close(over)
	}()
	go c.follow(ctx, strings.TrimPrefix(election.Key(), c.prefix), false, func(kvs []*mvccpb.KeyValue) {
		if len(kvs) == 0 || kvs[0].CreateRevision != election.Rev() {
			cancel()
		}
	}, func(events []*clientv3.Event) {
		for _, e := range events {
			if e.Type == clientv3.EventTypeDelete {
				cancel()
			}
		}
	})
	return over
}

// lost returns a channel that is closed when a session is over, or when etcd has lost what it knew
// since: a lease that a backup has does not lapse.
func (c *Client) lost(session *concurrency.Session, looked func()) chan struct{} {
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		emptied := make(chan struct{})
		go func() {
			if c.emptied(ctx, lookSoon, looked) {
				close(emptied)
			}
		}()
		select {
		case <-session.Done():
		case <-emptied:
		}
	}()
	return lost
}

// giveBack ends a lease whose owner's context has already ended.
func (c *Client) giveBack(lease clientv3.LeaseID) error {
	ctx, cancel := context.WithTimeout(c.etcd.Ctx(), farewell)
	defer cancel()
	return c.revoke(ctx, lease)
}

// Lost is closed when the lease has lapsed, when etcd has not confirmed it for its time to live,
// when somebody has deposed this leader, or when etcd has lost data. Another coordinator may then
// lead.
func (l *Leadership) Lost() <-chan struct{} { return l.lost }

// PutView is Client.PutView for the leading coordinator. It returns ErrFenced also if another
// coordinator leads by now.
func (l *Leadership) PutView(ctx context.Context, previous kintsugi.ViewNumber, v kintsugi.View) (Revision, error) {
	return l.client.putView(ctx, previous, v, l.mine)
}

// Resign lets the next candidate lead at once. If etcd does not answer within a second, the next
// candidate waits until the lease lapses.
func (l *Leadership) Resign() error {
	l.session.Orphan()
	if err := l.client.giveBack(l.session.Lease()); err != nil {
		return fmt.Errorf("resign as coordinator: %w", err)
	}
	return nil
}
