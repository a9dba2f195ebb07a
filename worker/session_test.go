package worker

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
)

// silent is a server that accepts all streams of a worker, and says nothing on them.
type silent struct{ transport.Handler }

func (silent) Work(s *transport.WorkServer) error { <-s.Context().Done(); return nil }
func (silent) Push(s *transport.PushServer) error { <-s.Context().Done(); return nil }
func (silent) Read(s *transport.ReadServer) error { <-s.Context().Done(); return nil }

// gate holds back all requests for streams until a number of them have been made.
type gate struct {
	missing atomic.Int64
	open    chan struct{}
}

func newGate(streams int64) *gate {
	g := &gate{open: make(chan struct{})}
	g.missing.Store(streams)
	return g
}

// came notes a request. There may be more than it takes to open the gate: where memory is not shared,
// a worker asks once more.
func (g *gate) came() {
	if g.missing.Add(-1) == 0 {
		close(g.open)
	}
}

// gated is a listener whose connections lead through a gate.
type gated struct {
	net.Listener
	gate *gate
}

func (l gated) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	frames := make(chan []byte, 1000)
	go func() {
		defer close(frames)
		for frame, err := preface(c); err == nil; frame, err = nextFrame(c) {
			if isRequest(frame) {
				l.gate.came()
			}
			frames <- frame
		}
	}()
	go func() {
		defer w.Close()
		for frame := range frames {
			if isRequest(frame) {
				<-l.gate.open
			}
			if _, err := w.Write(frame); err != nil {
				return
			}
		}
	}()
	return gatedConn{c, r}, nil
}

type gatedConn struct {
	net.Conn
	read *io.PipeReader
}

func (c gatedConn) Read(b []byte) (int, error) { return c.read.Read(b) }
func (c gatedConn) Close() error {
	_ = c.read.Close()
	return c.Conn.Close()
}

const (
	http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	http2Headers = 1 // the type of a frame that asks for a stream
)

// preface reads what an HTTP/2 connection begins with.
func preface(c net.Conn) ([]byte, error) {
	b := make([]byte, len(http2Preface))
	_, err := io.ReadFull(c, b)
	return b, err
}

// nextFrame reads a frame of HTTP/2: the length of its payload in three bytes, a byte for its type,
// five others, and the payload.
func nextFrame(c net.Conn) ([]byte, error) {
	b := make([]byte, 9)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, err
	}
	payload := make([]byte, binary.BigEndian.Uint32(append([]byte{0}, b[:3]...)))
	_, err := io.ReadFull(c, payload)
	return append(b, payload...), err
}

// isRequest reports whether a frame asks for a stream.
func isRequest(frame []byte) bool {
	return string(frame) != http2Preface && frame[3] == http2Headers
}

// serveSilently returns a member whose server says nothing.
func serveSilently(t *testing.T, wrap func(net.Listener) net.Listener) kintsugi.Member {
	t.Helper()
	lis, err := transport.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := transport.NewServer(wrap(lis), silent{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve()
	}()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	return kintsugi.Member{Incarnation: 1, Address: lis.Addr().String()}
}

// viewOf returns a view with a shard for each server, and the configuration of a worker in it.
func viewOf(t *testing.T, servers []kintsugi.Member) (kintsugi.View, *Config) {
	t.Helper()
	l, err := kintsugi.NewLayout([]kintsugi.Tensor{{Name: "w", Shape: []int{64, 64}}})
	if err != nil {
		t.Fatal(err)
	}
	v := kintsugi.View{Number: 1, Line: 1, Servers: servers}
	for i := range servers {
		v.Servers[i].Server = kintsugi.ServerID(i)
		v.Chains = append(v.Chains, []kintsugi.ServerID{kintsugi.ServerID(i)})
	}
	if len(sources(l, v)) != len(servers) {
		t.Fatalf("%d chunks are too few for %d servers", len(l.Chunks), len(servers))
	}
	return v, &Config{Layout: l, Pace: kintsugi.Pace{Credit: 1}, Enter: func(State) {}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

// A worker asks for all streams before it waits for the answer to any: after a failure, all of them
// take as long as one, however many servers there are and however far away.
func TestAllStreamsAreAskedForAtOnce(t *testing.T) {
	const servers = 3
	g := newGate(2*servers + 1) // for gradients and parameters, and to the conductor
	var members []kintsugi.Member
	for range servers {
		members = append(members, serveSilently(t, func(l net.Listener) net.Listener { return gated{l, g} }))
	}
	view, cfg := viewOf(t, members)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conns := newPeers(nil, 0)
	defer conns.close()
	s, err := connect(ctx, cfg, view, rooms{}, conns)
	if err != nil {
		t.Fatal(err)
	}
	s.close()
}

// accepting counts the connections that a listener accepts.
type accepting struct {
	net.Listener
	n *atomic.Int64
}

func (l accepting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return c, err
}

// A view makes new streams, and new connections only to servers that were not in the view before:
// another life of a server has another one, even at the same address.
func TestASessionHasTheConnectionsOfTheOneBefore(t *testing.T) {
	var stays, restarts atomic.Int64
	view, cfg := viewOf(t, []kintsugi.Member{
		serveSilently(t, func(l net.Listener) net.Listener { return accepting{l, &stays} }),
		serveSilently(t, func(l net.Listener) net.Listener { return accepting{l, &restarts} }),
	})
	conns := newPeers(nil, 0)
	defer conns.close()
	var before []*transport.Peer
	for i, want := range []struct{ stays, restarts int64 }{{1, 1}, {1, 1}, {1, 2}} {
		view.Number = kintsugi.ViewNumber(i + 1)
		if i == 2 {
			view.Servers[1].Incarnation = 2
		}
		s, err := connect(t.Context(), cfg, view, rooms{}, conns)
		if err != nil {
			t.Fatal(err)
		}
		if stays.Load() != want.stays || restarts.Load() != want.restarts {
			t.Errorf("view %d: %d and %d connections so far, want %d and %d", i+1, stays.Load(), restarts.Load(), want.stays, want.restarts)
		}
		if s.close(); s.work.Context().Err() == nil {
			t.Error("a stream of an ended session goes on")
		}
		before = append(before, s.shards[1].head)
	}
	if before[1] == before[2] || before[0].Connected() || len(conns.open) != 2 {
		t.Errorf("the connection to the life before is kept; %d are open", len(conns.open))
	}
	// A server that heads nothing has no streams of this worker, and may die unnoticed.
	view.Chains[1] = []kintsugi.ServerID{0, 1}
	s, err := connect(t.Context(), cfg, view, rooms{}, conns)
	if err != nil {
		t.Fatal(err)
	}
	if s.close(); len(conns.open) != 1 || before[2].Connected() {
		t.Errorf("%d connections are open, want that to server 0 alone", len(conns.open))
	}
	// One that is lost is not used again: gRPC would wait before it tries to connect.
	conns.open[view.Servers[0].Life()].Close()
	s, err = connect(t.Context(), cfg, view, rooms{}, conns)
	if err != nil {
		t.Fatal(err)
	}
	if s.close(); stays.Load() != 2 {
		t.Errorf("%d connections after one was lost, want 2", stays.Load())
	}
}

// A server that cannot be reached ends the session. The worker waits for no others that do not
// answer, and says which one it was.
func TestAServerThatCannotBeReachedEndsTheOthers(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = away.Close()
	at := func(l net.Listener) kintsugi.Member {
		return kintsugi.Member{Incarnation: 1, Address: l.Addr().String()}
	}
	view, cfg := viewOf(t, []kintsugi.Member{at(mute), at(away), at(mute)})
	conns := newPeers(nil, 0)
	defer conns.close()
	_, err = connect(t.Context(), cfg, view, rooms{}, conns)
	if err == nil || !strings.Contains(err.Error(), away.Addr().String()) || strings.Contains(err.Error(), mute.Addr().String()) {
		t.Errorf("it says %v; want server 1 at %v alone", err, away.Addr())
	}
}
