package transport

import (
	"bytes"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
)

// certs makes certificates of all roles and of the given places. It returns a function that returns
// those of a place.
func certs(t testing.TB, places ...string) func(place string, log *slog.Logger) *mtls.Credentials {
	t.Helper()
	o := mtls.Order{Now: time.Now(), Life: time.Hour}
	for _, r := range mtls.Roles() {
		places = append(places, string(r))
	}
	for _, p := range places {
		n, err := mtls.ParsePlace(p)
		if err != nil {
			t.Fatal(err)
		}
		n.Domain = "run"
		o.Names = append(o.Names, n)
	}
	dir := t.TempDir()
	if _, err := mtls.Make(dir, o); err != nil {
		t.Fatal(err)
	}
	return func(place string, log *slog.Logger) *mtls.Credentials {
		t.Helper()
		n, err := mtls.ParsePlace(place)
		if err != nil {
			t.Fatal(err)
		}
		c, err := mtls.Open(dir, n.Role, n.Index, log)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// securely starts a server for h with credentials; both may be nil.
func securely(t testing.TB, h Handler, c *mtls.Credentials) *Server {
	t.Helper()
	lis, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(lis, h, ServeTLS(c))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	t.Cleanup(func() {
		s.Stop()
		<-ended
	})
	return s
}

func dialTLS(t testing.TB, s *Server, c *mtls.Credentials) *Peer {
	t.Helper()
	p, err := Dial(s.Address(), DialTLS(c, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// end opens a stream, sends a message on it, and returns how it ends.
func end[Out, In any](open func() (*Stream[Out, In], error), m Out) error {
	s, err := open()
	if err != nil {
		return err
	}
	if err = s.Send(m); err == nil || err == io.EOF { // it has ended, and Recv says how
		err = s.CloseSend()
	}
	for err == nil {
		_, err = s.Recv()
	}
	return err
}

// Each stream can be opened by the roles that it is for, and by no other. All roles may ask whether
// a server is alive. Those that are refused are told so, and the server lives on.
func TestEachStreamIsForItsRoles(t *testing.T) {
	as := certs(t)
	s := securely(t, handler{}, as("server", nil))
	ctx := within(t, 30*time.Second)
	for _, x := range []struct {
		stream string
		open   func(*Peer) error
		may    []mtls.Role
	}{
		{"Work", func(p *Peer) error {
			return end(func() (*WorkClient, error) { return p.Work(ctx) }, kintsugi.WorkerMessage(kintsugi.Hello{}))
		}, []mtls.Role{mtls.Worker}},
		{"Watch", func(p *Peer) error {
			return end(func() (*WatchClient, error) { return p.Watch(ctx) }, WatchRequest{})
		}, []mtls.Role{mtls.Operator}},
		{"Control", func(p *Peer) error {
			return end(func() (*ControlClient, error) { return p.Control(ctx) }, Control{Message: kintsugi.Take{}})
		}, []mtls.Role{mtls.Server}},
		{"Push", func(p *Peer) error {
			return end(func() (*PushClient, error) { return p.Push(ctx) }, frameOf(nil))
		}, []mtls.Role{mtls.Worker}},
		{"Read", func(p *Peer) error {
			return end(func() (*ReadClient, error) { return p.Read(ctx) }, ReadRequest{})
		}, []mtls.Role{mtls.Operator, mtls.Worker}},
		{"Follow", func(p *Peer) error {
			return end(func() (*FollowClient, error) { return p.Follow(ctx) }, kintsugi.FollowerMessage(kintsugi.Follow{}))
		}, []mtls.Role{mtls.Server}},
		{"health", func(p *Peer) error { return p.Ping(ctx, 10*time.Second) },
			[]mtls.Role{mtls.Operator, mtls.Coordinator, mtls.Server, mtls.Worker}},
	} {
		for _, role := range mtls.Roles() {
			err := x.open(dialTLS(t, s, as(string(role), nil)))
			refused := status.Code(unwrapped(err)) == codes.PermissionDenied || err != nil && strings.Contains(err.Error(), "refuses the certificate")
			if may := slices.Contains(x.may, role); refused == may {
				t.Errorf("%v opens %s: %v; it may: %v", role, x.stream, err, may)
			}
		}
	}
	if err := dialTLS(t, s, as("worker", nil)).Ping(ctx, 10*time.Second); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// unwrapped returns the status that a stream has ended with.
func unwrapped(err error) error {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || inner.Unwrap() == nil {
			return err
		}
		err = inner.Unwrap()
	}
}

// A process with the certificate of a place speaks for that place only. One with a certificate of
// its role speaks for any place of it.
func TestAPlaceSpeaksForItselfAlone(t *testing.T) {
	as := certs(t, "worker/2", "server/1")
	seen := make(chan error, 1)
	note := func(err error) error {
		seen <- err
		return err
	}
	s := securely(t, handler{
		work:   func(s *WorkServer) error { _, err := s.Recv(); return note(err) },
		push:   func(s *PushServer) error { _, err := s.Recv(); return note(err) },
		follow: func(s *FollowServer) error { _, err := s.Recv(); return note(err) },
	}, as("server", nil))
	ctx := within(t, 30*time.Second)
	push := func(slot kintsugi.Slot) func(*Peer) error {
		return func(p *Peer) error {
			f := frameOf([]byte("1234"))
			f.Push.Slot = slot
			return end(func() (*PushClient, error) { return p.Push(ctx) }, f)
		}
	}
	work := func(m kintsugi.WorkerMessage) func(*Peer) error {
		return func(p *Peer) error { return end(func() (*WorkClient, error) { return p.Work(ctx) }, m) }
	}
	follow := func(id kintsugi.ServerID) func(*Peer) error {
		return func(p *Peer) error {
			return end(func() (*FollowClient, error) { return p.Follow(ctx) }, kintsugi.FollowerMessage(kintsugi.Follow{Server: id}))
		}
	}
	for _, x := range []struct {
		place string
		what  string
		do    func(*Peer) error
		good  bool
	}{
		{"worker/2", "hello of 2", work(kintsugi.Hello{Slot: 2}), true},
		{"worker/2", "hello of 1", work(kintsugi.Hello{Slot: 1}), false},
		{"worker/2", "ticket of 2", work(kintsugi.Ticket{Push: kintsugi.PushID{Slot: 2}}), true},
		{"worker/2", "ticket of 1", work(kintsugi.Ticket{Push: kintsugi.PushID{Slot: 1}}), false},
		{"worker/2", "push of 2", push(2), true},
		{"worker/2", "push of 1", push(1), false},
		{"worker", "push of 1", push(1), true},
		{"worker", "hello of 1", work(kintsugi.Hello{Slot: 1}), true},
		{"server/1", "follower 1", follow(1), true},
		{"server/1", "follower 0", follow(0), false},
	} {
		_ = x.do(dialTLS(t, s, as(x.place, nil))) // the server's error has the details
		if err := <-seen; (err == nil) != x.good || err != nil && status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s with the certificate of %s: %v", x.what, x.place, err)
		}
	}
}

// With TLS, frames arrive as they were sent, and their memory is free when Done is called. Between
// processes of one host, memory and pipes are used as without TLS.
func TestFramesTravelByTLS(t *testing.T) {
	as := certs(t)
	s := securely(t, handler{push: landAll}, as("server", nil))
	ctx := within(t, 60*time.Second)
	stream := must[*PushClient](t)(dialTLS(t, s, as("worker", nil)).Push(ctx))
	payload, done := filled(MaxPayloadBytes, 0), make(chan struct{}, 1)
	for i, n := range []int{0, 1, 1024, 16<<10 - 1, 16 << 10, 300 << 10, MaxPayloadBytes, MaxPayloadBytes, MaxPayloadBytes} {
		copy(payload, filled(n, uint64(i)))
		f := frameOf(payload[:n])
		f.Done = func() { done <- struct{}{} }
		if err := stream.Send(f); err != nil {
			t.Fatal(err)
		}
		<-done
		if _, err := stream.Recv(); err != nil { // landAll has compared the checksum
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	near := dialTLS(t, s, as("worker", nil))
	near.Near()
	shared := must[*PushClient](t)(near.Push(ctx, Sharing(1<<20)))
	memory, why := shared.Memory()
	if memory == nil || !shared.Near() {
		if _, err := NewMemory(1<<20, shm.Writable); err != nil {
			t.Skipf("this system shares no memory: %v", err)
		}
		t.Fatalf("pipes: %v, memory: %v", shared.Near(), why)
	}
	f := frameOf(payload[:4096])
	f.Payload, f.Place = nil, PlaceAt(0)
	copy(Put(memory, f.Place, 4096), payload)
	if err := shared.Send(f); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Recv(); err != nil {
		t.Error(err)
	}
}

// If one side uses TLS and the other does not, both report it, and the server goes on with those
// that do.
func TestASideWithoutTLSIsTold(t *testing.T) {
	as := certs(t)
	var said safeBuffer
	s := securely(t, handler{}, as("server", slog.New(slog.NewTextHandler(&said, nil))))
	ctx := within(t, 30*time.Second)
	opened := func(p *Peer) error {
		_, err := p.Watch(ctx)
		return err
	}
	if err := opened(dialTLS(t, s, nil)); err == nil || !strings.Contains(err.Error(), "start this process with --tls too") {
		t.Errorf("a client without hears %v", err)
	}
	for !strings.Contains(said.String(), "does not speak TLS") { // it reports that after it has closed the connection
		if ctx.Err() != nil {
			t.Fatalf("the server says %q", said.String())
		}
		runtime.Gosched()
	}
	bare := securely(t, handler{}, nil)
	if err := opened(dialTLS(t, bare, as("operator", nil))); err == nil || !strings.Contains(err.Error(), "does not speak TLS") {
		t.Errorf("of a server without the client hears %v", err)
	}
	for _, x := range []struct {
		s *Server
		c *mtls.Credentials
	}{{s, as("operator", nil)}, {bare, nil}} {
		if err := dialTLS(t, x.s, x.c).Ping(ctx, 10*time.Second); err != nil {
			t.Errorf("the next one hears %v", err)
		}
	}
}

// A client can tell whether it is refused, or merely cut off.
func TestARefusedClientKnowsIt(t *testing.T) {
	as, others := certs(t), certs(t)
	s := securely(t, handler{}, as("server", nil))
	p := dialTLS(t, s, as("etcd", nil)) // no server listens to an etcd
	if err := p.Ping(within(t, 30*time.Second), 10*time.Second); err == nil || !p.Refused() {
		t.Errorf("%v; refused: %v", err, p.Refused())
	}
	p = dialTLS(t, s, others("coordinator", nil)) // here the client refuses the server
	if err := p.Ping(within(t, 30*time.Second), 10*time.Second); err == nil || p.Refused() {
		t.Errorf("%v; refused: %v", err, p.Refused())
	}
	s.Stop()
	p = dialTLS(t, s, as("coordinator", nil))
	if err := p.Ping(within(t, 30*time.Second), 10*time.Second); err == nil || p.Refused() {
		t.Errorf("%v; refused: %v", err, p.Refused())
	}
}

// safeBuffer is a bytes.Buffer for several goroutines.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
