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

// Stop asks the run to end soon.
type Stop struct {
	Checkpoint bool   `json:"checkpoint"` // save the newest step first
	Reason     string `json:"reason"`     // in words, for the summary
}

// PutStop asks the run to end. A later request replaces an earlier one, so that somebody who has lost
// patience can ask for an end without a checkpoint.
func (c *Client) PutStop(ctx context.Context, s Stop) error {
	if _, err := c.etcd.Do(ctx, c.put(stopKey, s)); err != nil {
		return fmt.Errorf("ask the run to stop: %w", err)
	}
	return nil
}

// WatchStop returns a channel with the newest request to stop, at once if there is one. It is closed when ctx ends.
func (c *Client) WatchStop(ctx context.Context) <-chan Stop {
	return watchValue(ctx, c, stopKey, func(Stop) bool { return true })
}

// PutDone says that the run is over, once and for all: it returns the word that counts, which is
// that of whoever came first. But a run that has done its steps may be started again with more of
// them: the word of fewer steps is one of then. And where the last version could not be saved at
// first, and is saved later, the word says so from then on.
func (c *Client) PutDone(ctx context.Context, d kintsugi.Done) (kintsugi.Done, error) {
	key := c.prefix + doneKey
	revision := int64(0) // of the word that counts no more; 0: there is none
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
		if len(kvs) == 0 { // reopened meanwhile
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

// Done returns the run's last word; nil while it is not over.
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

// WatchDone returns a channel that delivers the run's last word, at once if it is over. It is closed when ctx ends.
func (c *Client) WatchDone(ctx context.Context) <-chan kintsugi.Done {
	return watchValue(ctx, c, doneKey, func(kintsugi.Done) bool { return true })
}

// Reopen forgets Stop and Done, so that a run that ended can go on under its name. Lives, fences and views
// stay: their numbers must grow over all sessions. Call it before the first process of a session registers.
func (c *Client) Reopen(ctx context.Context) error {
	_, err := c.etcd.Txn(ctx).Then(clientv3.OpDelete(c.prefix+stopKey), clientv3.OpDelete(c.prefix+doneKey)).Commit()
	if err != nil {
		return fmt.Errorf("reopen the run: %w", err)
	}
	return nil
}
