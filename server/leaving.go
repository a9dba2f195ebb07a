package server

import (
	"context"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
)

// This file is about servers that are about to go: what such a server does, and what the others do
// for it. See docs/recovery.md. The server asks to be left out of the next view. That is enough if
// other servers hold what it holds. If none does, the run stands still until it is in the
// checkpoint.

// Hold says which servers hold the only copy of something and are about to go. If this server
// conducts and one of them is in its view, the run stands still at the next release, and
// Config.Held is called once that step is durable. Steps go on in the next view, unless that has
// one of them too. Hold does not block, and may be called from any goroutine.
func (s *Server) Hold(going []kintsugi.Member) {
	s.mu.Lock()
	s.going = slices.Clone(going)
	s.mu.Unlock()
	s.stand()
}

// stand tells the conductor, if it is here, to stand still where that is needed.
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

// Out waits until nobody needs this server, that is, until the newest view leaves it out, or as
// long as there has been no view. It returns the error of ctx if that ends first.
func (s *Server) Out(ctx context.Context) error {
	return s.until(ctx, func() bool { return s.out })
}

// StandsIn reports whether this server has a shard in the memory of its process and nowhere else: a
// shard with one replica that it has taken over, or its own shard if there is no room for it
// outside the process.
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

// changed wakes everybody who waits for a change. The caller has locked mu.
func (s *Server) changed() {
	close(s.change)
	s.change = make(chan struct{})
}
