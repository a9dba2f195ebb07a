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

// Peer is a connection to another process. It connects when the first stream is opened, and
// reconnects by itself. A Peer is safe for concurrent use; its streams are not.
type Peer struct {
	conn *grpc.ClientConn
	addr string
	near bool // offers pipes

	codec codec

	tls *mtls.Client // nil: plain TCP
}

// idleAgain is how long Ready waits until it looks again at an idle connection.
const idleAgain = 10 * time.Millisecond

// A DialOption configures a peer.
type DialOption func(*dialling)

type dialling struct {
	tls   *mtls.Credentials
	id    kintsugi.ServerID
	sizes Sizes

	more []grpc.DialOption
}

// DialTLS makes both sides prove their identity: the peer must be a server, and server id if its
// certificate is for one place. nil means plain TCP.
func DialTLS(c *mtls.Credentials, id kintsugi.ServerID) DialOption {
	return func(o *dialling) { o.tls, o.id = c, id }
}

// DialSizes sets the run's sizes, from which the limits on messages between servers follow.
func DialSizes(s Sizes) DialOption {
	return func(o *dialling) { o.sizes = s }
}

// Dial returns a peer for addr (host:port). It does not wait for a connection. Without DialTLS it
// uses plain TCP.
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
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(c), grpc.MaxCallRecvMsgSize(smallBytes)), // streams allow larger messages where they need them
		grpc.WithReadBufferSize(readBufferBytes),
		grpc.WithWriteBufferSize(writeBufferBytes),
		experimental.WithBufferPool(&received),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: clientPingEvery, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithNoProxy(), // processes of a run connect directly, whatever proxy the environment names
		// A killed server is back in well under a second, so do not sleep longer than that.
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

// Connected reports whether there is a connection, as far as is known.
func (p *Peer) Connected() bool { return p.conn.GetState() == connectivity.Ready }

// Close ends all streams of the peer and the connection.
func (p *Peer) Close() error { return p.conn.Close() }

// Lost waits until an existing connection is lost; streams notice that only when they are used. It
// returns false if ctx ends first.
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

// Refused reports whether the last attempt to connect failed because the other side answered but
// did not accept this process's certificate.
func (p *Peer) Refused() bool { return p.tls != nil && errors.Is(p.tls.Failure(), mtls.ErrRefused) }

// Near makes the messages of all streams that are opened from now on, except those of Follow,
// travel through pipes, if the other side is on this host and runs as the same user.
func (p *Peer) Near() { p.near = true }

// open opens a stream that ends with ctx. like is a value of the type of the received messages.
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

// plain adds a probable cause to an error if this side does not use TLS: a server with TLS sends
// nothing that a client without TLS can read.
func (p *Peer) plain(err error) error {
	if p.tls == nil && strings.Contains(err.Error(), "server preface") {
		return fmt.Errorf("%w; if it was started with --tls, start this process with --tls too", err)
	}
	return err
}

// An Option configures a stream of the data plane.
type Option func(*options)

type options struct {
	shared int
	memory *Memory
	borrow bool
}

// Sharing offers the other side n bytes of new memory, so that payloads need not be sent if it is
// on this host. If the other side declines, the stream still works; see Stream.Memory. 0 offers
// nothing.
func Sharing(n int) Option { return func(o *options) { o.shared = n } }

// Offering is Sharing with existing memory, which other streams may share as well. The caller still
// has to Close it.
func Offering(m *Memory) Option { return func(o *options) { o.memory = m } }

// Borrowing asks the other side to put payloads into its own memory, for this side to read. If the
// other side has none, or this process cannot read it, Stream.Memory returns the reason; if such a
// stream is used anyway and memory is lent on it, Recv returns an error.
func Borrowing() Option { return func(o *options) { o.borrow = true } }

// Ready waits until the connection is established, or has failed. It is called before memory is
// allocated for the streams.
func (p *Peer) Ready(ctx context.Context) error {
	for ctx.Err() == nil {
		switch state := p.conn.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return fmt.Errorf("%s cannot be reached now", p.addr)
		case connectivity.Idle:
			// A connection that breaks while it is being established becomes idle again, and stays
			// idle until somebody asks for it. If that happened before this call, its state does
			// not change from idle to idle, so look again after a while.
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

// Work opens the stream between a worker and the conductor.
func (p *Peer) Work(ctx context.Context) (*WorkClient, error) {
	return open(ctx, p, "Conductor/Work", (*pb.ConductorMessage)(nil), encoder(workerTo), receiver[pb.ConductorMessage](conductorFrom))
}

// Watch opens a stream of the events of a run.
func (p *Peer) Watch(ctx context.Context) (*WatchClient, error) {
	return open(ctx, p, "Conductor/Watch", (*pb.RunEvent)(nil), encoder(watchTo), receiver[pb.RunEvent](eventFrom))
}

// Control opens the stream on which a conductor controls the replicas of a server.
func (p *Peer) Control(ctx context.Context) (*ControlClient, error) {
	return open(ctx, p, "Replica/Control", (*pb.ReplicaMessage)(nil), controlEncode, receiver[pb.ReplicaMessage](replicaFrom))
}

// Push opens a stream for gradients to a head.
func (p *Peer) Push(ctx context.Context, opts ...Option) (*PushClient, error) {
	return open(ctx, p, "Data/Push", (*pb.HeadMessage)(nil), frameAsIs, receiver[pb.HeadMessage](headFrom), opts...)
}

// Follow opens the connection of a replica to the replica before it in its chain.
func (p *Peer) Follow(ctx context.Context, opts ...Option) (*FollowClient, error) {
	far := Peer{conn: p.conn, addr: p.addr, tls: p.tls, codec: p.codec} // snapshots come in large frames, which pipes would carry in small pieces
	return open(ctx, &far, "Data/Follow", (*Frame)(nil), encoder(followerTo), recvFrame, opts...)
}

// Read opens a stream for parameters.
func (p *Peer) Read(ctx context.Context, opts ...Option) (*ReadClient, error) {
	return open(ctx, p, "Data/Read", (*Frame)(nil), encoder(readTo), recvFrame, opts...)
}
