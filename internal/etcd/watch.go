package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// follow calls begin with the keys at key, or with all keys that start with key if prefix is set.
// Then it calls changed with each later change, in order, until ctx ends. After an outage it
// continues where it was; if the changes since then have been compacted, it calls begin again. It
// calls both functions on the calling goroutine.
func (c *Client) follow(ctx context.Context, key string, prefix bool, begin func([]*mvccpb.KeyValue), changed func([]*clientv3.Event)) {
	var opts []clientv3.OpOption
	if prefix {
		opts = append(opts, clientv3.WithPrefix())
	}
	for ctx.Err() == nil {
		r, err := c.etcd.Get(ctx, c.prefix+key, opts...)
		if err != nil {
			pause(ctx)
			continue
		}
		c.revision.saw(r.Header.Revision)
		begin(r.Kvs)
		c.watch(ctx, key, append(opts[:len(opts):len(opts)], clientv3.WithRev(r.Header.Revision+1)), changed)
	}
}

// watch calls changed until ctx ends or the watch cannot go on.
func (c *Client) watch(ctx context.Context, key string, opts []clientv3.OpOption, changed func([]*clientv3.Event)) {
	ctx, cancel := context.WithCancel(ctx) // frees the watch if it ends by itself
	defer cancel()
	for r := range c.etcd.Watch(ctx, c.prefix+key, opts...) {
		if r.Err() != nil {
			pause(ctx)
			return
		}
		c.revision.saw(r.Header.Revision)
		changed(r.Events)
	}
}

// latest is a channel that holds only the newest value: a slow receiver skips values and never
// blocks the sender. It has one sender, which closes it.
type latest[T any] chan T

func newLatest[T any]() latest[T] { return make(latest[T], 1) }

func (l latest[T]) send(v T) {
	select {
	case <-l: // the receiver has not taken the last value
	default:
	}
	l <- v
}

// watchValue returns a channel with the value of key: immediately if it has one, and whenever it
// changes. The channel holds only the newest value. Values that keep rejects, or that cannot be
// parsed, are left out. The channel is closed when ctx ends.
func watchValue[T any](ctx context.Context, c *Client, key string, keep func(T) bool) <-chan T {
	out := newLatest[T]()
	offer := func(b []byte) {
		if v, err := decode[T](key, b); err == nil && keep(v) {
			out.send(v)
		}
	}
	go func() {
		defer close(out)
		c.follow(ctx, key, false, func(kvs []*mvccpb.KeyValue) {
			for _, kv := range kvs {
				offer(kv.Value)
			}
		}, func(events []*clientv3.Event) {
			for _, e := range events {
				if e.Type == clientv3.EventTypePut {
					offer(e.Kv.Value)
				}
			}
		})
	}()
	return out
}
