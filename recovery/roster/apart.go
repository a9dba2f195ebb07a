package roster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Two servers may not reach each other while everybody else, the coordinator included, reaches
// both. Neither is dead, and if one has to hear from the other, no steps are made. If each shard
// has a replica on another server, one of the two is left out until they reach each other again.
// Either would do. But a server that several others do not reach is more likely the cause, and
// leaving out a server that has the only whole copy of a shard costs steps.

// pair is two servers, the lower number first.
type pair [2]kintsugi.ServerID

// meet notes which of the servers that are present do not reach each other, whichever of the two
// says so. It returns the time at which one of them may be left out; zero: none is to be left out.
func (s *State) meet() (at time.Time) {
	was := s.apart
	s.apart = nil
	for id := range kintsugi.ServerID(s.cfg.Servers) {
		for _, l := range s.present[id].Apart {
			p := pair{min(id, l.Server), max(id, l.Server)}
			if other, ok := s.present[l.Server]; !ok || int(l.Server) >= s.cfg.Servers || l.Server == id || other.Member.Incarnation != l.Incarnation || slices.Contains(s.apart, p) {
				continue
			}
			s.apart = append(s.apart, p)
			if !slices.Contains(was, p) {
				s.apartAt = s.now
			}
		}
	}
	slices.SortFunc(s.apart, func(a, b pair) int { return slices.Compare(a[:], b[:]) })
	if len(s.apart) > 0 && !s.settled() {
		return s.apartAt.Add(s.cfg.Settle)
	}
	return at
}

func (s *State) settled() bool { return !s.now.Before(s.apartAt.Add(s.cfg.Settle)) }

// part removes one server of each pair that do not reach each other from those that are present, if
// it can be spared. A server that is already out stays out.
func (s *State) part() {
	for {
		met := make(map[kintsugi.ServerID]int) // the number of servers in a pair with it
		for _, p := range s.apart {
			if s.isPresent(p[0]) && s.isPresent(p[1]) {
				met[p[0]]++
				met[p[1]]++
			}
		}
		type choice struct {
			id               kintsugi.ServerID
			in, costs, apart int
		}
		var spared []choice
		for id, n := range met {
			x := choice{id: id, apart: n}
			if s.lives(id) && inAny(s.view.Chains, id) {
				x.in = 1
			}
			if x.in == 1 && !s.settled() {
				continue
			}
			j := s.present[id]
			delete(s.present, id)
			_, lost, ok := s.rechained()
			s.present[id] = j
			if x.costs = len(lost); ok && !(s.cfg.NextAnswers && x.costs > 0) { // it can be spared once the replica after it has caught up
				spared = append(spared, x)
			}
		}
		if len(spared) == 0 {
			return
		}
		delete(s.present, slices.MinFunc(spared, func(a, b choice) int {
			return cmp.Or(a.in-b.in, b.apart-a.apart, a.costs-b.costs, int(b.id)-int(a.id))
		}).id)
	}
}

// strangers says in words which servers a server does not reach; empty: none.
func (s *State) strangers(id kintsugi.ServerID) string {
	var names []string
	for _, p := range s.apart {
		switch id {
		case p[0]:
			names = append(names, fmt.Sprintf("server/%d", p[1]))
		case p[1]:
			names = append(names, fmt.Sprintf("server/%d", p[0]))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return enumerate(names)
}

// strangeness says in words which servers do not reach each other.
func (s *State) strangeness() (text string) {
	for _, p := range s.apart {
		text += fmt.Sprintf("; server/%d and server/%d do not reach each other", p[0], p[1])
	}
	return text
}
