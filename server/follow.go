package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// followAgain is the pause between two tries to reach the replica before. It is short because a
// chain waits meanwhile.
const followAgain = 10 * time.Millisecond

// follow keeps a connection to the replica before this one for as long as the view lasts.
func (r *replica) follow() {
	for r.ctx.Err() == nil {
		if err := r.followOnce(); err != nil && r.ctx.Err() == nil {
			r.log.Debug("following", "err", err)
		}
		pause(r.ctx, followAgain)
	}
}

func (r *replica) followOnce() error {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	before := r.chain[r.at-1]
	peer, err := transport.Dial(r.view.Servers[before].Address, transport.DialTLS(r.cfg.TLS, before), transport.DialWindow(r.cfg.Window), transport.DialSizes(r.cfg.sizes()))
	if err != nil {
		return err
	}
	defer peer.Close()
	var share []transport.Option
	if r.cfg.Share && r.cfg.CopyEvery == 0 {
		share = append(share, transport.Sharing(r.sums.shelfBytes()))
	}
	stream, err := peer.Follow(ctx, share...)
	if err != nil {
		return err
	}
	up := newOutbox[kintsugi.FollowerMessage]()
	err = r.do(func() {
		r.before = up
		up.put(r.core.Follow(r.cfg.ID, r.attempts.Add(1)))
	})
	if err != nil {
		return err
	}
	go func() {
		if up.drain(ctx, stream.Send) != nil {
			cancel()
		}
	}()
	for {
		f, err := stream.Recv()
		if err != nil {
			return err
		}
		m, err := f.Message()
		f.Release()
		if err != nil {
			return err
		}
		if err := r.obey(stream, m); err != nil {
			return err
		}
	}
}

// obey does what the replica before says, once the tensors that belong to the message have landed.
func (r *replica) obey(stream *transport.FollowClient, m kintsugi.ChainMessage) error {
	place := func() {}
	switch m := m.(type) {
	case kintsugi.Snapshot:
		x := r.versions.take(m.Step)
		if err := r.landVersion(stream, x); err != nil {
			r.versions.discard(x)
			return err
		}
		place = func() {
			r.fallBehind(m.Step, m.Taken)
			if r.cfg.CopyEvery > 0 {
				r.versions.copied(x)
				r.log.Debug("has a copy of a shard", "step", m.Step)
				if !r.core.Whole() {
					r.cfg.Enter(Joining)
				}
				return
			}
			r.versions.install(x)
			r.log.Info("took over a shard", "step", m.Step)
			r.cfg.Enter(Joining)
		}
	case kintsugi.Update:
		if rule := m.Commit.Optimizer.Rule; rule != r.cfg.Schedule.Rule {
			return fmt.Errorf("%w: an update of rule %d, this server is configured for rule %d; run the same configuration everywhere", kintsugi.ErrOtherModel, rule, r.cfg.Schedule.Rule)
		}
		u, err := r.landSum(stream)
		if err != nil {
			return err
		}
		u.step, u.decided = m.Commit.Step, m.Commit.Decided
		place = func() {
			r.sums.unpin(r.given)
			r.given = u
		}
	}
	_, joins := m.(kintsugi.Joined)
	obeyed, waits, was := false, true, false
	var err error
	for waits && err == nil {
		var moved chan struct{}
		err = r.do(func() {
			if waits, moved = r.core.Waits(), r.moved; waits {
				return
			}
			place()
			was = r.core.CaughtUp()
			if obeyed = r.core.Obey(m); obeyed && joins {
				r.move()
			}
		})
		if waits && err == nil {
			select {
			case <-moved:
			case <-r.ctx.Done():
				return r.ctx.Err()
			}
		}
	}
	if joins && obeyed && !was {
		r.joined()
	}
	if err == nil && !obeyed {
		err = fmt.Errorf("%w: shard %d cannot do what the replica before says (%T)", kintsugi.ErrStaleView, r.id, m)
	}
	return err
}

// move wakes everybody who waits for the replica to get further.
func (r *replica) move() {
	close(r.moved)
	r.moved = make(chan struct{})
}

func (r *replica) landVersion(stream *transport.FollowClient, x *version) error {
	for i, values := range append([][]float32{x.params}, x.arrays()...) {
		if err := r.landArray(stream, uint32(i), values); err != nil {
			return err
		}
	}
	return x.send()
}

// landSum lands the sum of a step. A tail leaves the sum where the replica before has put it. Any
// other replica copies it to where the replica after it can read it.
func (r *replica) landSum(stream *transport.FollowClient) (*sum, error) {
	var u *sum
	switch memory, _ := stream.Memory(); {
	case r.precedes():
		if err := r.do(func() { u = r.room() }); err != nil {
			return nil, err
		}
	case memory != nil:
		u = r.sums.lent(memory)
	default:
		u = r.sums.take()
	}
	for i, chunks := range r.sums.frames {
		err := r.landFrame(stream, transport.KindUpdate, chunks, 0, func(f *transport.Frame) (err error) {
			u.crcs[i] = f.CRC
			b := f.Shared()
			switch {
			case f.Codec == sparseCodec:
				return r.landFew(u, i, f)
			case u.parts[i] != nil:
				return f.CopyTo(kernels.Bytes(u.parts[i]))
			case b == nil:
				u.parts[i] = make([]float32, r.sums.size[i])
				return f.CopyTo(kernels.Bytes(u.parts[i]))
			case len(b) != 4*r.sums.size[i]:
				return fmt.Errorf("%w: part of a sum of %d bytes, want %d", kintsugi.ErrCorrupt, len(b), 4*r.sums.size[i])
			}
			u.parts[i] = kernels.Floats(b)
			return f.Check()
		})
		if err != nil {
			r.sums.unpin(u)
			return nil, err
		}
	}
	return u, nil
}

// landFew lands a part of a sum that names few values.
func (r *replica) landFew(u *sum, part int, f *transport.Frame) error {
	b := slices.Grow(u.few[part][:0], int(f.Bytes))[:f.Bytes]
	if err := f.CopyTo(b); err != nil {
		return err
	}
	return u.land(&r.sums.cut, part, b)
}

// landArray lands the frames of one array of a version.
func (r *replica) landArray(stream *transport.FollowClient, number uint32, values []float32) error {
	for _, chunks := range transport.Frames(r.cfg.Layout, r.chunks) {
		lo, hi := r.cfg.Layout.Span(chunks)
		err := r.landFrame(stream, transport.KindState, chunks, number, func(f *transport.Frame) error {
			return f.CopyTo(kernels.Bytes(values[lo-r.lo : hi-r.lo]))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// landFrame receives the frame of some chunks of an array and passes it to land.
func (r *replica) landFrame(stream *transport.FollowClient, kind transport.Kind, chunks kintsugi.ChunkRange, number uint32, land func(*transport.Frame) error) error {
	f, err := stream.Recv()
	if err != nil {
		return err
	}
	defer f.Release()
	coded := f.Codec != 0 && !(f.Codec == sparseCodec && kind == transport.KindUpdate)
	if f.Kind != kind || coded || f.Shard != r.id || f.Chunks != chunks || f.Push.Line != r.view.Line || f.Push.Sequence != number {
		return fmt.Errorf("%w: shard %d: frame of kind %d and codec %d with chunks [%d, %d) of array %d, want kind %d, [%d, %d) of array %d",
			kintsugi.ErrCorrupt, r.id, f.Kind, f.Codec, f.Chunks.Lo, f.Chunks.Hi, f.Push.Sequence, kind, chunks.Lo, chunks.Hi, number)
	}
	return land(f)
}
