package roster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

// Two servers may not reach each other while everybody else, the coordinator too, reaches both:
// neither is dead, and where one has to hear of the other no step is taken. As long as each shard
// has a replica among the others, one of the two is left out until they have met again. Which of
// the two is arbitrary; but one that several do not reach is more likely the cause, and the death
// of a server that has the only whole copy of something costs steps.

// pair is two servers, the lower number first.
type pair [2]kintsugi.ServerID

// meet notes which of those present do not reach each other, whoever of the two says so. It returns
// when one of them may be left out; zero: nobody is about to be.
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

// part takes one of each two that do not reach each other out of those that are present, as far as
// it can be spared. Who is out already stays so.
func (s *State) part() {
	for {
		met := make(map[kintsugi.ServerID]int) // how many it does not reach, or is not reached by
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
			if x.costs = len(lost); ok && !(s.cfg.NextAnswers && x.costs > 0) { // it can be spared once the one after it has caught up
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

// strangers says in words whom a server does not reach; empty: nobody.
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

// strangeness says who does not reach whom.
func (s *State) strangeness() (text string) {
	for _, p := range s.apart {
		text += fmt.Sprintf("; server/%d and server/%d do not reach each other", p[0], p[1])
	}
	return text
}
