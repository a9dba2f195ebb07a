package server

import (
	"errors"
	"fmt"
	"io"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server/shard"
)

// Push receives a worker's gradients. It answers Received once a push is whole and verified, and
// Refused once for a push that cannot be counted.
func (s *Server) Push(stream *transport.PushServer) error {
	t, err := s.serving(stream.Context())
	if err != nil {
		return err
	}
	answers := newOutbox[kintsugi.HeadMessage]()
	answers.try = stream.TrySend
	return converse(stream.Context(), t, answers, stream.Send, func() error {
		in := landing{tenure: t, answers: answers}
		in.memory, _ = stream.Memory()
		for {
			f, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			err = in.land(f)
			f.Release()
			if err != nil {
				return err
			}
		}
	})
}

// landing is the state of one push stream.
type landing struct {
	tenure  *tenure
	answers *outbox[kintsugi.HeadMessage]

	// The push that is arriving. Only its first frame has to ask the replica.
	shard   kintsugi.ShardID
	push    kintsugi.PushID
	buffer  *held            // nil: its frames are dropped, since the push is held already or refused
	first   kintsugi.ChunkID // of the frame that came first
	started bool

	memory           *shm.Segment // that the worker shares; nil: none
	packed, unpacked []byte       // a frame before and after its lossless stage is undone
}

// land takes one frame. An error ends the stream: the peer is broken or bytes were damaged.
func (in *landing) land(f *transport.Frame) error {
	r, err := in.tenure.replica(f.Shard)
	if err != nil {
		return err
	}
	if f.Kind != transport.KindPush || f.Chunks.Lo < r.chunks.Lo || f.Chunks.Hi > r.chunks.Hi {
		return fmt.Errorf("%w: frame of kind %d with chunks [%d, %d) does not belong to a push to shard %d, chunks [%d, %d)",
			kintsugi.ErrCorrupt, f.Kind, f.Chunks.Lo, f.Chunks.Hi, f.Shard, r.chunks.Lo, r.chunks.Hi)
	}
	// A larger frame would make the stream keep the memory that it unpacks to.
	if lo, hi := r.cfg.Layout.Span(f.Chunks); hi-lo > transport.MaxFrameValues {
		return fmt.Errorf("%w: frame of chunks [%d, %d) stands for %d values, at most %d are allowed", kintsugi.ErrCorrupt, f.Chunks.Lo, f.Chunks.Hi, hi-lo, transport.MaxFrameValues)
	}
	// A push that is over and starts again with the same frame asks for its answer again.
	again := in.buffer == nil && f.Chunks.Lo == in.first
	if !in.started || in.shard != f.Shard || in.push != f.Push || again {
		if err := in.begin(r, f); err != nil {
			return err
		}
	}
	if in.buffer == nil {
		return nil
	}
	err = in.take(r, f)
	if _, cannot := errors.AsType[refusal](err); err != nil && !cannot {
		if _, lost := errors.AsType[lostDevice](err); lost {
			r.fail(fmt.Errorf("land %v on shard %d: %w", f.Push, r.id, err))
		}
		_ = r.do(func() { r.drop(f.Push, in.buffer) })
		return err
	}
	r.pushed.Add(uint64(f.Bytes) + transport.HeaderBytes)
	if err == nil && in.buffer.left > 0 {
		return nil
	}
	return in.end(r, f.Push, err)
}

// take lands the chunks of a frame in the buffer. It returns a refusal if the bytes are what the
// worker sent and yet cannot be counted. Any other error means damaged bytes.
func (in *landing) take(r *replica, f *transport.Frame) error {
	if e := f.Codec.Encoding(); !exact(e) && exactOnly(r.cfg.Schedule.Rule) {
		return refusal{fmt.Errorf("rule %v takes exact gradients only, not %v; use the codec fp32 or sparse", r.cfg.Schedule.Rule, e)}
	}
	known, err := in.buffer.knows(r, f.Chunks)
	switch {
	case known || err != nil:
		return err
	case f.Codec.Encoding() == kernels.FP32:
		return in.landValues(r, f)
	default:
		return in.landPayloads(r, f)
	}
}

// begin asks the replica whether it takes a push.
func (in *landing) begin(r *replica, f *transport.Frame) error {
	in.started, in.shard, in.push, in.first, in.buffer = true, f.Shard, f.Push, f.Chunks.Lo, nil
	return r.do(func() {
		switch verdict, reason := r.core.Begin(f.Push); verdict {
		case shard.Accept:
			r.cfg.Enter(Pushing)
			in.buffer = r.landingBuffer()
			r.held[f.Push] = in.buffer
		case shard.Have:
			in.answers.put(kintsugi.Received{Push: f.Push, Shard: r.id, View: r.view.Number})
		case shard.Refuse:
			in.answers.put(kintsugi.Refused{Push: f.Push, Step: r.core.Awaited(f.Push), Reason: reason})
		}
	})
}

// end hands a push to the replica: one that has landed whole or, if bad is not nil, one that cannot
// be counted because of bad.
func (in *landing) end(r *replica, p kintsugi.PushID, bad error) error {
	buffer := in.buffer
	in.buffer = nil
	return r.do(func() {
		buffer.landed = true
		if bad != nil {
			r.log.Warn("gradient refused", "push", p.String(), "reason", bad)
			r.drop(p, buffer)
			in.answers.put(kintsugi.Refused{Push: p, Step: r.core.Released(), Reason: bad.Error()})
			return
		}
		// Another stream of the worker has begun the same push again: a later stream, or one that
		// broke before this one was opened and is read late. They cannot be told apart, and the
		// bytes are the same. So the one that has landed first is the push, and both are answered.
		if h := r.held[p]; h != nil && h != buffer {
			if verdict, _ := r.core.Begin(p); verdict == shard.Accept {
				r.held[p] = buffer
			}
		}
		// If the push was freed while it arrived, the worker must still get an answer.
		if ok, reason := r.core.Complete(p); !ok {
			in.answers.put(kintsugi.Refused{Push: p, Step: r.core.Awaited(p), Reason: reason})
			return
		}
		in.answers.put(kintsugi.Received{Push: p, Shard: r.id, View: r.view.Number})
	})
}

// drop forgets a push whose bytes were refused, unless a later stream has begun it again.
func (r *replica) drop(p kintsugi.PushID, buffer *held) {
	if r.held[p] == buffer {
		r.core.Drop(p)
	}
}

// landingBuffer returns a buffer for one push. It reuses only buffers that have landed: a stream
// may still write to, or check, one that was freed before.
func (r *replica) landingBuffer() *held {
	n := int(r.chunks.Hi - r.chunks.Lo)
	if k := len(r.spare); k > 0 {
		h := r.spare[k-1]
		r.spare = r.spare[:k-1]
		h.left, h.used, h.landed = n, 0, false
		if h.landing != nil {
			h.landing.Clear()
		}
		return h
	}
	h := &held{chunks: make([]landedChunk, n), left: n}
	if r.versions.arrays != nil {
		h.landing = r.versions.arrays.NewLanding()
	}
	return h
}
