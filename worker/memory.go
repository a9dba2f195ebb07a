package worker

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Wire is the way in which gradients and parameters are transferred between worker and server.
type Wire uint8

// The ways of transfer.
const (
	WireAuto   Wire = iota // WireShared if a server is on this host and shares memory with the worker, otherwise WireGRPC
	WireGRPC               // in gRPC messages
	WireShared             // in memory that the worker shares with each server; if that is not possible, the worker ends with an error
)

// ParseWire parses the name that Wire.String returns. Other names are an ErrUsage.
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

// rooms is memory for the gradients of a session that the heads on this host share. One room holds
// one gradient, for all heads. The heads may read a room until the worker knows the fate of its
// push, so there are as many rooms as there may be open pushes. If gradients are sent as float32,
// they are computed in the room itself.
type rooms struct {
	memory *transport.Memory // nil: there are no rooms
	why    error             // why there are no rooms although there should be
	bytes  int               // size of a room
	values int               // size of a room, as an array of float32; 0: rooms hold encoded payloads
	last   []kintsugi.PushID // by room: the last push that was put there
}

const roomAlign = 4096 // a page, in bytes

// used is rooms that a session has used. A session in a later view may have their memory: to take a
// new one and to touch its pages takes longer than to fill it.
//
// Nobody reads it any more by then. A worker writes to its rooms once it is admitted: by a conductor
// of its view or a later one, to whom every head has answered in that view. So each head has left
// the view before, where it threw away all pushes and waited for the threads that read them. A
// server that is not in the view may still read, but what it makes of that is refused. In the same
// view, pushes stay where they are, and may yet be counted.
//
// Rooms with encoded payloads are not used again: messages that may have to be repeated lie there.
type used struct {
	rooms rooms
	view  kintsugi.ViewNumber
}

// before returns the rooms that a session in a view may use again, or none.
func (u *used) before(view kintsugi.ViewNumber) (r rooms) {
	if u.rooms.values > 0 && view > u.view {
		r = u.rooms
	}
	return r
}

// use notes that a session uses rooms from now on.
func (u *used) use(r rooms, view kintsugi.ViewNumber) {
	if u.rooms.memory != r.memory {
		u.close()
	}
	*u = used{r, view}
}

// close ends the offers of the memory, of which no session will use more than it has.
func (u *used) close() {
	if u.rooms.memory != nil {
		u.rooms.memory.Close()
	}
}

// newRooms allocates the rooms of a session, unless those before will do, and sets the offsets in a
// room of the payloads of each shard.
func newRooms(cfg *Config, shards []*shardStreams, before rooms) (r rooms) {
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
		count++ // for a gradient kept in an outage, which was computed elsewhere, while the next gradient is ready in its room
	}
	r.last = make([]kintsugi.PushID, count)
	if r.values > 0 && before.memory != nil && before.bytes == r.bytes && len(before.last) == count {
		r.memory = before.memory
		return r
	}
	if r.memory, r.why = transport.NewMemory(count*r.bytes, shm.Writable); r.why != nil {
		r.memory, r.last = nil, nil
	}
	return r
}

// mostBytes returns an upper bound of the payload of a frame of encoded chunks.
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

// place returns the place of the bytes of at, as a frame's header has it.
func (r *rooms) place(room, offset int) uint32 { return transport.PlaceAt(room*r.bytes + offset) }

// array returns a room as an array of float32.
func (r *rooms) array(room int) []float32 { return kernels.Floats(r.at(room, 0, 4*r.values)) }

// holds reports whether grads is a room, and which.
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

// free returns a room whose last push is no longer open, but not the room other.
func (s *session) free(other int) (room int) {
	for i, p := range s.rooms.last {
		if i != other && !s.news.isOpen(p) {
			return i
		}
	}
	panic(fmt.Sprintf("worker: %d pushes are open with a credit of %d", len(s.rooms.last), s.cfg.Pace.Credit))
}

// room returns the room for a gradient's push: the one it was computed in, or another one to copy
// it to. mine is the array in use by the worker, whose room must not be taken. Without rooms the
// result has no meaning.
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

// notShared says that memory could not be shared although it must be. A server whose connection
// breaks at that moment fails in the same way, so this counts as a wrong setting only after several
// tries.
type notShared struct{ error }

// Unwrap returns the error.
func (n notShared) Unwrap() error { return n.error }

// sharingTries is the number of consecutive sessions that must fail to share memory before this
// counts as a wrong setting.
const sharingTries = 3

// believe returns the error that ended a session. If memory could not be shared in several sessions
// in a row, that is an ErrUsage.
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

// openPush opens the stream for gradients to the head of a shard.
func (s *session) openPush(x *shardStreams) (err error) {
	var opts []transport.Option
	if s.rooms.memory != nil {
		opts = append(opts, transport.Offering(s.rooms.memory))
	}
	if x.push, err = x.head.Push(s.ctx, opts...); err == nil {
		x.memory, x.unshared.push = x.push.Memory()
	}
	return err
}

// openRead opens the stream for parameters from the head of a shard.
func (s *session) openRead(x *shardStreams) (err error) {
	if s.cfg.Wire != WireGRPC {
		if x.read, err = x.head.Read(s.ctx, transport.Borrowing()); err != nil {
			return err
		}
		if _, x.unshared.read = x.read.Memory(); x.read.Borrows() {
			return nil
		}
		_ = x.read.CloseSend() // otherwise the server would lend memory that the worker cannot read
	}
	x.read, err = x.head.Read(s.ctx)
	return err
}

// checkShared returns an error if memory must be shared with the head of a shard and is not.
func (s *session) checkShared(x *shardStreams) error {
	reasons := []error{s.rooms.why, x.unshared.push, x.unshared.read}
	i := slices.IndexFunc(reasons, func(why error) bool { return why != nil })
	switch {
	case i < 0:
		return nil
	case s.cfg.Wire == WireShared:
		return notShared{fmt.Errorf("wire shm to shard %d: %w; start the worker on the host of its servers and as their user, or use wire auto", x.id, reasons[i])}
	}
	s.cfg.Log.Debug("gradients and parameters travel in messages", "shard", x.id, "reason", reasons[i])
	return nil
}

// shares reports whether every head shares the session's rooms, so that gradients may be computed
// in them.
func (s *session) shares() bool {
	for _, x := range s.shards {
		if x.memory == nil {
			return false
		}
	}
	return s.rooms.values > 0 && len(s.rooms.last) > 0
}

// renew chooses the array for the next gradient: a room, or the worker's own array, or a new one if
// gRPC may still be sending from that. The last case is rare between turns, as a head that has
// answered has received all bytes.
func (w *worker) renew(s *session) {
	if s.shares() {
		w.memory = s.rooms.memory.Segment()
		w.grads = s.rooms.array(s.free(-1))
		return
	}
	w.leave(s)
}

// leave switches to the worker's own array: a head may go on reading the rooms of a session that is
// over.
func (w *worker) leave(s *session) {
	if !w.lent && (w.own == nil || !s.idle()) {
		w.own = make([]float32, w.cfg.Layout.Values)
	}
	w.grads, w.memory = w.own, nil
}
