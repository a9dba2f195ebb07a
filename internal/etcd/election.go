package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/kintsugi-ml/kintsugi"
)

// electionPrefix holds candidates and nothing else: a key without a lease here would be waited on for ever.
const electionPrefix = "election/coordinator"

// isLeaseLost reports that etcd does not know the lease (any more).
func isLeaseLost(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// Leadership is the right to put views, as long as its lease lives.
type Leadership struct {
	client  *Client
	session *concurrency.Session
	mine    clientv3.Cmp // the candidate's key is still there
}

// Leader returns the id of the coordinator that leads; empty: nobody does.
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

// errLapsed means that a candidate's lease was gone before it led.
var errLapsed = errors.New("the lease lapsed while waiting")

// Campaign waits until this process leads, or until ctx ends. id names the candidate for whoever looks into
// etcd. When the leader dies, the next candidate leads after ttl, which is rounded up to whole seconds; when
// it resigns, at once.
func (c *Client) Campaign(ctx context.Context, id string, ttl time.Duration) (*Leadership, error) {
	l, err := c.campaign(ctx, id, seconds(ttl))
	if err != nil {
		return nil, fmt.Errorf("campaign as coordinator: %w", err)
	}
	return l, nil
}

func (c *Client) campaign(ctx context.Context, id string, ttl int64) (*Leadership, error) {
	lease, err := c.etcd.Grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// When the wait ends early, concurrency tries to take back the candidacy under the client's own context,
	// for ever where etcd is away. This client has ours; the lease takes the candidacy back.
	bounded := clientv3.NewCtxClient(waiting, clientv3.WithZapLogger(zap.NewNop()))
	bounded.KV, bounded.Lease, bounded.Watcher = c.etcd.KV, c.etcd.Lease, c.etcd.Watcher

	// The session outlives ctx: resigning is the last thing that is done.
	session, err := concurrency.NewSession(bounded, concurrency.WithLease(lease.ID), concurrency.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		return nil, err
	}
	// A candidate whose lease lapses while it waits would find nobody before it, and believe that it leads.
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-session.Done():
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
		mine:    clientv3.Compare(clientv3.CreateRevision(election.Key()), "=", election.Rev()),
	}, nil
}

// giveBack ends a lease whose owner's context has ended already.
func (c *Client) giveBack(lease clientv3.LeaseID) error {
	ctx, cancel := context.WithTimeout(c.etcd.Ctx(), farewell)
	defer cancel()
	return c.revoke(ctx, lease)
}

// Lost is closed when the lease has lapsed or etcd has not confirmed it for its time to live: somebody else
// may lead.
func (l *Leadership) Lost() <-chan struct{} { return l.session.Done() }

// PutView is Client.PutView by the coordinator that leads: it is ErrFenced also when somebody else leads by now.
func (l *Leadership) PutView(ctx context.Context, previous kintsugi.ViewNumber, v kintsugi.View) (Revision, error) {
	return l.client.putView(ctx, previous, v, l.mine)
}

// Resign lets the next candidate lead at once. Where etcd does not answer within a second, the next
// candidate waits for the lease.
func (l *Leadership) Resign() error {
	l.session.Orphan()
	if err := l.client.giveBack(l.session.Lease()); err != nil {
		return fmt.Errorf("resign as coordinator: %w", err)
	}
	return nil
}
