package worker

import (
	"errors"
	"fmt"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
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

// rooms are memory for the gradients of a session, which the heads on this host have too. A room
// holds one gradient for all of them: it is the heads' until the worker hears what became of its
// push, so there are as many as may be open at once. Where gradients travel as float32 a room is an
// array like any other, and they are computed in it.
type rooms struct {
	memory *transport.Memory // nil: there is none
	why    error             // there is none although there should be
	bytes  int               // of a room
	values int               // of the array that a room is; 0: it holds encoded payloads
	last   []kintsugi.PushID // by room: the push that was put there last
}

const roomAlign = 4096 // a page

// newRooms makes the rooms of a session, and says where in a room the payloads of its shards lie.
func newRooms(cfg *Config, shards []*shardStreams) (r rooms) {
	if cfg.Wire == WireGRPC {
		return r
	}
	var places transport.Places
	for _, x := range shards {
		for _, frame := range x.pushes {
			lo, _ := cfg.Layout.Span(frame)
			if at := 4 * lo; cfg.Codec == nil {
				x.offsets = append(x.offsets, at)
				continue
			}
			x.offsets = append(x.offsets, places.Bytes())
			places.Take(mostBytes(cfg, frame))
		}
	}
	n := places.Bytes()
	if cfg.Codec == nil {
		n, r.values = 4*cfg.Layout.Values, cfg.Layout.Values
	}
	r.bytes = (n + roomAlign - 1) / roomAlign * roomAlign
	count := cfg.Pace.Credit
	if cfg.Pace.Continue && cfg.Codec == nil {
		count++ // for what an outage has left, which was computed elsewhere, while another gradient is ready in its room
	}
	if r.memory, r.why = transport.NewMemory(count*r.bytes, shm.Writable); r.why != nil {
		r.memory = nil
		return r
	}
	r.last = make([]kintsugi.PushID, count)
	return r
}

// mostBytes bounds the payload of a frame of encoded chunks.
func mostBytes(cfg *Config, frame kintsugi.ChunkRange) (n int) {
	for _, c := range cfg.Layout.Chunks[frame.Lo:frame.Hi] {
		n += mostOf(cfg, c)
	}
	return n
}

// at returns n bytes of a room.
func (r *rooms) at(room, offset, n int) []byte {
	return transport.Put(r.memory.Segment(), r.place(room, offset), n)
}

// place is where the bytes of at lie, for a frame's header.
func (r *rooms) place(room, offset int) uint32 { return transport.PlaceAt(room*r.bytes + offset) }

// array returns the array that a room is.
func (r *rooms) array(room int) []float32 { return kernels.Floats(r.at(room, 0, 4*r.values)) }

// holds reports whether an array is a room.
func (r *rooms) holds(grads []float32) (room int, ok bool) {
	if r.values == 0 || len(grads) != r.values {
		return 0, false
	}
	for i := range r.last {
		if &r.array(i)[0] == &grads[0] {
			return i, true
		}
	}
	return 0, false
}

// free returns a room whose last push is not open any more, other than one.
func (s *session) free(other int) (room int) {
	for i, p := range s.rooms.last {
		if i != other && !s.news.isOpen(p) {
			return i
		}
	}
	panic(fmt.Sprintf("worker: %d pushes are open with a credit of %d", len(s.rooms.last), s.cfg.Pace.Credit))
}

// room returns the room for a push of a gradient: the one that it was computed in, or one to put it
// in. Without memory it means nothing.
func (s *session) room(id kintsugi.PushID, grads []float32, mine []float32) int {
	if len(s.rooms.last) == 0 {
		return 0
	}
	room, there := s.rooms.holds(grads)
	if !there {
		other, ok := s.rooms.holds(mine)
		if !ok {
			other = -1
		}
		room = s.free(other)
	}
	s.rooms.last[room] = id
	return room
}

// notShared says that memory which must be shared could not be. A server whose connection breaks at
// this moment takes what it lends along, so it is no wrong setting before it has been tried again.
type notShared struct{ error }

// Unwrap returns the error.
func (n notShared) Unwrap() error { return n.error }

// sharingTries is how many sessions in a row must fail to share memory before that is believed to be so.
const sharingTries = 3

// believe returns the error that ended a session, as an ErrUsage if it is that memory cannot be
// shared, once more and again.
func (w *worker) believe(err error) error {
	if w.worked {
		w.unshared = 0
	}
	if _, refused := errors.AsType[notShared](err); !refused {
		return err
	}
	if w.unshared++; w.unshared < sharingTries {
		return err
	}
	return fmt.Errorf("%w: %w", kintsugi.ErrUsage, err)
}

// openData opens the streams to the head of a shard.
func (s *session) openData(p *transport.Peer, x *shardStreams) (err error) {
	var opts []transport.Option
	why := s.rooms.why
	if s.rooms.memory != nil {
		opts = append(opts, transport.Offering(s.rooms.memory))
	}
	if x.push, err = p.Push(s.ctx, opts...); err != nil {
		return err
	}
	memory, declined := x.push.Memory()
	if why == nil {
		why = declined
	}
	if s.cfg.Wire != WireGRPC {
		if x.read, err = p.Read(s.ctx, transport.Borrowing()); err != nil {
			return err
		}
		if _, also := x.read.Memory(); why == nil {
			why = also
		}
	}
	if x.read == nil || !x.read.Borrows() {
		if x.read != nil {
			_ = x.read.CloseSend() // its other side would lend what this one cannot read
		}
		if x.read, err = p.Read(s.ctx); err != nil {
			return err
		}
	}
	if why != nil && s.cfg.Wire == WireShared {
		return notShared{fmt.Errorf("wire shm to shard %d: %w; start the worker on the host of its servers and as their user, or use wire auto", x.id, why)}
	}
	if why != nil {
		s.cfg.Log.Debug("gradients and parameters travel in messages", "shard", x.id, "reason", why)
	}
	x.memory = memory
	return nil
}

// shares reports whether every head has the memory of the session, so that gradients may be computed in it.
func (s *session) shares() bool {
	for _, x := range s.shards {
		if x.memory == nil {
			return false
		}
	}
	return s.rooms.values > 0 && len(s.rooms.last) > 0
}

// renew takes an array for the next gradient: a room, or the worker's own one, or another one if
// gRPC may still be sending from that. Between turns that is rare: whoever has received the bytes
// was sent them.
func (w *worker) renew(s *session) {
	if s.shares() {
		w.memory = s.rooms.memory.Segment()
		w.grads = s.rooms.array(s.free(-1))
		return
	}
	w.leave(s)
}

// leave takes the worker's own array: a head may go on reading what lies in the memory of a session that is over.
func (w *worker) leave(s *session) {
	if w.own == nil || !s.idle() {
		w.own = make([]float32, w.cfg.Layout.Values)
	}
	w.grads, w.memory = w.own, nil
}
