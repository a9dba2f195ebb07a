package transport

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kintsugi-ml/kintsugi"
)

// handler serves each kind of stream with a function. A stream without one ends at once.
type handler struct {
	work    func(*WorkServer) error
	watch   func(*WatchServer) error
	control func(*ControlServer) error
	push    func(*PushServer) error
	read    func(*ReadServer) error
	follow  func(*FollowServer) error
}

func call[S any](f func(S) error, s S) error {
	if f == nil {
		return nil
	}
	return f(s)
}

func (h handler) Work(s *WorkServer) error       { return call(h.work, s) }
func (h handler) Watch(s *WatchServer) error     { return call(h.watch, s) }
func (h handler) Control(s *ControlServer) error { return call(h.control, s) }
func (h handler) Push(s *PushServer) error       { return call(h.push, s) }
func (h handler) Read(s *ReadServer) error       { return call(h.read, s) }
func (h handler) Follow(s *FollowServer) error   { return call(h.follow, s) }

// serving starts a server for h on lis. It returns the server, and a function that stops it and
// waits.
func serving(lis net.Listener, h Handler, opts ...ServerOption) (*Server, func()) {
	s := NewServer(lis, h, opts...)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	return s, func() {
		s.Stop()
		<-ended
	}
}

// loopback starts a server for h on a TCP port, and returns it with a peer that talks to it. Both
// end with the test.
func loopback(t testing.TB, h Handler) (*Server, *Peer) {
	t.Helper()
	lis, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, stop := serving(lis, h)
	t.Cleanup(stop)
	p, err := Dial(s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return s, p
}

// inMemory is loopback without a network, and the caller ends both.
func inMemory(t testing.TB, h Handler, wrap func(net.Conn) net.Conn) (*Peer, func()) {
	t.Helper()
	lis := bufconn.Listen(256 << 10)
	_, stop := serving(lis, h)
	p, err := dial("memory", codec{}, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		c, err := lis.DialContext(ctx)
		if err != nil || wrap == nil {
			return c, err
		}
		return wrap(c), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return p, func() {
		_ = p.Close()
		stop()
	}
}

// within returns a context for a test that must not hang.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// must is for streams, which open without a round trip.
func must[S any](t testing.TB) func(S, error) S {
	return func(s S, err error) S {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// filled returns n bytes that depend on seed.
func filled(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, (n+7)/8*8)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n]
}

// frameOf returns a frame that carries payload.
func frameOf(payload []byte) *Frame {
	return &Frame{Payload: payload, Header: Header{
		Kind: KindPush, Shard: 3, Chunks: kintsugi.ChunkRange{Lo: 5, Hi: 9}, Bytes: uint32(len(payload)), CRC: Checksum(payload),
		Push: kintsugi.PushID{Line: 1, Slot: 2, Incarnation: 3, Version: 4, Sequence: 5},
	}}
}
