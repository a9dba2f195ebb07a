package live

import (
	"cmp"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// GoOn makes a view on the same line, as the coordinator does when servers of chains have come or
// gone. Dead servers are left out, and servers that are not in their chains are appended to them.
// With copies, the view begins a line if a head is gone.
func (l *Cluster) GoOn(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view
	v.Number++
	l.fence++
	v.Fence, v.Reason, v.Continues, v.Servers, v.Chains = l.fence, reason, true, slices.Clone(v.Servers), nil
	alive := func(id kintsugi.ServerID) bool {
		select {
		case <-l.servers[id].ended:
			return false
		default:
			return true
		}
	}
	for i, chain := range l.view.Chains {
		var next []kintsugi.ServerID
		for _, id := range chain {
			if alive(id) && l.servers[id].member.Incarnation == l.view.Servers[id].Incarnation {
				next = append(next, id)
			}
		}
		for _, id := range l.home(i) {
			if alive(id) && !slices.Contains(next, id) {
				next = append(next, id)
				v.Servers[id] = l.servers[id].member
				v.Servers[id].Since = v.Number
			}
		}
		v.Chains = append(v.Chains, next)
	}
	v.Conductor = v.Chains[0][0]
	l.fallBack(&v)
	l.put(v)
}

// fallBack makes a view begin a line if replicas have copies and some shard has another head.
func (l *Cluster) fallBack(v *kintsugi.View) {
	var lost []kintsugi.ShardID
	for i, chain := range l.view.Chains {
		if l.cfg.CopyEvery > 0 && v.Chains[i][0] != chain[0] {
			lost = append(lost, kintsugi.ShardID(i))
		}
	}
	if len(lost) == 0 {
		return
	}
	v.Continues, v.Keeps, v.Lost = false, cmp.Or(v.Keeps, v.Line), lost
	v.Line++
	for i := range v.Servers {
		v.Servers[i].Since = v.Number
	}
}

// CaughtUp waits until server i has caught up with the chains into which the current view took it.
func (l *Cluster) CaughtUp(i int) {
	l.mu.Lock()
	since, whole := l.view.Newest(kintsugi.ServerID(i)), l.servers[i].whole
	l.mu.Unlock()
	for {
		select {
		case got := <-whole:
			if got >= since {
				return
			}
		case <-l.ctx.Done():
			return
		}
	}
}

// home returns the chain of a shard at the beginning of a line.
func (l *Cluster) home(shard int) (chain []kintsugi.ServerID) {
	for r := range max(1, l.cfg.Replicas) {
		chain = append(chain, kintsugi.ServerID((shard+r)%len(l.servers)))
	}
	return chain
}

// Rechain makes a view on a line that keeps everything, in which each shard has the given number of
// replicas, and waits until all of them have caught up.
func (l *Cluster) Rechain(replicas int) {
	l.mu.Lock()
	l.cfg.Replicas = replicas
	l.mu.Unlock()
	l.newView("another number of replicas", 1, false)
	for i := range l.servers {
		if replicas > 1 {
			l.CaughtUp(i)
		}
	}
}
