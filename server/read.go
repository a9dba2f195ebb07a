package server

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// Read answers each request with the frames of one released version, as soon as one is new enough,
// or of the next one before it is released, if the reader asks for that. The frames are the memory
// of the version itself. It stays pinned until gRPC has written them or, if the reader reads them in
// shared memory, until the reader has finished.
func (s *Server) Read(stream *transport.ReadServer) error {
	t, err := s.serving(stream.Context())
	if err != nil {
		return err
	}
	return t.during(func() error {
		done := func() {} // gives back what the reader was lent
		defer func() { done() }()
		for {
			req, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			done()
			if done = func() {}; req.Form == transport.ReadDone {
				continue
			}
			if req.Line != t.view.Line {
				return fmt.Errorf("%w: a read of line %d, this server is on line %d", kintsugi.ErrStaleView, req.Line, t.view.Line)
			}
			r, err := t.replica(req.Shard)
			if err != nil {
				return err
			}
			if done, err = r.answer(stream, req); err != nil {
				return err
			}
		}
	})
}

// answer waits for a version that is new enough and sends it. done gives back the memory that the
// reader is lent. Call it when the reader has finished, and at the latest when the stream ends,
// whatever the error. A reader that still reads afterwards finds that what it has copied does not
// match its checksum.
func (r *replica) answer(stream *transport.ReadServer, req transport.ReadRequest) (done func(), err error) {
	done = func() {}
	x, changed := r.versions.pinFor(req)
	for x == nil {
		select {
		case <-changed:
		case <-r.ctx.Done():
			return done, errStopped
		case <-stream.Context().Done():
			return done, stream.Context().Err()
		}
		x, changed = r.versions.pinFor(req)
	}
	done = func() { r.versions.unpin(x) }
	lent := false
	defer func() {
		if !lent {
			done()
			done = func() {}
		}
	}()
	defer func(start time.Time) { r.publishing.Add(int64(time.Since(start))) }(time.Now())
	for _, f := range r.versions.frames(x, req, stream.Lends()) {
		if err := f.encode(r.cfg.Device); err != nil {
			return done, fmt.Errorf("encode version %d of shard %d: %w", x.step, r.id, err)
		}
		lent = lent || f.memory != nil && stream.Lends()
		if err := r.sendFrame(stream, x, f); err != nil {
			return done, err
		}
	}
	if req.Form != transport.ReadChanges {
		return done, nil
	}
	return done, stream.Send(&transport.Frame{Header: transport.Header{
		Kind: transport.KindVersion, Shard: r.id, Push: kintsugi.PushID{Line: r.view.Line, Version: x.step}, CRC: transport.Checksum(nil),
	}})
}

// sendFrame sends a frame of a version or, if the reader can read the memory, the place where it
// lies.
func (r *replica) sendFrame(stream *transport.ReadServer, x *version, f *frame) (err error) {
	m := &transport.Frame{Header: transport.Header{
		Kind: transport.KindParameters, Codec: f.codec, Shard: r.id, Chunks: f.chunks,
		Push:  kintsugi.PushID{Line: r.view.Line, Version: x.step},
		Bytes: uint32(len(f.bytes)), CRC: f.crc,
	}}
	r.pulled.Add(uint64(len(f.bytes)) + transport.HeaderBytes)
	if f.memory == nil || !stream.Lends() {
		// If a send fails, gRPC may or may not hold the frame still. So the pin stays, and the
		// version is left to the garbage collector instead of being reused.
		r.versions.pinAgain(x)
		m.Payload, m.Done = f.bytes, func() { r.versions.unpin(x) }
		return stream.Send(m)
	}
	m.Place = f.place
	if m.Push.Sequence, err = stream.Lend(f.memory); err != nil {
		return err
	}
	return stream.Send(m)
}
