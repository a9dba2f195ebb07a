package server

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// Control serves a conductor's stream to the replicas of this server. A replica sends its answers
// to every open stream that has taken it under the fence that it has promised, and the conductor
// asks again for what a broken stream has lost. Answering only the newest stream would not do: a
// Take of a stream that was given up long ago may arrive after the Take of the stream in use, and
// the conductor would then wait for answers for ever.
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
			if _, ok := m.Message.(kintsugi.Listen); ok {
				if err := t.listen(m.Shard, out); err != nil {
					return err
				}
				continue
			}
			r, err := t.replica(m.Shard)
			if err != nil {
				return err
			}
			if c, ok := m.Message.(kintsugi.Commit); ok && c.Optimizer.Rule != r.cfg.Schedule.Rule {
				// The arrays of optimizer state were made for our rule. Another rule would index
				// arrays that do not exist.
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

// listen makes the replica of a shard, which must not be the head, send to out what it answers to the
// replica before it.
func (t *tenure) listen(id kintsugi.ShardID, out *outbox[kintsugi.ReplicaMessage]) error {
	r := t.replicas[id]
	if r == nil || r.at == 0 {
		return fmt.Errorf("%w: no replica of shard %d follows another one on this server in view %d", kintsugi.ErrStaleView, id, t.view.Number)
	}
	return r.do(func() {
		r.forget(out) // if it is asked for again
		r.hearing = append(r.hearing, out)
	})
}

// takenBy sends the replica's answers to out as well. If out belongs to a new conductor, it sends
// them to out alone: an old conductor that got the answers meant for the new one would believe that
// it still conducts.
func (r *replica) takenBy(out *outbox[kintsugi.ReplicaMessage], superseding bool) {
	if superseding {
		r.replies = nil
	}
	r.forget(out)
	r.replies = append(r.replies, out)
}

// forget stops sending answers to out.
func (r *replica) forget(out *outbox[kintsugi.ReplicaMessage]) {
	is := func(o *outbox[kintsugi.ReplicaMessage]) bool { return o == out }
	r.replies, r.hearing = slices.DeleteFunc(r.replies, is), slices.DeleteFunc(r.hearing, is)
}
