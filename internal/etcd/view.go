package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

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
	b, rev, found, err := c.get(ctx, viewKey)
	if err != nil {
		return nil, 0, fmt.Errorf("read view: %w", err)
	}
	if !found {
		return nil, 0, nil
	}
	v, err := decode[kintsugi.View](viewKey, b)
	if err != nil {
		return nil, 0, fmt.Errorf("read view: %w", err)
	}
	c.hears(&v)
	return &v, Revision(rev), nil
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
		var number kintsugi.ViewNumber
		current, viewRev, err := c.View(ctx)
		if err != nil {
			return 0, fmt.Errorf("put view %d: %w", v.Number, err)
		}
		if current != nil {
			number = current.Number
		}
		if number != previous {
			return 0, fmt.Errorf("put view %d after view %d: view %d counts by now: %w", v.Number, previous, number, kintsugi.ErrStaleView)
		}
		fence, fenceRev, err := c.readFence(ctx)
		if err != nil {
			return 0, fmt.Errorf("put view %d: %w", v.Number, err)
		}
		if fence > v.Fence {
			return 0, fmt.Errorf("put view %d under fence %d: fence %d has been taken: %w", v.Number, v.Fence, fence, kintsugi.ErrFenced)
		}
		r, err := c.etcd.Txn(ctx).
			If(append(conditions, c.unchanged(viewKey, int64(viewRev)), c.unchanged(fenceKey, fenceRev))...).
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
	return c.nextFence(ctx, atLeast)
}

// ConductorFence hands out a fence to the conductor of v: larger than the fence of v and than every
// fence before. If another view counts by now, the error is ErrStaleView. So the conductor of a
// later view always has a larger fence, however late the conductor of an earlier view asks for one.
// Otherwise a shard that had promised the earlier conductor's fence would refuse the later one for
// ever; and of two decisions about a step, the later must count.
func (c *Client) ConductorFence(ctx context.Context, v kintsugi.View) (kintsugi.Fence, error) {
	current, rev, err := c.View(ctx)
	if err != nil {
		return 0, fmt.Errorf("take a fence for view %d: %w", v.Number, err)
	}
	if current == nil || current.Number != v.Number {
		return 0, fmt.Errorf("take a fence for view %d: another view counts by now: %w", v.Number, kintsugi.ErrStaleView)
	}
	fence, err := c.nextFence(ctx, v.Fence, c.unchanged(viewKey, int64(rev)))
	if errors.Is(err, kintsugi.ErrStaleView) {
		return 0, fmt.Errorf("take a fence for view %d: another view counts by now: %w", v.Number, kintsugi.ErrStaleView)
	}
	return fence, err
}

// nextFence is NextFence with further conditions on the view. If one of these fails, the error is
// ErrStaleView.
func (c *Client) nextFence(ctx context.Context, atLeast kintsugi.Fence, conditions ...clientv3.Cmp) (kintsugi.Fence, error) {
	for range conflicts {
		largest, rev, err := c.readFence(ctx)
		if err != nil {
			return 0, fmt.Errorf("take a fence: %w", err)
		}
		next := 1 + max(largest, atLeast)
		r, err := c.etcd.Txn(ctx).If(append(conditions, c.unchanged(fenceKey, rev))...).Then(c.put(fenceKey, next)).Commit()
		if err != nil {
			return 0, fmt.Errorf("take a fence: %w", err) // if it was taken anyway, a number is skipped, which does no harm
		}
		if r.Succeeded {
			return next, nil
		}
		if len(conditions) > 0 {
			held, err := c.etcd.Txn(ctx).If(conditions...).Commit()
			if err != nil {
				return 0, fmt.Errorf("take a fence: %w", err)
			}
			if !held.Succeeded {
				return 0, fmt.Errorf("take a fence: %w", kintsugi.ErrStaleView)
			}
		}
	}
	return 0, fmt.Errorf("take a fence: %w", errConflict)
}

// readFence returns the largest fence handed out, or 0, and the revision of its key.
func (c *Client) readFence(ctx context.Context) (kintsugi.Fence, int64, error) {
	b, rev, found, err := c.get(ctx, fenceKey)
	if err != nil || !found {
		return 0, 0, err
	}
	f, err := decode[kintsugi.Fence](fenceKey, b)
	return f, rev, err
}
