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
			if err := r.answer(stream, req); err != nil {
				return err
			}
		}
	})
}

// answer waits for a version that is new enough and sends it.
func (r *replica) answer(stream *transport.ReadServer, req transport.ReadRequest) error {
	x, changed := r.versions.pin(req.AtLeast, 1)
	for x == nil {
		select {
		case <-changed:
		case <-r.ctx.Done():
			return errStopped
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
		x, changed = r.versions.pin(req.AtLeast, 1)
	}
	defer r.versions.unpin(x)
	defer func(start time.Time) { r.publishing.Add(int64(time.Since(start))) }(time.Now())
	memory, _ := stream.Memory()
	var places transport.Places
	for _, f := range r.versions.frames(x, req) {
		if err := f.encode(r.cfg.Device); err != nil {
			return fmt.Errorf("encode version %d of shard %d: %w", x.step, r.id, err)
		}
		if err := r.sendFrame(stream, x, f, memory, &places); err != nil {
			return err
		}
	}
	if req.Form != transport.ReadChanges {
		return nil
	}
	return stream.Send(&transport.Frame{Header: transport.Header{
		Kind: transport.KindVersion, Shard: r.id, Push: kintsugi.PushID{Line: r.view.Line, Version: x.step}, CRC: transport.Checksum(nil),
	}})
}

// sendFrame sends a frame of a version, or puts it in the memory of the worker that asked, if there is one, and tells it. The memory is the worker's
// again with the last frame; a worker has done with one answer when it asks for another.
func (r *replica) sendFrame(stream *transport.ReadServer, x *version, f *frame, memory *shm.Segment, places *transport.Places) error {
	m := &transport.Frame{Header: transport.Header{
		Kind: transport.KindParameters, Codec: f.codec, Shard: r.id, Chunks: f.chunks,
		Push:  kintsugi.PushID{Line: r.view.Line, Version: x.step},
		Bytes: uint32(len(f.bytes)), CRC: f.crc,
	}}
	r.pulled.Add(uint64(len(f.bytes)) + transport.HeaderBytes)
	if memory == nil {
		// Where a send fails whether gRPC still holds the frame cannot be known; its pin stays, and the version is left to the garbage
		// collector instead of being written again.
		r.versions.pinAgain(x)
		m.Payload, m.Done = f.bytes, func() { r.versions.unpin(x) }
		return stream.Send(m)
	}
	m.Place = places.Take(len(f.bytes))
	dst := transport.Put(memory, m.Place, len(f.bytes))
	if dst == nil {
		return fmt.Errorf("%w: a reader of shard %d shares %d bytes, which is too little for a version", kintsugi.ErrCorrupt, r.id, len(memory.Bytes()))
	}
	copy(dst, f.bytes)
	return stream.Send(m)
}
