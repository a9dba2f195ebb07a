package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Parcels that wait for a replica that is catching up are bounded, since every other one holds the sum
// of a step: there are maxBehind at most, and fewer if they would hold more than behindBytes, but
// always room for minBehind. A replica that falls further behind begins again with a snapshot, and is
// waited for then.
const (
	maxBehind   = 64
	minBehind   = 8
	behindBytes = 1 << 30
)

// mostBehind returns how many parcels with the steps of a shard of n values may wait.
func mostBehind(n int) int32 {
	return int32(min(maxBehind, max(minBehind, 2*behindBytes/(4*max(n, 1)))))
}

// parcel is a message to the replica after this one, with the tensors that belong to it.
type parcel struct {
	message kintsugi.ChainMessage
	sum     *sum        // of an Update, pinned; some of its parts may not be made yet
	there   bool        // the sum lies where the replica after can read it
	version *version    // of a Snapshot, pinned
	state   [][]float32 // a copy, if the state of version is in a bank; otherwise it is the version's own
}

// after is the connection to the replica after this one.
type after struct {
	out     *outbox[parcel]
	waiting atomic.Int32 // parcels that are not sent yet
	shelf   *shelf       // memory that both replicas share; nil: sums are sent

	ahead *sum           // the sum that is sent while its step is made; nil: none
	under kintsugi.Fence // the fence of the commit that it was sent with
}

// Follow serves the replica after one of ours in its chain. It sends that replica what it lacks and
// then the updates, and takes its answers.
func (s *Server) Follow(stream *transport.FollowServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	f, ok := first.(kintsugi.Follow)
	if !ok {
		return fmt.Errorf("%w: a replica must say where it stands first, not %T", kintsugi.ErrOtherModel, first)
	}
	t, err := s.servingView(stream.Context(), f.View)
	if err != nil {
		return err
	}
	r, err := t.before(f)
	if err != nil {
		return err
	}
	memory, _ := stream.Memory()
	a := &after{out: newOutbox[parcel](), shelf: r.sums.newShelf(memory)}
	if err := r.connect(stream.Context(), a, f); err != nil {
		return err
	}
	defer r.post(func() {
		if r.after == a {
			r.after = nil
		}
	})
	send := func(p parcel) error {
		a.waiting.Add(-1)
		return r.send(stream, p)
	}
	return converse(stream.Context(), t, a.out, send, func() error {
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			answer, ok := m.(kintsugi.ReplicaMessage)
			if !ok {
				return fmt.Errorf("%w: shard %d: %T from the replica after this one", kintsugi.ErrOtherModel, r.id, m)
			}
			if !r.post(func() { r.heard(a, answer) }) {
				return errStopped
			}
		}
	})
}

// servingView returns the tenure of a view. It waits until this server has entered that view, and
// returns ErrStaleView if it has entered a later one.
func (s *Server) servingView(ctx context.Context, number kintsugi.ViewNumber) (t *tenure, err error) {
	err = s.until(ctx, func() bool { t = s.tenure; return t != nil && t.view.Number >= number })
	if err == nil && t.view.Number > number {
		err = fmt.Errorf("%w: view %d is over, the view is %d", kintsugi.ErrStaleView, number, t.view.Number)
	}
	return t, err
}

// before returns the replica that f follows in the view of t.
func (t *tenure) before(f kintsugi.Follow) (*replica, error) {
	r := t.replicas[f.Shard]
	if r == nil || !slices.Equal(r.chain[r.at+1:min(r.at+2, len(r.chain))], []kintsugi.ServerID{f.Server}) {
		return nil, fmt.Errorf("%w: server/%d does not follow this server for shard %d in view %d", kintsugi.ErrStaleView, f.Server, f.Shard, t.view.Number)
	}
	return r, nil
}

// connect connects the replica after this one as soon as this one can be followed, and waits until
// then. If it refused the connection instead, the other replica would try again at once, each time
// with memory for sums; and the beginning of a line may take as long as the slowest server takes to
// load its shard.
func (r *replica) connect(ctx context.Context, a *after, f kintsugi.Follow) error {
	for {
		var moved chan struct{}
		var refused error
		err := r.do(func() {
			if !r.core.Followable() {
				moved = r.moved
				return
			}
			refused = r.followed(a, f)
		})
		if err = errors.Join(err, refused); err != nil || moved == nil {
			return err
		}
		select {
		case <-moved:
		case <-r.ctx.Done():
			return errStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// followed connects the replica after this one, in place of an earlier connection of it.
func (r *replica) followed(a *after, f kintsugi.Follow) error {
	plan, err := r.core.Followed(f)
	if err != nil {
		return err
	}
	if r.after != nil {
		r.after.out.end(fmt.Errorf("%w: server/%d has connected again", kintsugi.ErrStaleView, f.Server))
	}
	r.after = a
	r.log.Debug("followed", "by", f.Server, "whole", f.Whole, "at", f.Released)
	for _, m := range plan {
		if u, ok := m.(kintsugi.Update); ok && !r.hasSum(u.Commit) {
			continue // it catches up once that step is released, or decided anew
		}
		r.hand(m)
	}
	return nil
}

// sendsSums reports whether the sums of steps may have to be sent: there are other replicas in the
// chain or, with several replicas per shard, they may come into it.
func (r *replica) sendsSums() bool { return r.view.Replicas > 1 || len(r.chain) > 1 }

// hasSum reports whether the sum of the step that was applied last is here. It is not if the step
// was made before any replica was to follow: a shard with one replica makes no sums.
func (r *replica) hasSum(c kintsugi.Commit) bool {
	return r.sum != nil && r.sum.step == c.Step && r.sum.decided == c.Decided
}

// heard takes an answer, unless it comes from an earlier connection.
func (r *replica) heard(a *after, m kintsugi.ReplicaMessage) {
	if r.after != a {
		return
	}
	if x, ok := m.(kintsugi.Stable); ok && a.shelf != nil {
		a.shelf.applied(x.Step, x.Decided)
	}
	r.core.Heard(m)
}

// room returns a sum to write, pinned once: in memory that the replica after this one can read, if
// there is room there.
func (r *replica) room() *sum {
	if a := r.after; a != nil && a.shelf != nil {
		if s := a.shelf.take(&r.sums.cut); s != nil {
			return s
		}
	}
	return r.sums.take()
}

// ahead sends the sum of a step that is about to be made or applied here; each part goes as soon as
// it is made. If there is a new conductor meanwhile, the replica after would refuse the sum; it is
// then sent when the commit has been sent again.
func (r *replica) ahead(c kintsugi.Commit, s *sum) {
	if a := r.after; a != nil && c.Fence == r.core.Promised() {
		a.ahead, a.under = s, c.Fence
		r.put(a, parcel{message: kintsugi.Update{Commit: c}}, s)
	}
}

// put queues a parcel with the sum that belongs to it; s may be nil.
func (r *replica) put(a *after, p parcel, s *sum) {
	if s != nil {
		s.pins.Add(1)
		p.sum, p.there = s, a.shelf != nil && a.shelf.send(s)
	}
	if a.waiting.Add(1) > mostBehind(r.sums.total) {
		a.out.end(errSlowPeer)
		r.core.Outpaced()
	}
	a.out.put(p)
}

// hand passes a message down the chain.
func (r *replica) hand(m kintsugi.ChainMessage) {
	a := r.after
	if a == nil {
		return
	}
	p, s := parcel{message: m}, (*sum)(nil)
	switch m := m.(type) {
	case kintsugi.Update:
		s = r.sum
		if !r.hasSum(m.Commit) {
			r.fail(fmt.Errorf("shard %d: the sum of step %d, decided under fence %d, is not here", r.id, m.Commit.Step, m.Commit.Decided))
			return
		}
		if a.ahead == s { // the replica after has the sum, or will have it
			if a.ahead = nil; a.under == m.Commit.Fence {
				return
			}
			p, s = parcel{message: m.Commit}, nil // the same decision under a later fence
		}
	case kintsugi.Snapshot:
		if p.version = r.versions.pinAt(m.Step); p.version == nil {
			r.fail(fmt.Errorf("shard %d: version %d, which the next replica needs, is not here", r.id, m.Step))
			return
		}
		p.state = p.version.copyOfBank()
		m.Taken = r.shard(p.version).Taken
		p.message = m
	}
	r.put(a, p, s)
}

// send sends a parcel.
func (r *replica) send(stream *transport.FollowServer, p parcel) error {
	f, err := transport.Record(p.message)
	if err != nil {
		return err
	}
	if err := stream.Send(f); err != nil {
		return err
	}
	switch {
	case p.sum != nil:
		defer r.sums.unpin(p.sum)
		return r.sendSum(stream, p)
	case p.version != nil:
		defer r.versions.unpin(p.version)
		return r.sendVersion(stream, p.version, p.state)
	}
	return nil
}

// sendSum sends the parts of a sum as they are made.
func (r *replica) sendSum(stream *transport.FollowServer, p parcel) error {
	s := p.sum
	for i, chunks := range r.sums.frames {
		if err := s.await(stream.Context(), i); err != nil {
			return err
		}
		f := &transport.Frame{Header: transport.Header{
			Kind: transport.KindUpdate, Shard: r.id, Chunks: chunks, CRC: s.crcs[i],
			Push: kintsugi.PushID{Line: r.view.Line, Version: s.step},
		}}
		b := s.few[i]
		if len(b) > 0 {
			f.Codec = sparseCodec
		} else {
			b = kernels.Bytes(s.parts[i])
		}
		if f.Bytes = uint32(len(b)); p.there && f.Codec == 0 {
			f.Place = s.places[i]
		} else {
			s.pins.Add(1)
			f.Payload, f.Done = b, func() { r.sums.unpin(s) }
		}
		if err := stream.Send(f); err != nil {
			return err
		}
	}
	return nil
}

// sendVersion sends the arrays of a version, the parameters first. If state is nil, it is the
// version's own.
func (r *replica) sendVersion(stream *transport.FollowServer, x *version, state [][]float32) error {
	if state == nil {
		if err := x.fetchState(); err != nil {
			return err
		}
		state = x.arrays()
	}
	for i, values := range append([][]float32{x.params}, state...) {
		if err := r.sendArray(stream, x, uint32(i), values); err != nil {
			return err
		}
	}
	return nil
}

// sendArray sends an array of a version in frames, each of which pins the version until it is
// written.
func (r *replica) sendArray(stream *transport.FollowServer, x *version, number uint32, values []float32) error {
	for _, chunks := range transport.Frames(r.cfg.Layout, r.chunks) {
		lo, hi := r.cfg.Layout.Span(chunks)
		b := kernels.Bytes(values[lo-r.lo : hi-r.lo])
		r.versions.pinAgain(x)
		f := &transport.Frame{Payload: b, Done: func() { r.versions.unpin(x) }, Header: transport.Header{
			Kind: transport.KindState, Shard: r.id, Chunks: chunks, Bytes: uint32(len(b)), CRC: transport.Checksum(b),
			Push: kintsugi.PushID{Line: r.view.Line, Version: x.step, Sequence: number},
		}}
		if err := stream.Send(f); err != nil {
			return err
		}
	}
	return nil
}
