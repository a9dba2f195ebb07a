package server

import (
	"errors"
	"fmt"
	"io"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// Read answers each request with the frames of one released version, as soon as one is new enough. The
// frames are the version's own memory; it is pinned until gRPC has written them.
func (s *Server) Read(stream *transport.ReadServer) error {
	t, err := s.serving(stream.Context())
	if err != nil {
		return err
	}
	return t.during(func() error {
		for {
			req, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if req.Line != t.view.Line {
				return fmt.Errorf("%w: a read of line %d, this server is on line %d", kintsugi.ErrStaleView, req.Line, t.view.Line)
			}
			r, err := t.replica(req.Shard)
			if err != nil {
				return err
			}
			if err := r.answer(stream, req.AtLeast); err != nil {
				return err
			}
		}
	})
}

// answer waits for a version of at least atLeast and sends it.
func (r *replica) answer(stream *transport.ReadServer, atLeast kintsugi.Step) error {
	x, changed := r.versions.pin(atLeast, 1)
	for x == nil {
		select {
		case <-changed:
		case <-r.ctx.Done():
			return errStopped
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		x, changed = r.versions.pin(atLeast, 1)
	}
	defer r.versions.unpin(x)
	for _, f := range r.versions.encoded(x) {
		r.versions.pinAgain(x)
		r.pulled.Add(uint64(len(f.bytes)) + transport.HeaderBytes)
		err := stream.Send(&transport.Frame{
			Header: transport.Header{
				Kind: transport.KindParameters, Shard: r.id, Chunks: f.chunks,
				Push:  kintsugi.PushID{Line: r.view.Line, Version: x.step},
				Bytes: uint32(len(f.bytes)), CRC: f.crc,
			},
			Payload: f.bytes,
			Done:    func() { r.versions.unpin(x) },
		})
		if err != nil {
			// Whether gRPC still holds this frame cannot be known; its pin stays, and the version is
			// left to the garbage collector instead of being written again.
			return err
		}
	}
	return nil
}
