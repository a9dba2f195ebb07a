package reach

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

const (
	// After is for how long tries to reach a life must have failed before it is reported. It is
	// longer than it takes to notice that a server is dead.
	After = 5 * time.Second
	// Again is for how long tries to reach a reported life must have succeeded before it is not
	// reported any more.
	Again = 3 * time.Second
)

// State is what a server knows of the others. The zero State knows nothing. It is not safe for
// concurrent use.
type State struct {
	peers map[kintsugi.Life]peer
}

// peer is a life that did not answer the last try, or that is reported.
type peer struct {
	since time.Time // of the first of the last tries that all had the same result
	ok    bool      // that result
	apart bool
}

// Tried notes the result of a try to reach a life. It reports whether Apart has changed.
func (s *State) Tried(now time.Time, whom kintsugi.Life, ok bool) bool {
	p, known := s.peers[whom]
	if !known && ok {
		return false
	}
	if !known || p.ok != ok {
		p.since, p.ok = now, ok
	}
	was := p.apart
	lasts := now.Sub(p.since)
	p.apart = was && (!ok || lasts < Again) || !ok && lasts >= After
	if ok && !p.apart {
		delete(s.peers, whom)
	} else {
		if s.peers == nil {
			s.peers = make(map[kintsugi.Life]peer)
		}
		s.peers[whom] = p
	}
	return p.apart != was
}

// Forget drops the lives for which over returns true. It reports whether Apart has changed.
func (s *State) Forget(over func(kintsugi.Life) bool) (changed bool) {
	maps.DeleteFunc(s.peers, func(l kintsugi.Life, p peer) bool {
		gone := over(l)
		changed = changed || gone && p.apart
		return gone
	})
	return changed
}

// Apart returns the lives to report, ascending by server and incarnation.
func (s *State) Apart() (list []kintsugi.Life) {
	for l, p := range s.peers {
		if p.apart {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b kintsugi.Life) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	return list
}
