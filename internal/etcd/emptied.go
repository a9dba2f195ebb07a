package etcd

import (
	"context"
	"time"

	"google.golang.org/grpc/connectivity"
)

// How often Emptied looks while the connection lasts: before the run's id was drawn, by which a run is
// told from one that begins in its place, and after that.
const (
	lookSoon  = 200 * time.Millisecond
	lookEvery = 5 * time.Second
)

// Emptied waits until etcd has come back without the data that it had of the run, and returns true;
// or until ctx ends, and returns false. Watches do not notice that: they go on at a revision that
// etcd reaches only after as many changes as were lost.
func (c *Client) Emptied(ctx context.Context) bool { return c.emptied(ctx, func() {}) }

// emptied is Emptied, and calls looked whenever it has looked.
func (c *Client) emptied(ctx context.Context, looked func()) bool {
	conn := c.etcd.ActiveConnection()
	var id string
	var revision int64
	for ctx.Err() == nil {
		state := conn.GetState()
		if state == connectivity.Ready {
			r, err := c.etcd.Get(ctx, c.prefix+idKey)
			if err != nil {
				pause(ctx)
				continue
			}
			now := ""
			for _, kv := range r.Kvs {
				now = string(kv.Value)
			}
			if r.Header.Revision < revision || id != "" && now != id {
				return true
			}
			id, revision = now, r.Header.Revision
			looked()
		}
		every := lookEvery
		if id == "" {
			every = lookSoon
		}
		wait, cancel := context.WithTimeout(ctx, every)
		conn.WaitForStateChange(wait, state)
		cancel()
	}
	return false
}
