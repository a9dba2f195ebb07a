package server

import "time"

// Pretend makes the conductor of the present view believe that it is later than it is.
func (s *Server) Pretend(later time.Duration) error {
	s.mu.Lock()
	c := s.tenure.conductor
	s.mu.Unlock()
	return c.do(func() { c.core.Tick(time.Now().Add(later)) })
}
