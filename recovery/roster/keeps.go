package roster

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// A line that keeps the one before begins where that one ended. A shard that some server has stays
// as it is. A shard that nobody has is restored from what the running checkpoint has of it. With
// chains, a server that has a shard becomes its head and sends it to the others. These come in as
// on a line that goes on. Until they have said that they have everything, the shard has one
// replica.

// keep makes v, which is to begin a line, keep what servers have. It changes nothing if nobody has
// any shard, or if the run does not want partial restores: then all shards are restored.
func (s *State) keep(v *kintsugi.View) {
	if !s.cfg.Partial || s.view == nil || len(s.view.Servers) != s.cfg.Servers || len(s.view.Chains) != len(v.Chains) {
		return
	}
	var lost []kintsugi.ShardID
	next := slices.Clone(v.Chains)
	from := make([]kintsugi.Line, len(v.Chains))
	copy(from, s.view.From)
	for i, wanted := range v.Chains {
		head, ok := s.keeper(i, wanted)
		switch {
		case !ok:
			lost = append(lost, kintsugi.ShardID(i))
			from[i] = v.Line
		case s.replicas == 1: // another replica comes in later, and is sent the shard
			next[i] = []kintsugi.ServerID{head}
		default:
			rest := slices.DeleteFunc(slices.Clone(wanted), func(id kintsugi.ServerID) bool { return id == head })
			next[i] = append([]kintsugi.ServerID{head}, rest...)
		}
	}
	if len(lost) == len(v.Chains) {
		return
	}
	v.Keeps, v.Lost, v.Chains = cmp.Or(s.view.Keeps, s.view.Line), lost, next
	if slices.Max(from) > 0 {
		v.From = from
	}
	if s.replicas > 1 {
		for i := range v.Servers {
			v.Servers[i].Since = v.Number // a server that is not the head has nothing yet
		}
	}
}

// keeper returns the head of a shard on a line that keeps it: the first server of the chain before
// that has it, so that the head stays the head if it can. Servers that are wanted in the next chain
// are preferred. ok is false if nobody has the shard.
func (s *State) keeper(shard int, wanted []kintsugi.ServerID) (head kintsugi.ServerID, ok bool) {
	for _, id := range s.view.Chains[shard] {
		switch {
		case !s.isPresent(id) || !s.has(shard, id):
		case slices.Contains(wanted, id):
			return id, true
		case !ok:
			head, ok = id, true
		}
	}
	return head, ok
}

// has reports whether a server of a shard's chain has everything that was released of it, in the
// memory of its process or outside. A server that came into a chain says when it has everything. A
// head has everything from the first moment, or its process would have ended. Outside its process,
// a server has only the shard with its own number, and no shard that came to it later.
func (s *State) has(shard int, id kintsugi.ServerID) bool {
	j := s.present[id]
	heads := s.view.Chains[shard][0] == id
	if s.fate(j) == replaced {
		alone := max(1, s.view.Replicas) == 1 && heads && int(id) == shard
		return alone && s.view.First(kintsugi.ShardID(shard)) <= j.Holds && j.Holds <= s.view.Line
	}
	return heads || s.whole(shard, id)
}

// whatIsLost says in words which shards nobody has any more. It is called only when no server is
// waited for.
func (s *State) whatIsLost() string {
	var names []string
	for i, wanted := range s.places(s.isPresent) {
		if _, ok := s.keeper(i, wanted); !ok {
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
