package roster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// A shard with several replicas outlives all of them but one: the next view goes on with the line,
// at the step where it stands, and nothing is restored. Whoever is gone leaves its chains at once,
// and whoever comes, comes in at their ends: a tail takes over what the one before it has, while
// steps go on without waiting for it. Where replicas have copies that may be some steps old, a
// shard that loses its head goes back to one of them: the line is over, and the next one keeps what
// the others have. So it is where the next replica answers for those behind it, and a shard loses
// its head and that one in one view.

// goOn decides where the line that counts goes on, or the next one begins with copies of the shards
// whose heads are gone. It reports false where there is none, or where a shard has nobody left.
// With one replica it is for shards that are not where they belong: see move.go.
func (s *State) goOn(found *Found) (Decision, bool) {
	if !s.placed() || s.replicas == 1 && !s.displaced() {
		return Decision{}, false
	}
	all := s.present
	defer func() { s.present = all }()
	s.present = s.staying()
	gone, come := s.moved()
	next, lost, ok := s.rechained()
	switch {
	case !ok:
		return Decision{}, false
	case len(gone)+len(come) == 0 && slices.EqualFunc(next, s.view.Chains, slices.Equal):
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
	} else {
		s.moveUp(&v)
	}
	v.Places = s.newPlaces(&v)
	return Decision{View: &v, Reason: why}, true
}

// newPlaces returns the places of v that servers have come into since they were taken into another one.
func (s *State) newPlaces(v *kintsugi.View) (list []kintsugi.Place) {
	for i, chain := range v.Chains {
		shard := kintsugi.ShardID(i)
		for _, id := range chain {
			p := kintsugi.Place{Shard: shard, Server: id, Since: v.Number}
			if slices.Contains(s.view.Chains[i], id) {
				p.Since = s.view.Since(shard, id)
			}
			if p.Since > v.Servers[id].Since {
				list = append(list, p)
			}
		}
	}
	return list
}

// fallBack makes v begin a line with copies of the lost shards and with what the heads of the
// others have. Nobody behind them has anything of that line yet.
func (s *State) fallBack(v *kintsugi.View, lost []kintsugi.ShardID) {
	v.Continues, v.Keeps, v.Lost, v.Moved = false, cmp.Or(v.Keeps, v.Line), lost, nil
	v.Line++
	for i := range v.Servers {
		v.Servers[i].Since = v.Number
	}
}

// staying returns who is present, without those that are about to go and that can be spared:
// whoever is in no chain, and whoever leaves no shard without a replica that has everything. Of two
// that do not reach each other, one stays; see part.
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
		if _, lost, spared := s.rechained(); !spared || s.cfg.NextAnswers && len(lost) > 0 {
			s.present[id] = j
		}
	}
	s.part()
	return s.present
}

// lives reports whether the life that the view names is present, and with one replica has been there all the time.
func (s *State) lives(id kintsugi.ServerID) bool {
	j, present := s.present[id]
	return present && s.view.Servers[id].Incarnation == j.Member.Incarnation && (s.replicas > 1 || s.fate(j) == kept)
}

// moved returns the servers whose life in the view's chains is gone, and those that are present and in no chain of the
// view, as this life; both ascending.
func (s *State) moved() (gone, come []kintsugi.ServerID) {
	for id := range kintsugi.ServerID(s.cfg.Servers) {
		in, lives := inAny(s.view.Chains, id), s.lives(id)
		if in && !lives {
			gone = append(gone, id)
		}
		if s.isPresent(id) && (!in || !lives) {
			come = append(come, id)
		}
	}
	return gone, come
}

// rechained returns the chains of the view without whoever is gone, with whoever is to come in at
// their ends, and without whoever stood in once those for whom it did have everything. Where
// replicas may lack steps, lost are the shards of which nobody is left who may not: who heads them
// next has them as they were some steps ago. It reports false if a shard would be left to those
// that have nothing of it, or not everything: the line is over.
func (s *State) rechained() (next [][]kintsugi.ServerID, lost []kintsugi.ShardID, ok bool) {
	wanted := s.places(s.isAwaited)
	next = make([][]kintsugi.ServerID, len(wanted))
	for i, chain := range s.view.Chains {
		var stay []kintsugi.ServerID
		head := -1 // place of the first that has the shard
		for _, id := range chain {
			if !s.lives(id) {
				continue
			}
			if head < 0 && s.has(i, id) {
				head = len(stay)
			}
			stay = append(stay, id)
		}
		if head < 0 {
			return nil, nil, false
		}
		if id := stay[head]; s.mayLack(i, id) {
			lost = append(lost, kintsugi.ShardID(i))
			stay = slices.Insert(slices.Delete(stay, head, head+1), 0, id)
		}
		next[i] = s.relieved(i, stay, wanted[i])
	}
	return next, lost, true
}

// mayLack reports whether the replica of a shard that a server has may lack steps that were
// released, although it has caught up once.
func (s *State) mayLack(shard int, id kintsugi.ServerID) bool {
	at := slices.Index(s.view.Chains[shard], id)
	moved := kintsugi.ViewNumber(0)
	if shard < len(s.view.Moved) {
		moved = s.view.Moved[shard]
	}
	return s.cfg.Copies && at > 0 || s.cfg.NextAnswers && (at > 1 || at == 1 && s.present[id].Whole < moved)
}

// moveUp notes of which shards v has another next one, which was behind it: it may lack what was released.
func (s *State) moveUp(v *kintsugi.View) {
	if !s.cfg.NextAnswers {
		return
	}
	v.Moved = slices.Grow(slices.Clone(v.Moved), len(v.Chains))[:len(v.Chains)]
	for i, chain := range v.Chains {
		if len(chain) > 1 && slices.Index(s.view.Chains[i], chain[1]) > 1 {
			v.Moved[i] = v.Number
		}
	}
}

// relieved returns the chain of a shard with those that it is to have and has not, as far as they
// are present, and without the others as soon as it has all that it is to have and each of them has
// everything. Who heads a chain of copies stays, and where the next answers for those behind it
// head and next do: nobody else may have everything, and without them the death of one server would
// cost steps.
func (s *State) relieved(shard int, stay, wanted []kintsugi.ServerID) []kintsugi.ServerID {
	next, there := slices.Clone(stay), true
	for _, id := range wanted {
		switch {
		case !slices.Contains(stay, id):
			if there = false; s.isPresent(id) {
				next = append(next, id)
			}
		case !s.has(shard, id):
			there = false
		}
	}
	if !there {
		return next
	}
	whole := 0 // the first so many may be the only ones that have everything
	switch {
	case s.cfg.Copies:
		whole = 1
	case s.cfg.NextAnswers:
		whole = 2
	}
	return slices.DeleteFunc(next, func(id kintsugi.ServerID) bool {
		return !slices.Contains(wanted, id) && !slices.Contains(stay[:min(whole, len(stay))], id)
	})
}

// whole reports whether a server of the view has everything that was released of a shard of its.
func (s *State) whole(shard int, id kintsugi.ServerID) bool {
	return s.present[id].Whole >= s.view.Since(kintsugi.ShardID(shard), id)
}

// placed reports whether the view that counts has the servers and the replicas of the
// configuration; who holds what in it may have moved.
func (s *State) placed() bool {
	v := s.view
	if v == nil || len(v.Servers) != s.cfg.Servers || len(v.Chains) != s.cfg.Servers {
		return false
	}
	replicas := v.Replicas
	for _, chain := range v.Chains {
		if v.Replicas == 0 { // a view of a program that did not say
			replicas = max(replicas, len(chain))
		}
	}
	return replicas == s.replicas
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
	return text + s.strangeness() + s.unwanted()
}

// whyOn says in words what a view changes that goes on with the line, or with copies of lost shards.
func (s *State) whyOn(gone, come []kintsugi.ServerID, all map[kintsugi.ServerID]Joined, next [][]kintsugi.ServerID, lost []kintsugi.ShardID) string {
	var what []string
	for _, id := range gone {
		how := "is gone"
		if j, present := all[id]; j.Leaving {
			how = "is about to go"
		} else if strangers := s.strangers(id); present && strangers != "" && j.Member.Incarnation == s.view.Servers[id].Incarnation {
			how = "is cut off from " + strangers
		}
		what = append(what, fmt.Sprintf("server/%d %s", id, how))
	}
	for _, id := range come {
		what = append(what, fmt.Sprintf("server/%d comes in as incarnation %d", id, s.present[id].Member.Incarnation))
	}
	what = append(what, s.handedOver(come, next)...)
	if len(lost) == 0 {
		return enumerate(what) + ": line " + fmt.Sprint(s.view.Line) + " goes on"
	}
	var back []string
	for _, shard := range lost {
		has := fmt.Sprintf("the copy of server/%d", next[shard][0])
		if s.cfg.NextAnswers {
			has = fmt.Sprintf("what server/%d has", next[shard][0])
		}
		back = append(back, fmt.Sprintf("shard %d goes back to %s", shard, has))
	}
	rest := ", the rest stays as it is"
	if len(lost) == len(next) {
		rest = ""
	}
	return fmt.Sprintf("%s: %s%s, on line %d", enumerate(what), enumerate(back), rest, s.view.Line+1)
}
