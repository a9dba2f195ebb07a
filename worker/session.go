package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// errDone means that the conductor has ended the run.
var errDone = errors.New("the run is over")

// session is the set of streams of a worker in one view. Only one goroutine calls its methods.
type session struct {
	ctx    context.Context // its cause is the first error of any stream
	cancel context.CancelCauseFunc
	cfg    *Config
	view   kintsugi.View
	peers  *peers
	work   *transport.WorkClient
	shards []*shardStreams
	sent   pending
	news   *news
	rooms  rooms
	round  round
	out    *outgoing // the push that is being sent while its gradient is computed; nil: none

	arriving  *arrival       // parameters that have arrived in part; nil: none
	receiving sync.WaitGroup // of the goroutine that receives parameters and sets arriving
}

// round measures what the time of one iteration of the worker is spent on. A ticket ends the round.
type round struct {
	spans kintsugi.Spans
	since time.Time // when the current part began
}

// lap adds the time since the last lap to a part.
func (r *round) lap(part *time.Duration) {
	now := time.Now()
	*part += now.Sub(r.since)
	r.since = now
}

// end returns the measured parts of the finished round, and begins the next.
func (r *round) end() kintsugi.Spans {
	spans := r.spans
	r.spans, r.since = kintsugi.Spans{}, time.Now()
	return spans
}

// shardStreams are the streams to the head of one shard. The shard has chunks.
type shardStreams struct {
	head   *transport.Peer
	push   *transport.PushClient
	pushes []kintsugi.ChunkRange // the chunks of each frame
	memory *shm.Segment          // shared with the head, and holds the gradients; nil: gradients are sent in messages

	unshared struct{ push, read error } // why a stream shares no memory although that was asked for

	offsets []int // by frame: its offset in a room

	encoding, sending time.Duration // of the current push
	*source
}

// connect opens all streams of a session. It may use rooms of an earlier one, and the connections
// of peers, which stay open when the session ends.
func connect(ctx context.Context, cfg *Config, view kintsugi.View, before rooms, peers *peers) (*session, error) {
	s := &session{cfg: cfg, view: view, peers: peers, news: newNews()}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	if err := s.open(before); err != nil {
		s.close()
		return nil, err
	}
	if cfg.Pace.Continue { // a worker that waits for an answer would not notice that a server is gone
		for l, p := range s.peers.open {
			go func() {
				if p.Lost(s.ctx) {
					s.cancel(fmt.Errorf("the connection to server/%d is lost", l.Server))
				}
			}()
		}
	}
	return s, nil
}

func (s *session) open(before rooms) error {
	for _, src := range sources(s.cfg.Layout, s.view) {
		src.pull, src.device, src.holds = s.cfg.Pull, s.cfg.Device, make(map[*float32]kintsugi.Step)
		s.shards = append(s.shards, &shardStreams{source: &src, pushes: cut(s.cfg, src.chunks)})
	}
	servers := []kintsugi.Member{s.view.Servers[s.view.Conductor]}
	for _, x := range s.shards {
		servers = append(servers, s.view.Head(x.id))
	}
	s.peers.keep(servers)
	for _, x := range s.shards {
		if err := s.dial(&x.head, s.view.Head(x.id)); err != nil {
			return err
		}
	}
	var conductor *transport.Peer
	if err := s.dial(&conductor, s.view.Servers[s.view.Conductor]); err != nil {
		return err
	}
	if err := together(s, s.shards, func(x *shardStreams) error { return x.head.Ready(s.ctx) }); err != nil { // before memory is allocated for them
		return err
	}
	if s.rooms = newRooms(s.cfg, s.shards, before); s.rooms.memory != nil && s.rooms.values == 0 {
		defer s.rooms.memory.Close()
	}
	opens := []func() error{func() (err error) {
		s.work, err = conductor.Work(s.ctx)
		return err
	}}
	for _, x := range s.shards {
		opens = append(opens, func() error { return s.openPush(x) }, func() error { return s.openRead(x) })
	}
	if err := together(s, opens, func(open func() error) error { return open() }); err != nil {
		return err
	}
	for _, x := range s.shards {
		if err := s.checkShared(x); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(s.shards, func(x *shardStreams) bool { return x.memory != nil }) {
		s.rooms = rooms{} // no head shares it
	}
	return nil
}

// dial sets p to the connection to a server.
func (s *session) dial(p **transport.Peer, m kintsugi.Member) (err error) {
	*p, err = s.peers.to(m, s.near())
	return err
}

// together calls f for all elements at the same time, since each call waits for answers: one after
// the other, they would take a round trip over the network for each shard. The first error ends the
// session, so that no other call is waited for.
func together[T any](s *session, list []T, f func(x T) error) error {
	err := each(list, true, func(_ int, x T) error {
		err := f(x)
		if err != nil {
			s.cancel(err)
		}
		return err
	})
	if err != nil {
		return s.cause(err)
	}
	return nil
}

// near reports whether messages to servers on this host may go through pipes.
func (s *session) near() bool { return s.cfg.Wire != WireGRPC }

// close ends every stream.
func (s *session) close() { s.cancel(nil) }

// join says hello and waits until the conductor admits the worker. It returns the newest released
// version. kept and oldest are what the worker will offer after an outage (see worker.hello).
func (s *session) join(kept uint32, oldest kintsugi.Step) (kintsugi.Step, error) {
	hello := kintsugi.Hello{
		Kept: kept, Oldest: oldest,
		Protocol: kintsugi.ProtocolVersion, Model: s.cfg.Layout.Agreement(), Line: s.view.Line, View: s.view.Number, Slot: s.cfg.Slot, Incarnation: s.cfg.Incarnation,
	}
	if err := s.work.Send(hello); err != nil {
		_, err = s.work.Recv() // the status of the stream has the reason
		return 0, fmt.Errorf("join as worker/%d: %w", s.cfg.Slot, err)
	}
	for {
		m, err := s.work.Recv()
		if err != nil {
			return 0, fmt.Errorf("join as worker/%d: %w", s.cfg.Slot, err)
		}
		switch m := m.(type) {
		case kintsugi.Admitted:
			s.round.end()
			go s.listen()
			return m.Step, nil
		case kintsugi.Done:
			return 0, errDone
		}
	}
}

// cause returns the error that ended the session, or err if the session has not ended.
func (s *session) cause(err error) error {
	if first := context.Cause(s.ctx); first != nil {
		return first
	}
	return err
}

func (s *session) views() []kintsugi.ViewNumber {
	return slices.Repeat([]kintsugi.ViewNumber{s.view.Number}, len(s.shards))
}

// sendValues sends frame j of a gradient as float32. If the head shares memory, it sends only the
// place of the values in the room, and copies the values there unless they were computed there.
func (s *session) sendValues(x *shardStreams, id kintsugi.PushID, room, j int, grads []float32) error {
	start := time.Now()
	r := x.pushes[j]
	lo, hi := s.cfg.Layout.Span(r)
	b := kernels.Bytes(grads[lo:hi])
	h := transport.Header{Kind: transport.KindPush, Shard: x.id, Push: id, Chunks: r, Bytes: uint32(len(b))}
	if x.memory != nil {
		at := s.rooms.at(room, x.offsets[j], len(b))
		h.Place = s.rooms.place(room, x.offsets[j])
		if &at[0] == &b[0] {
			h.CRC = transport.Checksum(b)
		} else {
			h.CRC = kernels.CopyCRC32C(0, at, b)
		}
		b = nil
	} else {
		h.CRC = transport.Checksum(b)
	}
	x.encoding += time.Since(start)
	return s.send(x, h, b, &s.sent)
}

// send sends one frame.
func (s *session) send(x *shardStreams, h transport.Header, payload []byte, sent *pending) error {
	start := time.Now()
	if err := x.push.Send(&transport.Frame{Header: h, Payload: payload, Done: sent.add()}); err != nil {
		return x.unsent(h.Push, err)
	}
	x.sending += time.Since(start)
	s.cfg.Enter(Pushing)
	return nil
}

// pending counts the frames that gRPC still uses.
type pending struct{ n atomic.Int64 }

func (p *pending) add() func() {
	p.n.Add(1)
	return func() { p.n.Add(-1) }
}

// idle reports whether gRPC has finished with every frame that was sent. Only then may the
// gradient's array be overwritten.
func (s *session) idle() bool { return s.sent.n.Load() == 0 }

// sources returns the sources of parameters of all shards.
func (s *session) sources() []*source {
	from := make([]*source, len(s.shards))
	for i, x := range s.shards {
		from[i] = x.source
	}
	return from
}

// read reads one version of at least atLeast, the same from all shards, into params, and returns
// it.
func (s *session) read(params []float32, atLeast kintsugi.Step) (kintsugi.Step, error) {
	if err := s.arrived(); err != nil {
		return 0, err
	}
	return s.fetch(params, atLeast)
}

// fetch is like read, for a caller that has the read streams to itself and knows that no earlier
// answer is under way.
func (s *session) fetch(params []float32, atLeast kintsugi.Step) (kintsugi.Step, error) {
	s.cfg.Enter(Pulling)
	v, err := read(s.sources(), params, atLeast)
	return v, s.cause(err)
}

// ticket sends the ticket of a push that every head has. A ticket without views reports a gradient
// that was thrown away: the conductor counts those too.
func (s *session) ticket(t kintsugi.Ticket) error {
	// After io.EOF the stream has ended. listen receives the reason, and cause returns it.
	err := s.work.Send(t)
	if errors.Is(err, io.EOF) {
		<-s.ctx.Done()
	}
	if err != nil {
		return s.cause(err)
	}
	s.cfg.Enter(Waiting)
	return nil
}

// prefetch asks for the version after version while a push on it is still open. It waits for the
// fate of the push, and returns the version that params then hold. If the push was counted, that
// version includes it. With early, some of the parameters may still be under way when prefetch
// returns: see session.arriving.
//
// The answer may come before it is released. It is the next version then, and the conductor says
// what became of a push on this one when the next one is released, or later.
func (s *session) prefetch(version kintsugi.Step, params []float32, early bool) (kintsugi.Step, error) {
	if err := s.arrived(); err != nil {
		return 0, err
	}
	s.cfg.Enter(Pulling)
	from := s.sources()
	if err := ask(from, params, version+1, true); err != nil {
		return 0, s.cause(err)
	}
	receive := func() (kintsugi.Step, error) {
		if early {
			return s.first(from, params)
		}
		return land(from, params, version+1)
	}
	if large(from) { // what comes before the version is released need not wait on the way
		receive = s.meanwhile(receive)
	}
	l, err := s.await(1)
	s.round.lap(&s.round.spans.Wait)
	if err != nil {
		return 0, err
	}
	v, err := receive()
	s.round.lap(&s.round.spans.Pull)
	if err != nil || v >= l.newest {
		return v, s.cause(err)
	}
	return s.read(params, l.newest)
}

// meanwhile calls receive in the background and returns a function that waits for its results.
func (s *session) meanwhile(receive func() (kintsugi.Step, error)) (wait func() (kintsugi.Step, error)) {
	var v kintsugi.Step
	var err error
	s.receiving.Go(func() { v, err = receive() })
	return func() (kintsugi.Step, error) {
		s.receiving.Wait()
		return v, err
	}
}

// first reads the first frames of the answers. If they are all of one version, the other frames
// arrive in the background (session.arriving). Otherwise first reads one version as a whole.
func (s *session) first(from []*source, params []float32) (kintsugi.Step, error) {
	a, have, err := arrive(from, params)
	if err != nil {
		return 0, err
	}
	if a == nil {
		return read(from, params, slices.Max(have))
	}
	s.arriving = a
	return have[0], nil
}

// arrived waits until the parameters that are under way have all arrived.
func (s *session) arrived() error {
	a := s.arriving
	s.arriving = nil
	return s.cause(a.wait())
}

func refusal(r kintsugi.Refused) error {
	return fmt.Errorf("push %v was refused: %s", r.Push, r.Reason)
}
