package reach

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
)

const (
	// After is for how long tries to reach a life have failed when it is apart. Longer than it
	// takes to find out that a server is dead.
	After = 5 * time.Second
	// Again is for how long tries to reach a life that is apart have succeeded when it is no longer.
	Again = 3 * time.Second
)

// State is what a server knows of the others. The zero State knows nothing. Not safe for concurrent use.
type State struct {
	peers map[kintsugi.Life]peer
}

// peer is a life that could not be reached when it was last tried, or is apart.
type peer struct {
	since time.Time // of the first of the tries that have all gone as the last one did
	ok    bool      // how that went
	apart bool
}

// Tried notes how a try to reach a life went. It reports whether Apart has changed.
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

// Forget drops the lives that are over. It reports whether Apart has changed.
func (s *State) Forget(over func(kintsugi.Life) bool) (changed bool) {
	maps.DeleteFunc(s.peers, func(l kintsugi.Life, p peer) bool {
		gone := over(l)
		changed = changed || gone && p.apart
		return gone
	})
	return changed
}

// Apart returns the lives that are apart, by server and incarnation, ascending.
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
