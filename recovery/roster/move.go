package roster

import (
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// A server may stay away, and with one replica all others wait for it. After Config.MoveAfter,
// other servers take over its shards. Shards move whole, to the servers that have least, and as few
// shards as possible move. When the server is back, it is sent its shard like any server that comes
// into a chain, also where shards have one replica: such a shard has two meanwhile. Once the
// returned server has everything, the server that stood in for it leaves the chain.

// patience returns the time at which the next missing server will have been away for too long;
// zero: there is none.
func (s *State) patience() (at time.Time) {
	absent := s.absent()
	for _, id := range absent {
		if _, ok := s.away[id]; !ok && !s.silent[id] {
			s.away[id] = s.now
		}
	}
	if !s.movable() || len(absent) == s.cfg.Servers {
		return at
	}
	for _, id := range absent {
		since, ok := s.away[id]
		if due := since.Add(s.cfg.MoveAfter); ok && due.After(s.now) && (at.IsZero() || due.Before(at)) {
			at = due
		}
	}
	return at
}

// misses notes that a place is empty. A server that is only taken for dead may be alive, and does
// not count as away before its lease has lapsed.
func (s *State) misses(now time.Time, id kintsugi.ServerID) {
	if s.isPresent(id) || s.silent[id] {
		s.away[id] = now
	}
	delete(s.present, id)
	delete(s.silent, id)
}

// comes notes which life fills a place. If all servers were away, nobody could have waited for the
// others, so the time for them begins now.
func (s *State) comes(now time.Time, e Joined) {
	if len(s.absent()) == s.cfg.Servers {
		for id := range s.away {
			s.away[id] = now
		}
	}
	s.present[e.Member.Server] = e
	delete(s.away, e.Member.Server)
	delete(s.silent, e.Member.Server)
}

// movable reports whether shards may move in the next view: the newest view must have the servers
// and replicas of the configuration.
func (s *State) movable() bool { return s.cfg.MoveAfter > 0 && s.placed() }

func (s *State) isPresent(id kintsugi.ServerID) bool {
	_, ok := s.present[id]
	return ok
}

// isAwaited reports whether a server is present, or has not been away for too long.
func (s *State) isAwaited(id kintsugi.ServerID) bool {
	since, away := s.away[id]
	return s.isPresent(id) || !away || !s.movable() || s.now.Before(since.Add(s.cfg.MoveAfter))
}

// awaited returns the servers without which there is no next view, ascending. With one replica, a
// server that heads no shard is not needed.
func (s *State) awaited() (list []kintsugi.ServerID) {
	absent := s.absent()
	for _, id := range absent {
		if s.isAwaited(id) && !(s.replicas == 1 && s.placed() && !s.headsAny(id)) {
			list = append(list, id)
		}
	}
	if len(absent) == s.cfg.Servers {
		return absent
	}
	return list
}

// headsAny reports whether a server heads a shard in the view.
func (s *State) headsAny(id kintsugi.ServerID) bool {
	return slices.ContainsFunc(s.view.Chains, func(chain []kintsugi.ServerID) bool { return chain[0] == id })
}

// displaced reports whether, with one replica per shard, some shard is not on its own server alone.
func (s *State) displaced() bool {
	for i, chain := range s.view.Chains {
		if len(chain) != 1 || int(chain[0]) != i {
			return true
		}
	}
	return false
}

// places returns the servers that are to hold each shard, chosen from those for which in returns
// true: first the shard's own servers, then those that hold it already, then those that have least.
// If the result is uneven, shards that are away from home move away from the servers that have
// most.
func (s *State) places(in func(kintsugi.ServerID) bool) [][]kintsugi.ServerID {
	home := chains(s.cfg.Servers, s.replicas)
	next := make([][]kintsugi.ServerID, len(home))
	load := make([]int, s.cfg.Servers)
	add := func(shard int, list []kintsugi.ServerID) {
		for _, id := range list {
			if len(next[shard]) < s.replicas && in(id) && !slices.Contains(next[shard], id) {
				next[shard] = append(next[shard], id)
				load[id]++
			}
		}
	}
	for i := range home {
		add(i, home[i])
	}
	if s.placed() {
		for i := range home {
			add(i, s.view.Chains[i])
		}
	}
	for i := range home {
		for id, ok := idlest(load, i, next[i], in); ok && len(next[i]) < s.replicas; id, ok = idlest(load, i, next[i], in) {
			add(i, []kintsugi.ServerID{id})
		}
	}
	for s.even(home, next, load, in) {
	}
	return next
}

// idlest returns the server with the least load for which in returns true and which is not in the
// shard's chain. Of equals, it is the first one after the shard around the ring.
func idlest(load []int, shard int, chain []kintsugi.ServerID, in func(kintsugi.ServerID) bool) (least kintsugi.ServerID, ok bool) {
	for r := range load {
		id := kintsugi.ServerID((shard + r) % len(load))
		if in(id) && !slices.Contains(chain, id) && (!ok || load[id] < load[least]) {
			least, ok = id, true
		}
	}
	return least, ok
}

// even moves one shard that is away from home to a server whose load is less by two or more, and
// reports whether there was one.
func (s *State) even(home, next [][]kintsugi.ServerID, load []int, in func(kintsugi.ServerID) bool) bool {
	for i, chain := range next {
		for k, id := range chain {
			to, ok := idlest(load, i, chain, in)
			if slices.Contains(home[i], id) || !ok || load[id] < load[to]+2 {
				continue
			}
			chain[k] = to
			load[id]--
			load[to]++
			return true
		}
	}
	return false
}

// hasLeft says in words that a server is not waited for.
func (s *State) hasLeft(id kintsugi.ServerID) string {
	return fmt.Sprintf("server/%d has been away for %v", id, s.cfg.MoveAfter)
}

// whereTo says in words where the shards of missing servers go; empty: none are missing.
func (s *State) whereTo(v *kintsugi.View) (text string) {
	if len(s.absent()) == 0 || !s.placed() {
		return ""
	}
	for i, chain := range v.Chains {
		if to := chain[0]; int(to) != i && to != s.view.Chains[i][0] {
			text += fmt.Sprintf("; shard %d moves to server/%d", i, to)
		}
	}
	return text
}

// handedOver says in words what changes between servers that stay: which server is sent a shard
// that another one held for it, and which one gives it up.
func (s *State) handedOver(come []kintsugi.ServerID, next [][]kintsugi.ServerID) (what []string) {
	for _, id := range s.absent() {
		gets := 0
		for i, home := range chains(s.cfg.Servers, s.replicas) {
			for _, to := range next[i] {
				if slices.Contains(home, id) && !slices.Contains(home, to) && !slices.Contains(s.view.Chains[i], to) && !slices.Contains(come, to) {
					gets++
				}
			}
		}
		if gets > 0 {
			what = append(what, s.hasLeft(id))
		}
	}
	for i, chain := range next {
		was := s.view.Chains[i]
		for _, id := range chain {
			if !slices.Contains(was, id) && !slices.Contains(come, id) {
				what = append(what, fmt.Sprintf("server/%d is sent shard %d", id, i))
			}
		}
		for _, id := range was {
			switch {
			case !s.lives(id) || slices.Contains(chain, id):
			case id == was[0]:
				what = append(what, fmt.Sprintf("server/%d hands shard %d over to server/%d", id, i, chain[0]))
			default:
				what = append(what, fmt.Sprintf("server/%d lets go of shard %d", id, i))
			}
		}
	}
	return what
}
