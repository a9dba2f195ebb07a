package etcd

import (
	"context"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
)

const waitsKey = "waits"

// PutWaits says in words what the leading coordinator waits for before it can put a view; "" means
// nothing. It replaces the earlier text. If another coordinator leads by now, the error is
// ErrFenced.
func (l *Leadership) PutWaits(ctx context.Context, what string) error {
	r, err := l.client.etcd.Txn(ctx).If(l.mine).Then(l.client.put(waitsKey, what)).Commit()
	if err == nil && !r.Succeeded {
		err = fmt.Errorf("another coordinator leads: %w", kintsugi.ErrFenced)
	}
	if err != nil {
		return fmt.Errorf("say what the coordinator waits for: %w", err)
	}
	return nil
}

// Waits returns the newest text of PutWaits; "" means nothing.
func (c *Client) Waits(ctx context.Context) (string, error) {
	b, _, found, err := c.get(ctx, waitsKey)
	if err != nil || !found {
		return "", err
	}
	return decode[string](waitsKey, b)
}

// WatchWaits returns a channel with the newest text of PutWaits, immediately if there is one. It is
// closed when ctx ends.
func (c *Client) WatchWaits(ctx context.Context) <-chan string {
	return watchValue(ctx, c, waitsKey, func(string) bool { return true })
}
