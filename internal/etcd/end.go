package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kintsugi-ml/kintsugi"
)

const (
	stopKey = "stop"
	doneKey = "done"
)

// Stop is a request to end the run soon.
type Stop struct {
	Checkpoint bool   `json:"checkpoint"` // save the newest step first
	Reason     string `json:"reason"`     // in words, for the summary
}

// PutStop requests the end of the run. A later request replaces an earlier one, so that an
// impatient user can request an end without a checkpoint.
func (c *Client) PutStop(ctx context.Context, s Stop) error {
	if _, err := c.etcd.Do(ctx, c.put(stopKey, s)); err != nil {
		return fmt.Errorf("ask the run to stop: %w", err)
	}
	return nil
}

// WatchStop returns a channel with the newest request to stop, immediately if there is one. It is
// closed when ctx ends.
func (c *Client) WatchStop(ctx context.Context) <-chan Stop {
	return watchValue(ctx, c, stopKey, func(Stop) bool { return true })
}

// PutDone declares that the run is over. The first declaration counts, and PutDone returns the one
// that counts. There are two exceptions. A run that has done its steps may be started again with
// more steps; a declaration with fewer steps then no longer counts. And if the last version could
// not be saved at first, but is saved later, the declaration is updated.
func (c *Client) PutDone(ctx context.Context, d kintsugi.Done) (kintsugi.Done, error) {
	key := c.prefix + doneKey
	revision := int64(0) // of a declaration that no longer counts; 0: there is none
	for {
		r, err := c.etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(c.put(doneKey, d)).
			Else(clientv3.OpGet(key)).
			Commit()
		if err != nil {
			return d, fmt.Errorf("say that the run is over: %w", err)
		}
		if r.Succeeded {
			return d, nil
		}
		kvs := r.Responses[0].GetResponseRange().Kvs
		if len(kvs) == 0 { // the run was reopened meanwhile
			revision = 0
			continue
		}
		first, err := decode[kintsugi.Done](doneKey, kvs[0].Value)
		if err != nil {
			return d, fmt.Errorf("say that the run is over: %w", err)
		}
		late := d.Saved && !first.Saved && d.Step == first.Step
		if late {
			d.Reason = first.Reason
		} else if first.Ends(d.Step) {
			return first, nil
		}
		revision = kvs[0].ModRevision
	}
}

// Done returns the declaration that the run is over, or nil.
func (c *Client) Done(ctx context.Context) (*kintsugi.Done, error) {
	b, _, found, err := c.get(ctx, doneKey)
	if err != nil || !found {
		return nil, err
	}
	d, err := decode[kintsugi.Done](doneKey, b)
	if err != nil {
		return nil, fmt.Errorf("read the run's last word: %w", err)
	}
	return &d, nil
}

// WatchDone returns a channel that delivers the declaration that the run is over, immediately if
// there is one. It is closed when ctx ends.
func (c *Client) WatchDone(ctx context.Context) <-chan kintsugi.Done {
	return watchValue(ctx, c, doneKey, func(kintsugi.Done) bool { return true })
}

// GoOn deletes the declaration that the run is over, if that counts no longer because the run now has
// more steps. Otherwise, whoever asks how the run stands would be told that it is over.
func (c *Client) GoOn(ctx context.Context, steps kintsugi.Step) error {
	b, revision, found, err := c.get(ctx, doneKey)
	if err == nil && found {
		var d kintsugi.Done
		if d, err = decode[kintsugi.Done](doneKey, b); err == nil && !d.Ends(steps) {
			_, err = c.etcd.Txn(ctx).If(c.unchanged(doneKey, revision)).Then(clientv3.OpDelete(c.prefix + doneKey)).Commit()
		}
	}
	if err != nil {
		return fmt.Errorf("go on with a run that was over: %w", err)
	}
	return nil
}

// Reopen deletes Stop and Done, so that a run that has ended can continue under the same name.
// Lives, fences and views are kept, since their numbers must grow over all sessions. Call it before
// the first process of a session registers.
func (c *Client) Reopen(ctx context.Context) error {
	_, err := c.etcd.Txn(ctx).Then(clientv3.OpDelete(c.prefix+stopKey), clientv3.OpDelete(c.prefix+doneKey)).Commit()
	if err != nil {
		return fmt.Errorf("reopen the run: %w", err)
	}
	return nil
}
