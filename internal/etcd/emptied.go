package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/kintsugi-ml/kintsugi"
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
func (c *Client) Emptied(ctx context.Context) bool { return c.emptied(ctx, lookSoon, func() {}) }

// WentBack is Emptied for a process with a Registration, which notices by itself if etcd has come
// back with nothing: it looks less often.
func (c *Client) WentBack(ctx context.Context) bool { return c.emptied(ctx, lookEvery, func() {}) }

// emptied is Emptied. It looks at least once in soon before the run's id was drawn, and calls looked
// whenever it has looked.
func (c *Client) emptied(ctx context.Context, soon time.Duration, looked func()) bool {
	conn := c.etcd.ActiveConnection()
	id := ""
	for ctx.Err() == nil {
		state := conn.GetState()
		if state == connectivity.Ready {
			now, back, err := c.look(ctx, id)
			if err != nil {
				pause(ctx)
				continue
			}
			if back {
				return true
			}
			id = now
			looked()
		}
		every := lookEvery
		if id == "" {
			every = soon
		}
		wait, cancel := context.WithTimeout(ctx, every)
		conn.WaitForStateChange(wait, state)
		cancel()
	}
	return false
}

// look returns the id of the run, and whether etcd has less than it had: another id, a smaller
// revision, or no view as new as one that this client has heard of. The revision alone would not
// do, as it grows again when processes come back.
func (c *Client) look(ctx context.Context, id string) (now string, back bool, err error) {
	known, heard := c.revision.known(), c.heard.Load()
	r, err := c.etcd.Txn(ctx).Then(clientv3.OpGet(c.prefix+idKey), clientv3.OpGet(c.prefix+viewKey)).Commit()
	if err != nil {
		return "", false, err
	}
	for _, kv := range r.Responses[0].GetResponseRange().Kvs {
		now = string(kv.Value)
	}
	var v kintsugi.View // number 0: there is none
	for _, kv := range r.Responses[1].GetResponseRange().Kvs {
		if v, err = decode[kintsugi.View](viewKey, kv.Value); err != nil {
			return "", false, err
		}
	}
	back = r.Header.Revision < known || id != "" && now != id ||
		heard != nil && (v.Number < heard.Number || v.Number == heard.Number && (v.Fence != heard.Fence || v.Line != heard.Line))
	if back {
		c.revision.forget(r.Header.Revision)
		c.heard.Store(nil)
		return now, true, nil
	}
	c.revision.saw(r.Header.Revision)
	return now, false, nil
}

// hears notes a view that counts, or counted.
func (c *Client) hears(v *kintsugi.View) {
	for {
		before := c.heard.Load()
		if before != nil && before.Number >= v.Number || c.heard.CompareAndSwap(before, v) {
			return
		}
	}
}
