package server

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
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
	defer func(start time.Time) { r.publishing.Add(int64(time.Since(start))) }(time.Now())
	if memory, _ := stream.Memory(); memory != nil {
		return r.answerShared(stream, x, memory)
	}
	for _, f := range r.versions.encoded(x) {
		r.versions.pinAgain(x)
		r.pulled.Add(uint64(len(f.bytes)) + transport.HeaderBytes)
		err := stream.Send(&transport.Frame{
			Header:  r.parameters(x, f),
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

// parameters returns the header of a frame of a version.
func (r *replica) parameters(x *version, f frame) transport.Header {
	return transport.Header{
		Kind: transport.KindParameters, Shard: r.id, Chunks: f.chunks,
		Push:  kintsugi.PushID{Line: r.view.Line, Version: x.step},
		Bytes: uint32(len(f.bytes)), CRC: f.crc,
	}
}

// answerShared puts a version in the memory of the worker that asked, and tells it. The memory is the worker's again with the last frame; a
// worker has done with one answer when it asks for another.
func (r *replica) answerShared(stream *transport.ReadServer, x *version, memory *shm.Segment) error {
	var places transport.Places
	for _, f := range r.versions.encoded(x) {
		h := r.parameters(x, f)
		h.Place = places.Take(len(f.bytes))
		dst := transport.Put(memory, h.Place, len(f.bytes))
		if dst == nil {
			return fmt.Errorf("%w: a reader of shard %d shares %d bytes, which is too little for a version", kintsugi.ErrCorrupt, r.id, len(memory.Bytes()))
		}
		copy(dst, f.bytes)
		r.pulled.Add(uint64(len(f.bytes)) + transport.HeaderBytes)
		if err := stream.Send(&transport.Frame{Header: h}); err != nil {
			return err
		}
	}
	return nil
}
