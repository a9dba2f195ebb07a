package machine

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// streamed says how a link of package transport is used.
type streamed struct {
	checked   bool // checksums are computed and compared
	shared    bool // payloads are in shared memory
	copied    bool // payloads are copied to the shared memory; otherwise they were computed there
	unscanned bool // nobody checks that values are finite, as with plain sockets
	inPlace   bool // received payloads stay in gRPC's buffers; otherwise they are copied to their destination

	tls *wireCredentials // nil: plain TCP
}

// wireCredentials are the credentials of both ends.
type wireCredentials struct{ server, worker *mtls.Credentials }

// streams returns a link of streams between workers and servers, as in the shells, or nil if memory
// cannot be shared.
func (w *wire) streams(how streamed) (*link, error) {
	var close []func()
	l := &link{close: func() {
		for i := range close { // in reverse order: clients before servers
			close[len(close)-1-i]()
		}
	}}
	ends := wireCredentials{}
	if how.tls != nil {
		ends = *how.tls
	}
	senders := make([][]*transport.PushClient, w.cfg.Workers)
	for server := range w.cfg.Servers {
		lis, err := transport.Listen("127.0.0.1:0")
		if err != nil {
			l.close()
			return nil, err
		}
		s := transport.NewServer(lis, &wireServer{wire: w, how: how, server: server}, transport.ServeTLS(ends.server), transport.ServeWindow(w.cfg.Window))
		ended := make(chan struct{})
		go func() {
			defer func() { ended <- struct{}{} }()
			if err := s.Serve(); err != nil {
				w.fail(err)
			}
		}()
		close = append(close, func() { s.Stop(); <-ended })
		for worker := range w.cfg.Workers {
			p, err := transport.Dial(s.Address(), transport.DialTLS(ends.worker, kintsugi.ServerID(server)), transport.DialWindow(w.cfg.Window))
			if err != nil {
				l.close()
				return nil, err
			}
			close = append(close, func() { _ = p.Close() }) // this ends its streams
			var opts []transport.Option
			if how.shared {
				p.Near()
				opts = append(opts, transport.Sharing(w.part))
			}
			stream, err := p.Push(w.ctx, opts...)
			if err != nil {
				l.close()
				return nil, err
			}
			if memory, _ := stream.Memory(); how.shared && memory == nil {
				l.close()
				return nil, nil
			} else if how.shared {
				copy(transport.Put(memory, (&transport.Places{}).Take(w.part), w.part), w.of(w.gradients, worker, server))
			}
			senders[worker] = append(senders[worker], stream)
		}
	}
	l.push = func(worker, server int) error {
		return w.sendStream(senders[worker][server], how, worker, server)
	}
	return l, nil
}

// sendStream sends a part as a worker does, and waits for the answer.
func (w *wire) sendStream(stream *transport.PushClient, how streamed, worker, server int) error {
	part := w.of(w.gradients, worker, server)
	memory, _ := stream.Memory()
	var places transport.Places
	err := w.each(len(part), func(lo, hi int) error {
		h := transport.Header{
			Kind: transport.KindPush, Shard: kintsugi.ShardID(server), Push: kintsugi.PushID{Line: 1, Slot: kintsugi.Slot(worker)},
			Chunks: kintsugi.ChunkRange{Lo: kintsugi.ChunkID(lo / wireAlign), Hi: kintsugi.ChunkID((hi + wireAlign - 1) / wireAlign)}, Bytes: uint32(hi - lo),
		}
		f := &transport.Frame{Header: h}
		if how.shared {
			f.Place = places.Take(hi - lo)
			f.CRC = how.put(transport.Put(memory, f.Place, hi-lo), part[lo:hi])
		} else {
			f.Payload, f.CRC = part[lo:hi], transport.Checksum(part[lo:hi])
		}
		return stream.Send(f)
	})
	if err == nil || errors.Is(err, io.EOF) { // receive the answer, or the reason why the stream has ended
		_, err = stream.Recv()
	}
	return err
}

// put makes sure that a payload is in shared memory, and returns its checksum if checksums are
// used.
func (how streamed) put(dst, src []byte) uint32 {
	switch {
	case how.copied && how.checked:
		return kernels.CopyCRC32C(0, dst, src)
	case how.copied:
		copy(dst, src)
	case how.checked:
		return kernels.CRC32C(0, dst)
	}
	return 0
}

// wireServer receives parts as a server does.
type wireServer struct {
	transport.Handler // other methods are not called
	wire              *wire
	how               streamed
	server            int
}

// Push receives parts, each completely before it answers.
func (s *wireServer) Push(stream *transport.PushServer) error {
	var kept []*transport.Frame
	at := 0
	for {
		f, err := stream.Recv()
		if errors.Is(err, io.EOF) || errors.Is(stream.Context().Err(), context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		if at == 0 {
			for _, k := range kept {
				k.Release()
			}
			kept = kept[:0]
		}
		dst := s.wire.of(s.wire.landed, int(f.Push.Slot), s.server)[at:][:f.Bytes]
		if err := s.land(f, dst); err != nil {
			return err
		}
		if s.how.inPlace {
			kept = append(kept, f)
		} else {
			f.Release()
		}
		if at += len(dst); at == s.wire.part {
			at = 0
			if err := stream.Send(kintsugi.Received{Push: f.Push, Shard: f.Shard}); err != nil {
				return err
			}
		}
	}
}

// land checks a payload, and copies it to dst if it does not stay in place.
func (s *wireServer) land(f *transport.Frame, dst []byte) error {
	switch {
	case s.how.shared:
		dst = f.Shared()
		if s.how.checked {
			if err := f.Check(); err != nil {
				return err
			}
		}
	case s.how.inPlace: // values straddle gRPC's buffers, so no kernel could scan them in place
		return f.Check()
	default:
		if err := f.CopyTo(dst); err != nil {
			return err
		}
	}
	if s.how.unscanned {
		return nil
	}
	bad, err := kernels.Best().Finite(kernels.Floats(dst))
	if err == nil && bad >= 0 {
		err = fmt.Errorf("%w: value %d of a frame", kintsugi.ErrNotFinite, bad)
	}
	return err
}
