package roster

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// A line that keeps the one before begins where that one ended. Each shard stays as it is where somebody has it still, and is put
// together from what was saved of it where nobody has. With chains whoever has a shard is its head, and sends it to the others:
// they come in as they would on a line that goes on, and until they have said that they have everything a shard has one replica.

// keep makes v, which is to begin a line, keep what servers have. It changes nothing where nobody has any shard, or where partial
// restores are not wanted: then all shards are restored.
func (s *State) keep(v *kintsugi.View) {
	if !s.cfg.Partial || s.view == nil || len(s.view.Servers) != s.cfg.Servers || len(s.view.Chains) != len(v.Chains) {
		return
	}
	var lost []kintsugi.ShardID
	next := slices.Clone(v.Chains)
	for i, home := range v.Chains {
		head := s.keeper(i, home)
		if head < 0 {
			lost = append(lost, kintsugi.ShardID(i))
			continue
		}
		next[i] = append([]kintsugi.ServerID{home[head]}, slices.Delete(slices.Clone(home), head, head+1)...)
	}
	if len(lost) == len(v.Chains) {
		return
	}
	v.Keeps, v.Lost, v.Chains = cmp.Or(s.view.Keeps, s.view.Line), lost, next
	if s.replicas > 1 {
		for i := range v.Servers {
			v.Servers[i].Since = v.Number // whoever is no head has nothing yet
		}
	}
}

// keeper returns the place in a shard's next chain of the one that has it: the first of those that were in its chain before,
// so that who was the head is the head. −1: nobody has it.
func (s *State) keeper(shard int, home []kintsugi.ServerID) int {
	for _, id := range s.view.Chains[shard] {
		if at := slices.Index(home, id); at >= 0 && s.has(shard, id) {
			return at
		}
	}
	return -1
}

// has reports whether a server of a shard's chain has everything of it that was released, in the memory of its process or outside
// of it. Whoever came into a chain says when it has. Whoever heads one has it from the first moment, or it would not live.
func (s *State) has(shard int, id kintsugi.ServerID) bool {
	j := s.present[id]
	first := cmp.Or(s.view.Keeps, s.view.Line)
	if s.fate(j) == replaced {
		return max(1, s.view.Replicas) == 1 && first <= j.Holds && j.Holds <= s.view.Line
	}
	return s.view.Chains[shard][0] == id || s.whole(id)
}

// whatIsLost says in words which shards nobody has any more. All servers are present.
func (s *State) whatIsLost() string {
	var names []string
	for i, home := range chains(s.cfg.Servers, s.replicas) {
		if s.keeper(i, home) < 0 {
			names = append(names, fmt.Sprint(i))
		}
	}
	switch len(names) {
	case 0:
		return "; nothing is lost"
	case 1:
		return "; shard " + names[0] + " is lost"
	}
	return "; shards " + enumerate(names) + " are lost"
}
