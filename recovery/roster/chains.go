package roster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// A shard with several replicas outlives all of them but one: the next view goes on with the line, at the step where it
// stands, and nothing is restored. Whoever is gone leaves its chains at once, and whoever comes, comes in at their ends:
// a tail takes over what the one before it has, while steps go on without waiting for it. Where replicas have copies that may be
// some steps old, a shard that loses its head goes back to one of them: the line is over, and the next one keeps what the others have.

// goOn decides where the line that counts goes on, or the next one begins with copies of the shards whose heads are gone. It reports
// false where there is none, or where a shard has nobody left.
func (s *State) goOn(found *Found) (Decision, bool) {
	if s.replicas == 1 || s.view == nil || len(s.view.Servers) != s.cfg.Servers || !s.placed(s.view.Chains) {
		return Decision{}, false
	}
	all := s.present
	defer func() { s.present = all }()
	s.present = s.staying()
	gone, come := s.moved()
	next, lost, ok := s.rechained(come)
	switch {
	case !ok:
		return Decision{}, false
	case len(gone)+len(come) == 0:
		return Decision{Reason: s.stands()}, true
	}
	why := s.whyOn(gone, come, all, next, lost)
	if found == nil {
		return Decision{Ask: true, FenceOnly: true, Reason: why}, true
	}
	v := *s.view
	v.Number++
	v.Fence = max(found.Fence, v.Fence+1)
	v.Servers = slices.Clone(v.Servers)
	for _, id := range come {
		v.Servers[id] = s.present[id].Member
		v.Servers[id].Since = v.Number
	}
	v.Continues, v.Chains, v.Conductor, v.Reason = true, next, next[0][0], why
	if len(lost) > 0 {
		s.fallBack(&v, lost)
	}
	return Decision{View: &v, Reason: why}, true
}

// fallBack makes v begin a line with copies of the lost shards and with what the heads of the others have. Nobody behind them has anything of
// that line yet.
func (s *State) fallBack(v *kintsugi.View, lost []kintsugi.ShardID) {
	v.Continues, v.Keeps, v.Lost = false, cmp.Or(v.Keeps, v.Line), lost
	v.Line++
	for i := range v.Servers {
		v.Servers[i].Since = v.Number
	}
}

// staying returns who is present, without those that are about to go and that can be spared: whoever is in no chain, and whoever leaves no
// shard without a replica that has everything.
func (s *State) staying() map[kintsugi.ServerID]Joined {
	all := s.present
	defer func() { s.present = all }()
	s.present = maps.Clone(all)
	for id := range kintsugi.ServerID(s.cfg.Servers) {
		j, ok := s.present[id]
		if !ok || !j.Leaving {
			continue
		}
		delete(s.present, id)
		_, come := s.moved()
		if _, _, spared := s.rechained(come); !spared {
			s.present[id] = j
		}
	}
	return s.present
}

// moved returns the servers whose life in the view's chains is gone, and those that are present and in no chain of the
// view, as this life; both ascending.
func (s *State) moved() (gone, come []kintsugi.ServerID) {
	for id := range kintsugi.ServerID(s.cfg.Servers) {
		j, present := s.present[id]
		lives := present && s.view.Servers[id].Incarnation == j.Member.Incarnation
		in := inAny(s.view.Chains, id)
		if in && !lives {
			gone = append(gone, id)
		}
		if present && (!in || !lives) {
			come = append(come, id)
		}
	}
	return gone, come
}

// rechained returns the chains of the view without whoever is gone and with whoever has come, at their ends. Where replicas have copies, lost are
// the shards without their heads: who heads them next has a copy. It reports false if a shard would be left to those that have
// nothing of it, or not everything: the line is over.
func (s *State) rechained(come []kintsugi.ServerID) (next [][]kintsugi.ServerID, lost []kintsugi.ShardID, ok bool) {
	home := chains(s.cfg.Servers, s.replicas)
	next = make([][]kintsugi.ServerID, len(home))
	for i, chain := range s.view.Chains {
		head := -1 // place of the first that has the shard
		for _, id := range chain {
			if _, present := s.present[id]; present && !slices.Contains(come, id) {
				if head < 0 && s.has(i, id) {
					head = len(next[i])
				}
				next[i] = append(next[i], id)
			}
		}
		if head < 0 {
			return nil, nil, false
		}
		if id := next[i][head]; s.cfg.Copies && id != chain[0] {
			lost = append(lost, kintsugi.ShardID(i))
			next[i] = slices.Insert(slices.Delete(next[i], head, head+1), 0, id)
		}
		for _, id := range home[i] {
			if slices.Contains(come, id) {
				next[i] = append(next[i], id)
			}
		}
	}
	return next, lost, true
}

// whole reports whether a server of the view has everything that was released of its shards.
func (s *State) whole(id kintsugi.ServerID) bool {
	since := s.view.Servers[id].Since
	return since == 0 || s.present[id].Whole == since
}

// placed reports whether chains are those of the configuration, in some order and as far as servers live: a server that
// is in one of its chains is in all of them.
func (s *State) placed(all [][]kintsugi.ServerID) bool {
	home := chains(s.cfg.Servers, s.replicas)
	if len(all) != len(home) {
		return false
	}
	for i, chain := range all {
		for _, id := range chain {
			if !slices.Contains(home[i], id) {
				return false
			}
		}
		for _, id := range home[i] {
			if inAny(all, id) && !slices.Contains(chain, id) {
				return false
			}
		}
	}
	return true
}

func inAny(all [][]kintsugi.ServerID, id kintsugi.ServerID) bool {
	return slices.ContainsFunc(all, func(chain []kintsugi.ServerID) bool { return slices.Contains(chain, id) })
}

// stands says that nothing is to be done, and who is missing.
func (s *State) stands() string {
	var away []string
	for _, id := range s.absent() {
		away = append(away, fmt.Sprintf("server/%d", id))
	}
	text := fmt.Sprintf("view %d stands: everybody it names is present", s.view.Number)
	if len(away) > 0 {
		text += "; it goes on without " + enumerate(away)
	}
	return text + s.unwanted()
}

// whyOn says in words what a view changes that goes on with the line, or with copies of lost shards.
func (s *State) whyOn(gone, come []kintsugi.ServerID, all map[kintsugi.ServerID]Joined, next [][]kintsugi.ServerID, lost []kintsugi.ShardID) string {
	var what []string
	for _, id := range gone {
		how := "is gone"
		if all[id].Leaving {
			how = "is about to go"
		}
		what = append(what, fmt.Sprintf("server/%d %s", id, how))
	}
	for _, id := range come {
		what = append(what, fmt.Sprintf("server/%d comes in as incarnation %d", id, s.present[id].Member.Incarnation))
	}
	if len(lost) == 0 {
		return enumerate(what) + ": line " + fmt.Sprint(s.view.Line) + " goes on"
	}
	var back []string
	for _, shard := range lost {
		back = append(back, fmt.Sprintf("shard %d goes back to the copy of server/%d", shard, next[shard][0]))
	}
	rest := ", the rest stays as it is"
	if len(lost) == len(next) {
		rest = ""
	}
	return fmt.Sprintf("%s: %s%s, on line %d", enumerate(what), enumerate(back), rest, s.view.Line+1)
}
