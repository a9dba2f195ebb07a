package live

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// Rehead makes a view on the same line in which a shard has another chain. Servers that were not in
// the old chain join and catch up. The new head must have been in the old chain and have caught up.
func (l *Cluster) Rehead(shard int, chain ...kintsugi.ServerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view
	v.Number++
	l.fence++
	v.Fence, v.Reason, v.Continues, v.Servers, v.Chains = l.fence, "a shard moves", true, slices.Clone(v.Servers), slices.Clone(v.Chains)
	v.Places = slices.DeleteFunc(slices.Clone(v.Places), func(p kintsugi.Place) bool {
		return p.Shard == kintsugi.ShardID(shard) && !slices.Contains(chain, p.Server)
	})
	for _, id := range chain {
		if !slices.Contains(v.Chains[shard], id) {
			v.Servers[id] = l.servers[id].member
			v.Servers[id].Since = l.view.Servers[id].Since
			v.Places = append(v.Places, kintsugi.Place{Shard: kintsugi.ShardID(shard), Server: id, Since: v.Number})
		}
	}
	v.Chains[shard] = chain
	v.Conductor = v.Chains[0][0]
	l.put(v)
}
