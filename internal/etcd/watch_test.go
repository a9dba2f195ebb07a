package etcd

import (
	"context"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kintsugi-ml/kintsugi"
)

func TestAWatcherSurvivesRestartsAndCompaction(t *testing.T) {
	b := startEtcd(t)
	c := b.dial(t)
	ctx := within(t)
	views := c.WatchView(ctx)
	if _, err := c.PutView(ctx, 0, view(1, 1)); err != nil {
		t.Fatal(err)
	}
	await(t, views, "view 1", func(v kintsugi.View) bool { return v.Number == 1 })
	b.Close()
	b.start(t)
	// Another client writes and compacts before the watcher is back, if it is fast enough.
	other := b.dial(t)
	for n := kintsugi.ViewNumber(1); n < 5; n++ {
		rev, err := other.PutView(ctx, n, view(n+1, kintsugi.Fence(n+1)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.etcd.Compact(ctx, int64(rev)); err != nil {
			t.Fatal(err)
		}
	}
	await(t, views, "view 5", func(v kintsugi.View) bool { return v.Number == 5 })
}

func TestAWatchFromACompactedRevisionEndsSoThatItCanBeginAgain(t *testing.T) {
	c := startEtcd(t).dial(t)
	ctx := within(t)
	var rev Revision
	for n := range kintsugi.ViewNumber(3) {
		var err error
		if rev, err = c.PutView(ctx, n, view(n+1, kintsugi.Fence(n+1))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.etcd.Compact(ctx, int64(rev)); err != nil {
		t.Fatal(err)
	}
	c.watch(ctx, viewKey, []clientv3.OpOption{clientv3.WithRev(int64(rev) - 1)}, func([]*clientv3.Event) {
		t.Error("an event came from a compacted revision")
	})
	if ctx.Err() != nil {
		t.Error("the watch did not end by itself")
	}
}

// Changes that were compacted before a watcher could follow them are not lost: it begins again with
// the keys that there are, without those that were removed meanwhile, and follows from there.
func TestAFollowerThatMissedChangesBeginsAgain(t *testing.T) {
	c := startEtcd(t).dial(t)
	ctx, cancel := context.WithCancel(within(t))
	put := func(key string) int64 {
		r, err := c.etcd.Put(ctx, c.prefix+key, "")
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.Revision
	}
	put("x/1")
	put("x/2")
	var seen [][]string
	c.follow(ctx, "x/", true, func(kvs []*mvccpb.KeyValue) {
		var keys []string
		for _, kv := range kvs {
			keys = append(keys, strings.TrimPrefix(string(kv.Key), c.prefix))
		}
		if seen = append(seen, keys); len(seen) > 1 {
			put("x/4")
			return
		}
		// The watch begins behind what was read, at a revision that is gone by then.
		if _, err := c.etcd.Delete(ctx, c.prefix+"x/1"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.etcd.Compact(ctx, put("x/3")); err != nil {
			t.Fatal(err)
		}
	}, func(events []*clientv3.Event) {
		for _, e := range events {
			seen = append(seen, []string{"then " + strings.TrimPrefix(string(e.Kv.Key), c.prefix)})
		}
		cancel()
	})
	if want := [][]string{{"x/1", "x/2"}, {"x/2", "x/3"}, {"then x/4"}}; !slices.EqualFunc(seen, want, slices.Equal) {
		t.Errorf("saw %v, want %v", seen, want)
	}
}
