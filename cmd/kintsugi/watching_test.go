package main

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/role"
	"github.com/kintsugi-ml/kintsugi/internal/etcd"
)

// watching knows the newest view of a run whose etcd a test has, and which servers have caught up.
type watching struct {
	mu    sync.Mutex
	view  kintsugi.View
	lines map[kintsugi.Line]bool // lines that the run has had
	whole map[uint32]kintsugi.ViewNumber
}

// watch watches a run until the test ends. entered is called for each view.
func watch(t testing.TB, client *etcd.Client, entered func(ctx context.Context, v kintsugi.View)) *watching {
	w := &watching{lines: make(map[kintsugi.Line]bool)}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	wg.Go(func() {
		for v := range client.WatchView(ctx) {
			w.mu.Lock()
			w.view, w.lines[v.Line] = v, true
			w.mu.Unlock()
			if entered != nil {
				wg.Go(func() { entered(ctx, v) })
			}
		}
	})
	wg.Go(func() {
		for members := range client.WatchMembers(ctx, etcd.Server) {
			whole := make(map[uint32]kintsugi.ViewNumber)
			for _, m := range members {
				var value role.ServerValue
				if json.Unmarshal(m.Value, &value) == nil {
					whole[m.Index] = value.Whole
				}
			}
			w.mu.Lock()
			w.whole = whole
			w.mu.Unlock()
		}
	})
	return w
}

// complete reports whether all chains have that many replicas, and all of them have caught up. The
// caller holds the lock.
func (w *watching) complete(replicas int) bool {
	for i, m := range w.view.Servers {
		if m.Since != 0 && w.whole[uint32(i)] != m.Since {
			return false
		}
	}
	return len(w.view.Chains) > 0 && !slices.ContainsFunc(w.view.Chains, func(c []kintsugi.ServerID) bool { return len(c) < replicas })
}

// holds reports whether a server is in any chain. The caller holds the lock.
func (w *watching) holds(id kintsugi.ServerID) bool {
	return slices.ContainsFunc(w.view.Chains, func(c []kintsugi.ServerID) bool { return slices.Contains(c, id) })
}

// until waits until the condition holds, which is evaluated under the lock.
func (w *watching) until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	eventually(t, what, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return holds()
	})
}
