package worker

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// Wire says how gradients and parameters get to and from a server.
type Wire uint8

// The wires.
const (
	WireAuto   Wire = iota // WireShared where a server is on this host and has the worker's memory, WireGRPC elsewhere
	WireGRPC               // in messages
	WireShared             // in memory that the worker shares with each server; without it the worker ends with an error
)

// ParseWire reads what Wire.String writes.
func ParseWire(text string) (Wire, error) {
	for w := WireAuto; w <= WireShared; w++ {
		if w.String() == text {
			return w, nil
		}
	}
	return 0, fmt.Errorf("%w: wire %q is unknown; use auto, grpc or shm", kintsugi.ErrUsage, text)
}

// String returns the name of w on the command line.
func (w Wire) String() string { return [...]string{"auto", "grpc", "shm"}[w] }

// openData opens the streams to the head of a shard. Where gradients may lie in memory there is room for as many as may be open at once:
// their bytes are the head's until the worker hears what became of them, so the next gradient needs another room. Encoded gradients
// travel: they are small, and what is to be sent again has to be kept anyway.
func (s *session) openData(p *transport.Peer, x *shardStreams) (err error) {
	var pushed, read transport.Places
	if s.cfg.Wire != WireGRPC {
		bytes := func(r kintsugi.ChunkRange) int {
			lo, hi := s.cfg.Layout.Span(r)
			return 4 * (hi - lo)
		}
		for range s.cfg.Pace.Credit {
			for _, r := range x.pushes {
				x.places = append(x.places, pushed.Take(bytes(r)))
			}
		}
		for _, r := range x.frames {
			read.Take(bytes(r))
		}
		if s.cfg.Pull == PullDelta { // in as many pieces as there are chunks, at most
			read.Take(transport.PlaceBytes * int(x.chunks.Hi-x.chunks.Lo))
		}
	}
	var opts []transport.Option
	if s.cfg.Codec == nil {
		opts = append(opts, transport.Sharing(pushed.Bytes()))
	}
	if x.push, err = p.Push(s.ctx, opts...); err != nil {
		return err
	}
	if x.read, err = p.Read(s.ctx, transport.Sharing(read.Bytes())); err != nil {
		return err
	}
	memory, why := x.push.Memory()
	if _, also := x.read.Memory(); why == nil {
		why = also
	}
	if why != nil && s.cfg.Wire == WireShared {
		return fmt.Errorf("%w: wire shm to shard %d: %w; start the worker on the host of its servers and as their user, or use wire auto", kintsugi.ErrUsage, x.id, why)
	}
	if why != nil {
		s.cfg.Log.Debug("gradients and parameters travel in messages", "shard", x.id, "reason", why)
	}
	x.memory = memory
	return nil
}

// room returns which room of the memory a gradient may be put in: one whose last push is not open any more. There is one, for the
// worker waits for credit before it begins a gradient.
func (s *session) room(id kintsugi.PushID) int {
	for len(s.rooms) < s.cfg.Pace.Credit {
		s.rooms = append(s.rooms, kintsugi.PushID{})
	}
	for i, p := range s.rooms {
		if !s.news.isOpen(p) {
			s.rooms[i] = id
			return i
		}
	}
	panic(fmt.Sprintf("worker: %d pushes are open with a credit of %d", len(s.rooms), s.cfg.Pace.Credit))
}
