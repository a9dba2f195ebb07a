package server

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// Control is the conductor's hold on the replicas of this server. Every open stream that has taken a replica
// under the fence that it has promised gets its answers, and the conductor asks again whatever was lost with a
// stream that broke. Were it the newest alone, a Take of a stream that has long been given up could arrive
// after that of the stream in use, and the conductor would wait for answers for ever.
func (s *Server) Control(stream *transport.ControlServer) error {
	t, err := s.serving(stream.Context())
	if err != nil {
		return err
	}
	out := newOutbox[kintsugi.ReplicaMessage]()
	out.try = stream.TrySend
	defer func() {
		for _, r := range t.replicas {
			r.post(func() { r.forget(out) })
		}
	}()
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
				before := r.core.Promised()
				counts := r.core.Handle(m.Message)
				if _, ok := m.Message.(kintsugi.Take); ok && counts {
					r.takenBy(out, r.core.Promised() > before)
				}
			})
			if err != nil {
				return err
			}
		}
	})
}

// takenBy sends the answers to out as well, and to nobody else if it is of a new conductor: were one that is
// superseded to get the answers that the present one waits for, it would believe that it is not.
func (r *replica) takenBy(out *outbox[kintsugi.ReplicaMessage], superseding bool) {
	if superseding {
		r.replies = nil
	}
	r.forget(out)
	r.replies = append(r.replies, out)
}

// forget sends out no more answers.
func (r *replica) forget(out *outbox[kintsugi.ReplicaMessage]) {
	r.replies = slices.DeleteFunc(r.replies, func(o *outbox[kintsugi.ReplicaMessage]) bool { return o == out })
}
