package roster

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// A shard with several replicas survives as long as one of them does. The next view goes on with
// the line, at the step where it stands, and nothing is restored. A server that is gone leaves its
// chains at once. A server that comes joins chains at their ends: a tail takes over what the
// replica before it has, while steps go on without waiting for it. If replicas have copies that may
// be some steps old, a shard that loses its head falls back to one of them: the line is over, and
// the next line keeps what the other shards have. The same happens where the next replica answers,
// if a shard loses its head and its next in one view.

// goOn decides on a view that continues the present line, or begins a line with copies of the
// shards whose heads are gone. It returns false if there is no view yet, or if nobody has some
// shard. With one replica per shard, it handles the shards that are not on their own servers: see
// move.go.
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

// newPlaces returns the places in v that servers have taken after they were taken into another
// place.
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
// others have. The replicas behind them have nothing of that line yet.
func (s *State) fallBack(v *kintsugi.View, lost []kintsugi.ShardID) {
	v.Continues, v.Keeps, v.Lost, v.Moved = false, cmp.Or(v.Keeps, v.Line), lost, nil
	v.Line++
	v.Losses++
	for i := range v.Servers {
		v.Servers[i].Since = v.Number
	}
}

// staying returns the servers that are present, without those that are about to go and can be
// spared. A server can be spared if it is in no chain, or if each of its shards keeps a replica
// that has everything. Of two servers that do not reach each other, one stays; see part.
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

// lives reports whether the life that the view names is present and, with one replica, has been
// present all the time.
func (s *State) lives(id kintsugi.ServerID) bool {
	j, present := s.present[id]
	return present && s.view.Servers[id].Incarnation == j.Member.Incarnation && (s.replicas > 1 || s.fate(j) == kept)
}

// moved returns the servers whose life in the view's chains is gone, and the servers that are
// present and whose present life is in no chain of the view. Both lists ascend.
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

// rechained returns the chains of the next view. They are those of the present view without the
// servers that are gone, with the servers that come in at their ends, and without the servers that
// stood in for others which have everything now. If replicas may lack steps, lost lists the shards
// of which only such replicas are left: their next head has them as they were some steps ago. ok is
// false if a shard would be left to servers that have nothing of it, or not everything: the line is
// over.
func (s *State) rechained() (next [][]kintsugi.ServerID, lost []kintsugi.ShardID, ok bool) {
	wanted := s.places(s.isAwaited)
	next = make([][]kintsugi.ServerID, len(wanted))
	for i, chain := range s.view.Chains {
		var stay []kintsugi.ServerID
		head := -1 // place of the first server that has the shard
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

// mayLack reports whether a server's replica of a shard may lack released steps although it has
// caught up once.
func (s *State) mayLack(shard int, id kintsugi.ServerID) bool {
	at := slices.Index(s.view.Chains[shard], id)
	moved := kintsugi.ViewNumber(0)
	if shard < len(s.view.Moved) {
		moved = s.view.Moved[shard]
	}
	return s.cfg.Copies && at > 0 || s.cfg.NextAnswers && (at > 1 || at == 1 && s.present[id].Whole < moved)
}

// moveUp notes the shards that have another next replica in v, which was further behind: it may
// lack released steps.
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

// relieved returns the chain of a shard with the wanted servers that are missing added, as far as
// they are present. The other servers are removed once the shard has all its wanted servers and
// each of them has everything. The head of a chain of copies always stays, and so do head and next
// where the next answers: nobody else may have everything, and without them the death of one server
// would cost steps.
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
	whole := 0 // the number of first servers that may be the only ones with everything
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

// whole reports whether a server of the view has everything that was released of one of its shards.
func (s *State) whole(shard int, id kintsugi.ServerID) bool {
	return s.present[id].Whole >= s.view.Since(kintsugi.ShardID(shard), id)
}

// placed reports whether the newest view has the servers and the replicas of the configuration.
// Shards may be on other servers than their own.
func (s *State) placed() bool {
	v := s.view
	if v == nil || len(v.Servers) != s.cfg.Servers || len(v.Chains) != s.cfg.Servers {
		return false
	}
	replicas := v.Replicas
	for _, chain := range v.Chains {
		if v.Replicas == 0 { // a view of a program that did not say it
			replicas = max(replicas, len(chain))
		}
	}
	return replicas == s.replicas
}

func inAny(all [][]kintsugi.ServerID, id kintsugi.ServerID) bool {
	return slices.ContainsFunc(all, func(chain []kintsugi.ServerID) bool { return slices.Contains(chain, id) })
}

// stands says in words that nothing is to be done, and which servers are missing.
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

// whyOn says in words what changes in a view that goes on with the line, or with copies of lost
// shards.
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
