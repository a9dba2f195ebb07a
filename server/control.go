package server

import (
	"context"
	"errors"
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
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	out := newOutbox[kintsugi.ReplicaMessage]()
	go func() {
		if out.drain(ctx, stream.Send) != nil {
			cancel()
		}
	}()
	return t.during(func() error {
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
