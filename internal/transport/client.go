package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	pb "github.com/kintsugi-ml/kintsugi/proto/kintsugi/v1"
)

// Peer is a connection to another process. It connects when the first stream is opened and reconnects
// by itself. It is safe for concurrent use; streams are not.
type Peer struct {
	conn *grpc.ClientConn
	addr string
	near bool // offers pipes

	codec codec

	tls *mtls.Client // nil: plain TCP
}

// idleAgain is when a connection that somebody waits for is looked at again.
const idleAgain = 10 * time.Millisecond

// A DialOption is for a peer.
type DialOption func(*dialling)

type dialling struct {
	tls   *mtls.Credentials
	id    kintsugi.ServerID
	sizes Sizes

	more []grpc.DialOption
}

// DialTLS makes the peer prove that it is a server, that one where its certificate says so, and
// this process prove who it is. nil: plain TCP.
func DialTLS(c *mtls.Credentials, id kintsugi.ServerID) DialOption {
	return func(o *dialling) { o.tls, o.id = c, id }
}

// DialSizes lets the messages between servers be as long as those of a run of such sizes get.
func DialSizes(s Sizes) DialOption {
	return func(o *dialling) { o.sizes = s }
}

// Dial returns a peer for addr (host:port). It does not wait for a connection. Default: plain TCP.
func Dial(addr string, opts ...DialOption) (*Peer, error) {
	var o dialling
	for _, set := range opts {
		set(&o)
	}
	c := codec{sizes: o.sizes}
	if o.tls == nil {
		return dial(addr, c, o.more...)
	}
	tls := o.tls.Client(mtls.Whom{Role: mtls.Server, Index: int(o.id)})
	p, err := dial(addr, c, append(o.more, grpc.WithTransportCredentials(tls))...)
	if err == nil {
		p.tls = tls
	}
	return p, err
}

func dial(addr string, c codec, more ...grpc.DialOption) (*Peer, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(c), grpc.MaxCallRecvMsgSize(smallBytes)), // streams say what else they let in
		grpc.WithReadBufferSize(readBufferBytes),
		grpc.WithWriteBufferSize(writeBufferBytes),
		experimental.WithBufferPool(&received),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: clientPingEvery, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithNoProxy(), // processes of a run reach one another directly, whatever the environment says of the web
		// A server that was killed is back in well under a second: do not sleep longer than that.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 2 * time.Second,
		}),
	}, more...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return &Peer{conn: conn, addr: addr, codec: c}, nil
}

// Close ends every stream of the peer.
func (p *Peer) Close() error { return p.conn.Close() }

// Lost waits until a connection that was there is gone, which streams notice only when they are
// used. It reports false if ctx ends first.
func (p *Peer) Lost(ctx context.Context) bool {
	there := false
	for {
		state := p.conn.GetState()
		if there && state != connectivity.Ready {
			return true
		}
		there = state == connectivity.Ready
		if !p.conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

// Refused reports whether the last try to connect has failed because the other side, which is
// there, does not take this process for who it says it is.
func (p *Peer) Refused() bool { return p.tls != nil && errors.Is(p.tls.Failure(), mtls.ErrRefused) }

// Near makes the messages of all streams that are opened from here on, but for those of Follow,
// travel through pipes where the other side is on this host, and this process's user's.
func (p *Peer) Near() { p.near = true }

// open opens a stream on which messages like one arrive; it ends with ctx.
func open[Out, In any](ctx context.Context, p *Peer, method string, like any, encode func(Out) any, recv func(func(any) error) (In, error), opts ...Option) (*Stream[Out, In], error) {
	var o options
	for _, set := range opts {
		set(&o)
	}
	var f offers
	defer f.close()
	if o.shared > 0 {
		if err := p.Ready(ctx); err != nil {
			return nil, fmt.Errorf("open %s on %s: %w", method, p.addr, err)
		}
	}
	ctx = f.make(ctx, p.near, o)
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	raw, err := p.conn.NewStream(ctx, desc, "/kintsugi.v1."+method, grpc.MaxCallRecvMsgSize(p.codec.most(like)))
	if err != nil {
		f.refuse()
		return nil, fmt.Errorf("open %s on %s: %w", method, p.addr, p.plain(fromWire(err)))
	}
	s := &Stream[Out, In]{raw: raw, encode: encode, recv: recv, close: raw.CloseSend}
	if err := f.answer(raw); err != nil {
		f.refuse()
		return nil, fmt.Errorf("open %s on %s: %w", method, p.addr, err)
	}
	s.memory, s.borrows, s.unshared = f.memory, f.borrow, f.why
	if f.pipes != nil {
		l := newLane(raw, f.pipes, false, p.codec)
		s.raw, s.close = l, func() error {
			l.closeSend()
			return raw.CloseSend()
		}
	}
	return s, nil
}

// plain adds to an error what may be the cause where this side does not use TLS: a server that does
// says nothing that the other one understands.
func (p *Peer) plain(err error) error {
	if p.tls == nil && strings.Contains(err.Error(), "server preface") {
		return fmt.Errorf("%w; if it was started with --tls, start this process with --tls too", err)
	}
	return err
}

// An Option is for a stream of the data plane.
type Option func(*options)

type options struct {
	shared int
	memory *Memory
	borrow bool
}

// Sharing offers the other side n bytes of new memory, so that payloads need not travel if it is on
// this host. That it declines is no error of the stream; see Stream.Memory. 0: nothing is offered.
func Sharing(n int) Option { return func(o *options) { o.shared = n } }

// Offering is Sharing of memory that other streams may have as well. It stays the caller's to Close.
func Offering(m *Memory) Option { return func(o *options) { o.memory = m } }

// Borrowing wishes that payloads lie in memory of the other side, for this side to read. That it
// has none, or that this process cannot read it, is said by Stream.Memory; a stream that is used
// all the same gets an error when memory is lent to it.
func Borrowing() Option { return func(o *options) { o.borrow = true } }

// Ready waits until the connection is there, or cannot be had now: memory that nobody takes is not worth taking.
func (p *Peer) Ready(ctx context.Context) error {
	for ctx.Err() == nil {
		switch state := p.conn.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return fmt.Errorf("%s cannot be reached now", p.addr)
		case connectivity.Idle:
			// A connection that breaks as it comes is idle again, and stays so until somebody wants
			// it. One that did before this waits was idle and is idle, which is no change: it is
			// looked at again.
			p.conn.Connect()
			soon, cancel := context.WithTimeout(ctx, idleAgain)
			p.conn.WaitForStateChange(soon, state)
			cancel()
		default:
			p.conn.WaitForStateChange(ctx, state)
		}
	}
	return ctx.Err()
}

// Work opens a worker's membership.
func (p *Peer) Work(ctx context.Context) (*WorkClient, error) {
	return open(ctx, p, "Conductor/Work", (*pb.ConductorMessage)(nil), encoder(workerTo), receiver[pb.ConductorMessage](conductorFrom))
}

// Watch follows a run.
func (p *Peer) Watch(ctx context.Context) (*WatchClient, error) {
	return open(ctx, p, "Conductor/Watch", (*pb.RunEvent)(nil), encoder(watchTo), receiver[pb.RunEvent](eventFrom))
}

// Control opens the conductor's hold on the replicas of a server.
func (p *Peer) Control(ctx context.Context) (*ControlClient, error) {
	return open(ctx, p, "Replica/Control", (*pb.ReplicaMessage)(nil), controlEncode, receiver[pb.ReplicaMessage](replicaFrom))
}

// Push opens a stream for gradients.
func (p *Peer) Push(ctx context.Context, opts ...Option) (*PushClient, error) {
	return open(ctx, p, "Data/Push", (*pb.HeadMessage)(nil), frameAsIs, receiver[pb.HeadMessage](headFrom), opts...)
}

// Follow opens a replica's connection to the one before it in its chain.
func (p *Peer) Follow(ctx context.Context, opts ...Option) (*FollowClient, error) {
	far := Peer{conn: p.conn, addr: p.addr, tls: p.tls, codec: p.codec} // snapshots come in large frames, which pipes would carry piece by piece
	return open(ctx, &far, "Data/Follow", (*Frame)(nil), encoder(followerTo), recvFrame, opts...)
}

// Read opens a stream for parameters.
func (p *Peer) Read(ctx context.Context, opts ...Option) (*ReadClient, error) {
	return open(ctx, p, "Data/Read", (*Frame)(nil), encoder(readTo), recvFrame, opts...)
}
