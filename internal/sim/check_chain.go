package sim

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// checkGoesOn checks a view on the line of the view before: each new head was in the chain of its
// shard.
func (c *Cluster) checkGoesOn(before, v kintsugi.View) {
	for i, chain := range v.Chains {
		head := chain[0]
		if c.cfg.Copies > 0 && head != before.Chains[i][0] {
			c.fail(nothingLost, "view %d makes server/%d, which has copies, the head of shard %d on the same line, chain %v before", v.Number, head, i, before.Chains[i])
		}
		if c.cfg.NextAnswers && slices.Index(before.Chains[i], head) > 1 {
			c.fail(nothingLost, "view %d makes server/%d, which may lack steps, the head of shard %d on the same line, chain %v before", v.Number, head, i, before.Chains[i])
		}
		same := before.Servers[head].Incarnation == v.Servers[head].Incarnation
		if found := c.cfg.Outside && before.Replicas <= 1 && int(head) == i; !slices.Contains(before.Chains[i], head) || !same && !found {
			c.fail(viewsGrow, "view %d makes server/%d the head of shard %d, chain %v before", v.Number, head, i, before.Chains[i])
		}
	}
}

// handedOver reports whether a view of shards with one replica has other chains than the view
// before.
func handedOver(before, v kintsugi.View) bool {
	return v.Line == before.Line && !slices.EqualFunc(before.Chains, v.Chains, slices.Equal)
}

// checkLineIsOver checks that a line ends only if a shard has lost all replicas that were whole and
// had reported it. With copies, a line ends with any head, and only the coordinator knows which
// servers it has taken for dead.
func (c *Cluster) checkLineIsOver(v kintsugi.View) {
	if c.cfg.Copies > 0 {
		return
	}
	for i, chain := range v.Chains {
		if !slices.ContainsFunc(chain, func(id kintsugi.ServerID) bool {
			return c.hasWhole(c.lives[v.Servers[id].Incarnation], v, kintsugi.ShardID(i))
		}) {
			return
		}
	}
	c.fail(nothingLost, "line %d ends, and all shards of view %d have a replica that lives and is whole: chains %v", v.Line, v.Number, v.Chains)
}

// hasWhole reports whether a life of a server has all that was released of a shard on the line of
// v, as far as the coordinator can know.
func (c *Cluster) hasWhole(s *serverLife, v kintsugi.View, id kintsugi.ShardID) bool {
	i := s.member.Server
	since, o := v.Since(id, i), c.coordinator
	if s.dead || c.servers[i] != s || o.present == nil || o.present[i].Member != s.member || o.present[i].Whole < since {
		return false
	}
	at := slices.Index(v.Chains[id], i)
	if c.cfg.NextAnswers && (s.doubted || at > 1 || at == 1 && o.present[i].Whole < v.Newest(i)) {
		return false
	}
	for _, t := range []*tenure{s.tenure, s.left} {
		if t != nil && t.view.Line == v.Line && t.replicas[id] != nil {
			return t.replicas[id].core.Whole() && t.view.Number >= since
		}
	}
	return false
}

// checkChain checks that a replica is changed only by the replica before it in its view.
func (c *Cluster) checkChain(r *replica, m handed, ready shard.Ready) {
	if m.from.t.view.Number == r.t.view.Number && m.from.at+1 == r.at {
		return
	}
	if len(ready.Free) > 0 || ready.Publish != nil || ready.Apply != nil || ready.Save != nil || len(ready.Replies) > 0 || len(ready.Down) > 0 {
		c.fail(inItsView, "%T of %s in view %d changes shard %d on %s in view %d", m.message, m.from.t.server.name, m.from.t.view.Number,
			r.id, r.t.server.name, r.t.view.Number)
	}
}
