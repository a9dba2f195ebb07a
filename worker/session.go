package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// errDone means that the conductor has ended the run.
var errDone = errors.New("the run is over")

// session is a worker's set of streams in one view. Its methods are called by one goroutine.
type session struct {
	ctx    context.Context // its cause is the first error of any stream
	cancel context.CancelCauseFunc
	cfg    *Config
	view   kintsugi.View
	peers  peers
	work   *transport.WorkClient
	shards []*shardStreams
	sent   pending
	await  awaited
}

// shardStreams are the streams to the head of one shard that has chunks.
type shardStreams struct {
	push *transport.PushClient
	source
}

// connect opens every stream of a session.
func connect(ctx context.Context, cfg *Config, view kintsugi.View) (*session, error) {
	s := &session{cfg: cfg, view: view, peers: make(peers)}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
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
	s.cancel(nil)
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

// listen takes the conductor's messages until the stream ends. It never waits for the goroutine that
// computes: the releases of a fast run would pile up behind one slow gradient until the conductor gives
// the stream up.
func (s *session) listen() {
	for {
		m, err := s.work.Recv()
		if err != nil {
			s.cancel(fmt.Errorf("conductor: %w", err))
			return
		}
		switch m := m.(type) {
		case kintsugi.Released:
			s.await.settle(func(id kintsugi.PushID) bool { return slices.Contains(m.Counted, id) }, outcome{step: m.Step})
		case kintsugi.Refused:
			s.await.settle(func(id kintsugi.PushID) bool { return m.Push == id }, outcome{step: m.Step, refused: &m})
		case kintsugi.Done:
			s.cancel(errDone)
			return
		}
	}
}

// cause returns the error that ended the session, or err.
func (s *session) cause(err error) error {
	if first := context.Cause(s.ctx); first != nil {
		return first
	}
	return err
}

// outcome is what became of a push: released, or refused if the field says so. step is the newest
// version that the conductor knew of.
type outcome struct {
	step    kintsugi.Step
	refused *kintsugi.Refused
}

// awaited is the push whose ticket is out. The conductor's messages of any other one are of no use.
type awaited struct {
	mu     sync.Mutex
	id     kintsugi.PushID
	answer chan outcome // holds one; nil: none is awaited
}

// expect begins to wait for what becomes of id. It is called before the ticket is sent.
func (a *awaited) expect(id kintsugi.PushID) <-chan outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.id, a.answer = id, make(chan outcome, 1)
	return a.answer
}

// settle answers whoever waits for a push that concerns; only the first answer counts.
func (a *awaited) settle(concerns func(kintsugi.PushID) bool, o outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.answer != nil && concerns(a.id) {
		a.answer <- o
		a.answer = nil
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
			for status := error(nil); status == nil; { // past the answers that came before the end
				if _, status = x.push.Recv(); status != nil {
					err = status
				}
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
		s.cfg.Enter(Pushing)
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
	s.cfg.Enter(Pulling)
	from := make([]*source, len(s.shards))
	for i, x := range s.shards {
		from[i] = &x.source
	}
	v, err := read(from, params, atLeast)
	return v, s.cause(err)
}

// ticket sends the ticket of a push that every head has, waits for what becomes of it, and reads the
// version to go on with.
func (s *session) ticket(t kintsugi.Ticket, params []float32, prefetch bool) (kintsugi.Step, error) {
	answer := s.await.expect(t.Push)
	// After io.EOF the stream has ended, and listen learns why: that is what outcome returns.
	if err := s.work.Send(t); err != nil && !errors.Is(err, io.EOF) {
		return 0, s.cause(err)
	}
	s.cfg.Enter(Waiting)
	if !prefetch {
		return s.outcome(answer, params)
	}
	return s.prefetch(t.Push, answer, params)
}

// prefetch asks for the version after the one of a push while the push is still open.
func (s *session) prefetch(id kintsugi.PushID, out <-chan outcome, params []float32) (kintsugi.Step, error) {
	type answer struct {
		version kintsugi.Step
		err     error
	}
	read := make(chan answer, 1)
	go func() {
		v, err := s.read(params, id.Version+1)
		read <- answer{v, err}
	}()
	var o outcome
	select {
	case o = <-out:
		if o.refused != nil && o.refused.Step <= id.Version {
			s.cancel(refusal(*o.refused)) // there is no newer version to wait for
		}
	case <-s.ctx.Done(): // ends the read too
	}
	a := <-read // it writes params, so it must have ended before we return
	if s.ctx.Err() != nil {
		return 0, s.cause(s.ctx.Err())
	}
	if a.err != nil || a.version >= o.step {
		return a.version, a.err
	}
	return s.read(params, o.step)
}

// outcome waits until the conductor has released or refused a push, and reads the newest version that
// the conductor knew of then.
func (s *session) outcome(out <-chan outcome, params []float32) (kintsugi.Step, error) {
	select {
	case o := <-out:
		if o.refused != nil {
			return s.afterRefusal(params, *o.refused)
		}
		return s.read(params, o.step)
	case <-s.ctx.Done():
		return 0, s.cause(s.ctx.Err())
	}
}

// afterRefusal goes on with a newer version if there is one; otherwise the refusal ends the session.
func (s *session) afterRefusal(params []float32, r kintsugi.Refused) (kintsugi.Step, error) {
	if r.Step <= r.Push.Version {
		return 0, refusal(r)
	}
	s.cfg.Log.Debug("push refused", "push", r.Push.String(), "reason", r.Reason)
	return s.read(params, r.Step)
}

func refusal(r kintsugi.Refused) error {
	return fmt.Errorf("push %v was refused: %s", r.Push, r.Reason)
}
