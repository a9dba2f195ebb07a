package server

import (
	"errors"
	"fmt"
	"io"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// Control is the conductor's hold on the replicas of this server. The newest stream that has taken a
// replica gets its answers; the conductor asks again whatever was lost with the one before.
func (s *Server) Control(stream *transport.ControlServer) error {
	t, err := s.serving(stream.Context())
	if err != nil {
		return err
	}
	out := newOutbox[kintsugi.ReplicaMessage]()
	return converse(stream.Context(), t, out, stream.Send, func() error {
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			r, err := t.replica(m.Shard)
			if err != nil {
				return err
			}
			if c, ok := m.Message.(kintsugi.Commit); ok && c.Optimizer.Rule != r.cfg.Schedule.Rule {
				// The arrays of optimizer state were made for our rule: another one would index what is not there.
				return fmt.Errorf("%w: the conductor commits with rule %d, this server is configured for rule %d; run the same configuration everywhere",
					kintsugi.ErrOtherModel, c.Optimizer.Rule, r.cfg.Schedule.Rule)
			}
			err = r.do(func() {
				counts := r.core.Handle(m.Message)
				if _, ok := m.Message.(kintsugi.Take); ok && counts {
					r.replies = out
				}
			})
			if err != nil {
				return err
			}
		}
	})
}
