package etcd

import (
	"context"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
)

const standingKey = "standing"

// Standing says that the run stands at a durable step of a view: the processes that were waited for
// may leave.
type Standing struct {
	View kintsugi.ViewNumber `json:"view"`
	Step kintsugi.Step       `json:"step"`
}

// PutStanding declares that the run stands. It replaces an earlier declaration.
func (c *Client) PutStanding(ctx context.Context, s Standing) error {
	if _, err := c.etcd.Do(ctx, c.put(standingKey, s)); err != nil {
		return fmt.Errorf("say that the run stands at step %d: %w", s.Step, err)
	}
	return nil
}

// WatchStanding returns a channel with the newest Standing, immediately if there is one. It is
// closed when ctx ends.
func (c *Client) WatchStanding(ctx context.Context) <-chan Standing {
	return watchValue(ctx, c, standingKey, func(Standing) bool { return true })
}
