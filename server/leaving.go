package server

import (
	"context"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// What a server does that is about to go, and what the others do for it: see docs/recovery.md. It
// asks to be left out of the next view, which is enough where others hold what it holds. Where
// nobody does, the run stands until what it holds is in the checkpoint.

// Hold says which servers hold the only copy of something and are about to go. If this server
// conducts and one of them is in its view, the run stands at the next release: Config.Held is
// called once it is durable. Steps go on in the next view, unless one of them is in that one too.
func (s *Server) Hold(going []kintsugi.Member) {
	s.mu.Lock()
	s.going = slices.Clone(going)
	s.mu.Unlock()
	s.stand()
}

// stand lets the conductor know, if it is here.
func (s *Server) stand() {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenure
	if t == nil || t.conductor == nil {
		return
	}
	waits := slices.ContainsFunc(s.going, func(m kintsugi.Member) bool {
		return int(m.Server) < len(t.view.Servers) && t.view.Servers[m.Server].Incarnation == m.Incarnation &&
			slices.ContainsFunc(t.view.Chains, func(chain []kintsugi.ServerID) bool { return slices.Contains(chain, m.Server) })
	})
	if waits {
		go t.conductor.stand() // its inbox may be full while this server enters a view
	}
}

// Out waits until nobody needs this server: the newest view leaves it out, or there is none yet.
func (s *Server) Out(ctx context.Context) error {
	return s.until(ctx, func() bool { return s.out })
}

// StandsIn reports whether this server has a shard in the memory of its process, and nowhere else:
// one with one replica that it has taken over, or its own if there is no room for it outside.
func (s *Server) StandsIn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tenure == nil || s.tenure.view.Replicas > 1 {
		return false
	}
	for id := range s.tenure.replicas {
		if id != kintsugi.ShardID(s.cfg.ID) || s.cfg.Outside != nil && s.cfg.Outside.full.Load() {
			return true
		}
	}
	return false
}

// View returns the number of the view in which this server serves, 0 for none.
func (s *Server) View() kintsugi.ViewNumber {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tenure == nil {
		return 0
	}
	return s.tenure.view.Number
}

// isOut notes that the newest view leaves this server out.
func (s *Server) isOut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = true
	s.changed()
}

// changed wakes whoever waits for a change. The caller has locked mu.
func (s *Server) changed() {
	close(s.change)
	s.change = make(chan struct{})
}
