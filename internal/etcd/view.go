package etcd

import (
	"context"
	"crypto/rand"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kintsugi-ml/kintsugi"
)

const (
	idKey    = "id"
	viewKey  = "view"
	fenceKey = "fence"
)

// Revision is etcd's counter of changes. Of two values, the one with the larger revision is the
// later.
type Revision int64

// ID returns the id of the run. It is the same for all callers, as long as etcd keeps its keys; the
// first caller draws it at random. Names distinguish the runs in one etcd, and the id distinguishes
// all runs: two etcds that were set up in the same way have even the same cluster id.
func (c *Client) ID(ctx context.Context) (string, error) {
	for range conflicts {
		b, rev, found, err := c.get(ctx, idKey)
		if err != nil {
			return "", fmt.Errorf("read the id of the run: %w", err)
		}
		if found {
			return decode[string](idKey, b)
		}
		id := rand.Text()
		r, err := c.etcd.Txn(ctx).If(c.unchanged(idKey, rev)).Then(c.put(idKey, id)).Commit()
		if err != nil {
			return "", fmt.Errorf("draw the id of the run: %w", err) // if it was written anyway, the next caller reads it
		}
		if r.Succeeded {
			return id, nil
		}
	}
	return "", fmt.Errorf("draw the id of the run: %w", errConflict)
}

// View returns the current view and the revision at which it was put, or nil and 0 if there is none
// yet.
func (c *Client) View(ctx context.Context) (*kintsugi.View, Revision, error) {
	r, err := c.etcd.Get(ctx, c.prefix+viewKey)
	if err != nil {
		return nil, 0, fmt.Errorf("read view: %w", err)
	}
	v, rev, err := c.viewIn(r.Kvs)
	return v, Revision(rev), err
}

// viewIn returns the view in the answer to a request for its key, and the revision of the key, or
// nil and 0.
func (c *Client) viewIn(kvs []*mvccpb.KeyValue) (*kintsugi.View, int64, error) {
	if len(kvs) == 0 {
		return nil, 0, nil
	}
	v, err := decode[kintsugi.View](viewKey, kvs[0].Value)
	if err != nil {
		return nil, 0, fmt.Errorf("read view: %w", err)
	}
	c.hears(&v)
	return &v, kvs[0].ModRevision, nil
}

// WatchView returns a channel with the current view, immediately if there is one, and each later
// view. It holds only the newest and never goes back to a smaller number. It is closed when ctx
// ends.
func (c *Client) WatchView(ctx context.Context) <-chan kintsugi.View {
	var newest kintsugi.ViewNumber
	return watchValue(ctx, c, viewKey, func(v kintsugi.View) bool {
		if v.Number <= newest {
			return false
		}
		newest = v.Number
		c.hears(&v)
		return true
	})
}

// PutView replaces the view with the number previous (0: there is none yet) by v. The fence of v
// becomes the largest that was handed out. It returns the revision of the change.
//
// If another view counts by now, nothing changes and the error is ErrStaleView: read that view and
// decide again. If somebody has taken a larger fence than that of v, the error is ErrFenced: take a
// new fence and put v with it. If the answer is lost, the view may have been put nevertheless;
// another PutView then returns ErrStaleView.
func (c *Client) PutView(ctx context.Context, previous kintsugi.ViewNumber, v kintsugi.View) (Revision, error) {
	return c.putView(ctx, previous, v)
}

// putView is PutView with further conditions. If one of these fails, the error is ErrFenced.
func (c *Client) putView(ctx context.Context, previous kintsugi.ViewNumber, v kintsugi.View, conditions ...clientv3.Cmp) (Revision, error) {
	if v.Number <= previous {
		panic(fmt.Sprintf("etcd: view %d cannot replace view %d", v.Number, previous))
	}
	for range conflicts {
		now, err := c.foremost(ctx)
		if err != nil {
			return 0, fmt.Errorf("put view %d: %w", v.Number, err)
		}
		if number := now.number(); number != previous {
			return 0, fmt.Errorf("put view %d after view %d: view %d counts by now: %w", v.Number, previous, number, kintsugi.ErrStaleView)
		}
		if now.fence > v.Fence {
			return 0, fmt.Errorf("put view %d under fence %d: fence %d has been taken: %w", v.Number, v.Fence, now.fence, kintsugi.ErrFenced)
		}
		r, err := c.etcd.Txn(ctx).
			If(append(conditions, c.unchanged(viewKey, now.viewRev), c.unchanged(fenceKey, now.fenceRev))...).
			Then(c.put(viewKey, v), c.put(fenceKey, v.Fence)).
			Commit()
		if err != nil {
			return 0, fmt.Errorf("put view %d: %w", v.Number, err)
		}
		if r.Succeeded {
			c.hears(&v)
			return Revision(r.Header.Revision), nil
		}
		if len(conditions) > 0 {
			held, err := c.etcd.Txn(ctx).If(conditions...).Commit()
			if err != nil {
				return 0, fmt.Errorf("put view %d: %w", v.Number, err)
			}
			if !held.Succeeded {
				return 0, fmt.Errorf("put view %d: another coordinator leads: %w", v.Number, kintsugi.ErrFenced)
			}
		}
	}
	return 0, fmt.Errorf("put view %d: %w", v.Number, errConflict)
}

// NextFence hands out a fence that is larger than atLeast and than every fence before. Pass the
// largest fence that the reachable shards and the newest manifest know, which may be larger than
// that in etcd.
func (c *Client) NextFence(ctx context.Context, atLeast kintsugi.Fence) (kintsugi.Fence, error) {
	now, err := c.foremost(ctx)
	if err != nil {
		return 0, fmt.Errorf("take a fence: %w", err)
	}
	fence, err := c.nextFence(ctx, max(now.fence, atLeast), nil, c.unchanged(fenceKey, now.fenceRev))
	if err != nil {
		return 0, fmt.Errorf("take a fence: %w", err)
	}
	return fence, nil
}

// ConductorFence hands out a fence to the conductor of v: larger than the fence of v and than every
// fence before. If another view counts by now, the error is ErrStaleView. So the conductor of a
// later view always has a larger fence, however late the conductor of an earlier view asks for one.
// Otherwise a shard that had promised the earlier conductor's fence would refuse the later one for
// ever; and of two decisions about a step, the later must count.
//
// Steps stand still until a conductor has its fence. So the first request does not read, but takes the
// fence on condition that all is as is to be expected: the largest fence is that of v, and v is the
// view, to the byte. Only if that is not so, it reads, and there is another request.
func (c *Client) ConductorFence(ctx context.Context, v kintsugi.View) (kintsugi.Fence, error) {
	fence, err := c.nextFence(ctx, v.Fence, &v, c.holds(fenceKey, v.Fence), c.holds(viewKey, v))
	if err != nil {
		return 0, fmt.Errorf("take a fence for view %d: %w", v.Number, err)
	}
	return fence, nil
}

// nextFence takes the fence after largest, if the conditions hold that make it the next one, and
// otherwise the next one that is larger than largest. If of is not nil and another view counts by now,
// the error is ErrStaleView.
func (c *Client) nextFence(ctx context.Context, largest kintsugi.Fence, of *kintsugi.View, conditions ...clientv3.Cmp) (kintsugi.Fence, error) {
	next := largest + 1
	for range conflicts {
		r, err := c.etcd.Txn(ctx).If(conditions...).Then(c.put(fenceKey, next)).Else(c.getForemost()...).Commit()
		if err != nil {
			return 0, err // if it was taken anyway, a number is skipped, which does no harm
		}
		if r.Succeeded {
			return next, nil
		}
		now, err := c.foremostIn(r.Responses)
		if err != nil {
			return 0, err
		}
		next, conditions = 1+max(now.fence, largest), []clientv3.Cmp{c.unchanged(fenceKey, now.fenceRev)}
		if of == nil {
			continue
		}
		if now.number() != of.Number {
			return 0, fmt.Errorf("another view counts by now: %w", kintsugi.ErrStaleView)
		}
		conditions = append(conditions, c.unchanged(viewKey, now.viewRev))
	}
	return 0, errConflict
}

// foremost is what a new view or fence must come after: the view and the largest fence that was
// handed out, both read at one moment, and the revisions of their keys.
type foremost struct {
	view              *kintsugi.View // nil: there is none yet
	fence             kintsugi.Fence // 0: there is none yet
	viewRev, fenceRev int64
}

func (l foremost) number() kintsugi.ViewNumber {
	if l.view == nil {
		return 0
	}
	return l.view.Number
}

func (c *Client) foremost(ctx context.Context) (foremost, error) {
	r, err := c.etcd.Txn(ctx).Then(c.getForemost()...).Commit()
	if err != nil {
		return foremost{}, err
	}
	return c.foremostIn(r.Responses)
}

// getForemost returns the operations that read what foremostIn decodes.
func (c *Client) getForemost() []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(c.prefix + viewKey), clientv3.OpGet(c.prefix + fenceKey)}
}

func (c *Client) foremostIn(responses []*etcdserverpb.ResponseOp) (l foremost, err error) {
	if l.view, l.viewRev, err = c.viewIn(responses[0].GetResponseRange().Kvs); err != nil {
		return l, err
	}
	if kvs := responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		l.fenceRev = kvs[0].ModRevision
		l.fence, err = decode[kintsugi.Fence](fenceKey, kvs[0].Value)
	}
	return l, err
}
