package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// errDone means that the conductor has ended the run.
var errDone = errors.New("the run is over")

// session is a worker's set of streams in one view. Its methods are called by one goroutine.
type session struct {
	ctx    context.Context
	cancel context.CancelFunc
	cfg    *Config
	view   kintsugi.View
	peers  peers
	work   *transport.WorkClient
	inbox  chan kintsugi.ConductorMessage
	broken chan error // holds the first error of a receiver
	shards []*shardStreams
	sent   pending
}

// shardStreams are the streams to the head of one shard that has chunks.
type shardStreams struct {
	push *transport.PushClient
	source
}

// connect opens every stream of a session.
func connect(ctx context.Context, cfg *Config, view kintsugi.View) (*session, error) {
	s := &session{cfg: cfg, view: view, peers: make(peers), inbox: make(chan kintsugi.ConductorMessage, messageQueue), broken: make(chan error, 1)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if err := s.open(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) open() error {
	for _, src := range sources(s.cfg.Layout, s.view) {
		p, err := s.peers.to(s.view.Head(src.id))
		if err != nil {
			return err
		}
		x := &shardStreams{source: src}
		if x.push, err = p.Push(s.ctx); err != nil {
			return err
		}
		if x.read, err = p.Read(s.ctx); err != nil {
			return err
		}
		s.shards = append(s.shards, x)
	}
	p, err := s.peers.to(s.view.Servers[s.view.Conductor])
	if err != nil {
		return err
	}
	s.work, err = p.Work(s.ctx)
	return err
}

// close ends every stream.
func (s *session) close() {
	s.cancel()
	s.peers.close()
}

// join says hello and waits to be admitted. It returns the newest released version.
func (s *session) join() (kintsugi.Step, error) {
	hello := kintsugi.Hello{
		Protocol: kintsugi.ProtocolVersion, Model: s.cfg.Layout.Fingerprint(), Line: s.view.Line, Slot: s.cfg.Slot, Incarnation: s.cfg.Incarnation,
	}
	if err := s.work.Send(hello); err != nil {
		_, err = s.work.Recv() // the status says why
		return 0, fmt.Errorf("join as worker/%d: %w", s.cfg.Slot, err)
	}
	for {
		m, err := s.work.Recv()
		if err != nil {
			return 0, fmt.Errorf("join as worker/%d: %w", s.cfg.Slot, err)
		}
		switch m := m.(type) {
		case kintsugi.Admitted:
			go s.listen()
			return m.Step, nil
		case kintsugi.Done:
			return 0, errDone
		}
	}
}

// listen moves the conductor's messages to the inbox until the stream ends.
func (s *session) listen() {
	for {
		m, err := s.work.Recv()
		if err != nil {
			s.fail(fmt.Errorf("conductor: %w", err))
			return
		}
		select {
		case s.inbox <- m:
		case <-s.ctx.Done():
			return
		}
	}
}

// fail ends the session with its first error.
func (s *session) fail(err error) {
	select {
	case s.broken <- err:
	default:
	}
	s.cancel()
}

// cause returns the error that ended the session, or err.
func (s *session) cause(err error) error {
	select {
	case first := <-s.broken:
		return first
	default:
		return err
	}
}

func (s *session) views() []kintsugi.ViewNumber {
	return slices.Repeat([]kintsugi.ViewNumber{s.view.Number}, len(s.shards))
}

// push sends a gradient to every head and waits until each has received or refused it. A refusal by any
// of them is returned: the push will never be counted.
func (s *session) push(id kintsugi.PushID, grads []float32) (*kintsugi.Refused, error) {
	var refused atomic.Pointer[kintsugi.Refused]
	err := atOnce(s.shards, func(_ int, x *shardStreams) error {
		if err := s.send(x, id, grads); err != nil {
			if _, status := x.push.Recv(); status != nil {
				err = status
			}
			return fmt.Errorf("push %v to shard %d: %w", id, x.id, err)
		}
		for {
			m, err := x.push.Recv()
			if err != nil {
				return fmt.Errorf("push %v to shard %d: %w", id, x.id, err)
			}
			switch m := m.(type) {
			case kintsugi.Received:
				if m.Push == id {
					return nil
				}
			case kintsugi.Refused:
				if m.Push == id {
					refused.Store(&m)
					return nil
				}
			}
		}
	})
	return refused.Load(), s.cause(err)
}

// send sends one shard's part of a gradient.
func (s *session) send(x *shardStreams, id kintsugi.PushID, grads []float32) error {
	for _, r := range x.frames {
		lo, hi := s.cfg.Layout.Span(r)
		b := kernels.Bytes(grads[lo:hi])
		done := s.sent.add()
		err := x.push.Send(&transport.Frame{
			Header:  transport.Header{Kind: transport.KindPush, Codec: transport.CodecFP32, Shard: x.id, Push: id, Chunks: r, Bytes: uint32(len(b)), CRC: transport.Checksum(b)},
			Payload: b, Done: done,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// pending counts the frames that gRPC has not finished with.
type pending struct{ n atomic.Int64 }

func (p *pending) add() func() {
	p.n.Add(1)
	return func() { p.n.Add(-1) }
}

// idle reports whether gRPC is done with every frame that was sent: only then may the gradient's array be
// written again.
func (s *session) idle() bool { return s.sent.n.Load() == 0 }

// read lands one version of at least atLeast, the same from all shards, in params.
func (s *session) read(params []float32, atLeast kintsugi.Step) (kintsugi.Step, error) {
	from := make([]*source, len(s.shards))
	for i, x := range s.shards {
		from[i] = &x.source
	}
	v, err := read(from, params, atLeast)
	return v, s.cause(err)
}

// next waits for what becomes of a push whose ticket is sent, and reads the version to go on with.
func (s *session) next(params []float32, id kintsugi.PushID, prefetch bool) (kintsugi.Step, error) {
	if !prefetch {
		step, err := s.outcome(id)
		if err != nil {
			return 0, err
		}
		return s.read(params, step)
	}
	type answer struct {
		version kintsugi.Step
		err     error
	}
	read := make(chan answer, 1)
	go func() {
		v, err := s.read(params, id.Version+1)
		read <- answer{v, err}
	}()
	step, err := s.outcome(id)
	if err != nil {
		s.cancel() // ends the read, which must not write params after we return
		<-read
		return 0, err
	}
	a := <-read
	if a.err != nil || a.version >= step {
		return a.version, a.err
	}
	return s.read(params, step)
}

// outcome waits until the conductor has released or refused a push and returns the newest version it
// knows of.
func (s *session) outcome(id kintsugi.PushID) (kintsugi.Step, error) {
	for {
		select {
		case m := <-s.inbox:
			switch m := m.(type) {
			case kintsugi.Released:
				if slices.Contains(m.Counted, id) {
					return m.Step, nil
				}
			case kintsugi.Refused:
				if m.Push == id {
					return m.Step, nil
				}
			case kintsugi.Done:
				return 0, errDone
			}
		case <-s.ctx.Done():
			return 0, s.cause(s.ctx.Err())
		}
	}
}

// afterRefusal goes on with a newer version if there is one; otherwise the refusal ends the session.
func (s *session) afterRefusal(params []float32, r kintsugi.Refused) (kintsugi.Step, error) {
	if r.Step <= r.Push.Version {
		return 0, fmt.Errorf("push %v was refused: %s", r.Push, r.Reason)
	}
	s.cfg.Log.Debug("push refused", "push", r.Push.String(), "reason", r.Reason)
	return s.read(params, r.Step)
}
