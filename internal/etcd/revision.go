package etcd

import "sync/atomic"

// revision is the greatest revision of etcd that a client has heard of. An etcd whose revision is
// smaller has lost data. But one of its members alone may merely be behind the others: only the
// answer to a call that needs most of them counts, if that is smaller than what was known before
// the call.
type revision struct{ newest atomic.Int64 }

func (r *revision) known() int64 { return r.newest.Load() }

// saw notes a revision.
func (r *revision) saw(revision int64) {
	for before := r.known(); revision > before && !r.newest.CompareAndSwap(before, revision); before = r.known() {
	}
}

// forget makes a smaller revision the greatest one, for a client that stays when etcd has lost data.
func (r *revision) forget(to int64) { r.newest.Store(to) }
