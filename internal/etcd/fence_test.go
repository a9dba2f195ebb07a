package etcd

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kintsugi-ml/kintsugi"
)

// counted counts the requests to etcd.
type counted struct {
	clientv3.KV
	requests atomic.Int32
}

func (c *counted) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	c.requests.Add(1)
	return c.KV.Get(ctx, key, opts...)
}

func (c *counted) Txn(ctx context.Context) clientv3.Txn {
	c.requests.Add(1) // of which each has one Commit here
	return c.KV.Txn(ctx)
}

// Steps stand still until the conductor of a new view has its fence, and etcd may be far away.
func TestAFenceIsOneRequestUnlessOthersTookSome(t *testing.T) {
	b := startEtcd(t)
	coordinator, server := b.dial(t), b.dial(t)
	requests := &counted{KV: server.etcd.KV}
	server.etcd.KV = requests
	ctx := within(t)
	put := func(previous kintsugi.ViewNumber, v kintsugi.View) kintsugi.View {
		t.Helper()
		if _, err := coordinator.PutView(ctx, previous, v); err != nil {
			t.Fatal(err)
		}
		return <-server.WatchView(ctx)
	}
	take := func(v kintsugi.View, fence kintsugi.Fence, most int32) {
		t.Helper()
		before := requests.requests.Load()
		got, err := server.ConductorFence(ctx, v)
		if n := requests.requests.Load() - before; err != nil || got != fence || n > most {
			t.Errorf("view %d: fence %d with %d requests, %v; want %d with at most %d", v.Number, got, n, err, fence, most)
		}
	}
	first := put(0, kintsugi.View{
		Number: 1, Line: 1, Fence: 5, Replicas: 2, Servers: []kintsugi.Member{{Address: "a:1", Incarnation: 7}, {Address: "b:1", Incarnation: 8}},
		Chains: [][]kintsugi.ServerID{{0, 1}, {1, 0}}, Terms: kintsugi.Terms{Protocol: 1, Model: 1<<64 - 1}, Run: "r", Reason: `"<a> & b` + "\u2028",
	})
	take(first, 6, 1)
	take(first, 7, 2) // the conductor of another life has taken 6

	second := first
	second.Number, second.Fence = 2, 7
	second = put(1, second)
	if f, err := coordinator.NextFence(ctx, 7); err != nil || f != 8 {
		t.Fatal(f, err)
	}
	take(second, 9, 2)

	if f, err := server.NextFence(ctx, 9); err != nil || f != 10 {
		t.Errorf("fence %d, %v; want 10", f, err)
	}
	if f, err := server.NextFence(ctx, 3); err != nil || f != 11 {
		t.Errorf("fence %d, %v; want 11", f, err)
	}

	third, fourth := second, second
	third.Number, third.Fence = 3, 11
	fourth.Number, fourth.Fence = 4, 11 // the conductor of the third view has not asked yet
	third, fourth = put(2, third), put(3, fourth)
	if f, err := server.ConductorFence(ctx, third); !errors.Is(err, kintsugi.ErrStaleView) {
		t.Errorf("fence %d, %v for a view that is over", f, err)
	}
	take(fourth, 12, 1)
}
