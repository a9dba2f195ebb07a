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

// Emptied waits until etcd has come back without data that it had of the run, all of them or those
// since a backup, and returns true; or until ctx ends, and returns false. Watches do not notice
// that: they go on at a revision that etcd reaches only after as many changes as were lost.
func (c *Client) Emptied(ctx context.Context) bool { return c.emptied(ctx, func() {}) }

// emptied is Emptied, and calls looked whenever it has looked.
func (c *Client) emptied(ctx context.Context, looked func()) bool {
	conn := c.etcd.ActiveConnection()
	var id string
	for ctx.Err() == nil {
		state := conn.GetState()
		if state == connectivity.Ready {
			known := c.revision.known()
			r, err := c.etcd.Get(ctx, c.prefix+idKey)
			if err != nil {
				pause(ctx)
				continue
			}
			now := ""
			for _, kv := range r.Kvs {
				now = string(kv.Value)
			}
			if r.Header.Revision < known || id != "" && now != id {
				c.revision.forget(r.Header.Revision)
				return true
			}
			c.revision.saw(r.Header.Revision)
			id = now
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
