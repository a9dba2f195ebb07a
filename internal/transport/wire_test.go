package transport

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/kintsugi-ml/kintsugi"
)

// landAll lands frames until the stream ends, answers each, and returns the first error.
func landAll(s *PushServer) error {
	dst := make([]byte, MaxPayloadBytes)
	for {
		f, err := s.Recv()
		if err != nil {
			return err // io.EOF is the orderly end
		}
		err = f.CopyTo(dst[:f.Bytes])
		f.Release()
		if err != nil {
			return err
		}
		if err := s.Send(kintsugi.Received{Push: f.Push}); err != nil {
			return err
		}
	}
}

// A sender that waits for Done may write the memory again: nothing that arrives is a mixture.
func TestMemoryIsFreeAfterDone(t *testing.T) {
	_, p := loopback(t, handler{push: landAll})
	s := must[*PushClient](t)(p.Push(within(t, 60*time.Second)))
	payload, done := filled(MaxPayloadBytes, 0), make(chan struct{}, 1)
	n := 100
	if testing.Short() {
		n = 20
	}
	for i := range n {
		copy(payload, filled(len(payload), uint64(i)))
		f := frameOf(payload)
		f.Done = func() { done <- struct{}{} }
		if err := s.Send(f); err != nil {
			_, err = s.Recv()
			t.Fatalf("frame %d: %v", i, err)
		}
		<-done
	}
	for range n {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
}

// Send returns long before the bytes are written, which is why Done exists. The receiver does not
// read, so flow control holds back the end of the frame. The test changes it there, and it arrives
// changed.
func TestMemoryIsNotFreeBeforeDone(t *testing.T) {
	read, verdict := make(chan struct{}), make(chan error, 1)
	p, stop := inMemory(t, handler{push: func(s *PushServer) error {
		<-read
		err := landAll(s)
		verdict <- err
		return err
	}}, nil)
	defer stop()
	s := must[*PushClient](t)(p.Push(within(t, 10*time.Second)))
	f := frameOf(filled(MaxPayloadBytes, 1))
	var done atomic.Bool
	f.Done = func() { done.Store(true) }
	if err := s.Send(f); err != nil {
		t.Fatal(err)
	}
	if done.Load() {
		t.Error("done before the receiver has read anything")
	}
	f.Payload[len(f.Payload)-1] ^= 1
	close(read)
	if err := <-verdict; !errors.Is(err, kintsugi.ErrCorrupt) {
		t.Errorf("the receiver got %v, want %v", err, kintsugi.ErrCorrupt)
	}
}

// Done is called exactly once for each frame, whatever its size, although gRPC does not report
// buffers below 1 KiB, nor empty ones. It is called in both directions.
func TestDoneComesOncePerFrame(t *testing.T) {
	var payloads [][]byte
	for _, n := range []int{0, 1, 4, 1023, 1024, 1025, 16 << 10, 300 << 10, MaxPayloadBytes - 1, MaxPayloadBytes} {
		payloads = append(payloads, filled(n, uint64(n)))
	}
	payloads = append(payloads, filled(64<<10, 1)[:3], nil) // gRPC decides by capacity, not by length
	count := func() (frames []*Frame, calls []*atomic.Int32) {
		for _, b := range payloads {
			f, n := frameOf(b), new(atomic.Int32)
			f.Done = func() { n.Add(1) }
			frames, calls = append(frames, f), append(calls, n)
		}
		return frames, calls
	}
	up, upCalls := count()
	down, downCalls := count()
	_, p := loopback(t, handler{push: landAll, read: func(s *ReadServer) error {
		for _, f := range down {
			if err := s.Send(f); err != nil {
				return err
			}
		}
		return nil
	}})
	ctx := within(t, 30*time.Second)
	push, read := must[*PushClient](t)(p.Push(ctx)), must[*ReadClient](t)(p.Read(ctx))
	for _, f := range up {
		if err := push.Send(f); err != nil {
			t.Fatal(err)
		}
		if _, err := push.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range payloads {
		f, err := read.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, f.Bytes)
		if err := f.CopyTo(got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes arrived as %d, %v", len(want), len(got), err)
		}
		f.Release()
	}
	for i, b := range payloads { // all were received, so all have been written
		for upCalls[i].Load() == 0 || downCalls[i].Load() == 0 {
			if ctx.Err() != nil {
				t.Fatalf("%d bytes: done %d times up, %d times down", len(b), upCalls[i].Load(), downCalls[i].Load())
			}
			runtime.Gosched()
		}
	}
	_ = p.Close()
	for i, b := range payloads {
		if u, d := upCalls[i].Load(), downCalls[i].Load(); u != 1 || d != 1 {
			t.Errorf("%d bytes: done %d times up, %d times down, want once", len(b), u, d)
		}
	}
}

// A frame that is too large is refused by its sender, before anything is written.
func TestSendersRefuseOversizedFrames(t *testing.T) {
	_, p := loopback(t, handler{push: landAll})
	s := must[*PushClient](t)(p.Push(within(t, 10*time.Second)))
	if err := s.Send(frameOf(make([]byte, MaxPayloadBytes+1))); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v, want an error that says so", err)
	}
}

// giant is a gRPC message that claims 4 GiB and ends.
var giant = []byte{0, 0xff, 0xff, 0xff, 0xff}

// allocated returns the bytes of memory that f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A server refuses a message of 4 GiB because of its length, and allocates nothing for it.
func TestServersRefuseOversizedMessages(t *testing.T) {
	var got error
	served := make(chan struct{})
	s, _ := loopback(t, handler{push: func(s *PushServer) error {
		defer close(served)
		_, got = s.Recv()
		return got
	}})
	var http2 http.Protocols
	http2.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: &http2}}
	defer client.CloseIdleConnections()
	cost := allocated(func() {
		req, err := http.NewRequestWithContext(within(t, 10*time.Second), http.MethodPost, "http://"+s.Address()+"/kintsugi.v1.Data/Push", bytes.NewReader(giant))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("TE", "trailers")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		<-served
	})
	if status.Code(got) != codes.ResourceExhausted || cost > 32<<20 {
		t.Errorf("got %v for %d bytes of memory, want %v for next to nothing", got, cost, codes.ResourceExhausted)
	}
}

// So does a client.
func TestClientsRefuseOversizedMessages(t *testing.T) {
	lis, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var http2 http.Protocols
	http2.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: &http2, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = w.Write(giant)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})}
	go func() { _ = server.Serve(lis) }()
	defer server.Close()
	p, err := Dial(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	cost := allocated(func() {
		s := must[*ReadClient](t)(p.Read(within(t, 10*time.Second)))
		_, err = s.Recv()
	})
	if status.Code(err) != codes.ResourceExhausted || cost > 32<<20 {
		t.Errorf("got %v for %d bytes of memory, want %v for next to nothing", err, cost, codes.ResourceExhausted)
	}
}

// rawBytes is the codec of a broken peer, which sends any bytes.
type rawBytes struct{}

func (rawBytes) Name() string { return "kintsugi" }
func (rawBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawBytes) Unmarshal(mem.BufferSlice, any) error { return nil }

// A frame with a damaged header ends the stream, and both sides know why. So does a frame of
// another release, for which another try does not help. The server lives on.
func TestBothSidesKnowWhyAFrameWasRefused(t *testing.T) {
	seen := make(chan error, 1)
	srv, p := loopback(t, handler{push: func(s *PushServer) error {
		_, err := s.Recv()
		seen <- err
		return err
	}})
	conn, err := grpc.NewClient(srv.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawBytes{})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	damaged := message(t, frameOf(filled(100, 1))).Materialize()
	damaged[30] ^= 4
	other := message(t, frameOf(filled(100, 1))).Materialize()
	other[0] = 2
	sealHeader(other)
	for _, c := range []struct {
		bytes []byte
		want  error
	}{{damaged, kintsugi.ErrCorrupt}, {nil, kintsugi.ErrCorrupt}, {other, kintsugi.ErrOtherModel}} {
		s, err := conn.NewStream(within(t, 10*time.Second), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/kintsugi.v1.Data/Push")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendMsg(c.bytes); err != nil {
			t.Fatal(err)
		}
		if err := <-seen; !errors.Is(err, c.want) {
			t.Errorf("the server got %v, want %v", err, c.want)
		}
		if err := fromWire(s.RecvMsg(nil)); !errors.Is(err, c.want) {
			t.Errorf("the client got %v, want %v", err, c.want)
		}
	}
	s := must[*PushClient](t)(p.Push(within(t, 10*time.Second)))
	if err := s.Send(frameOf(nil)); err != nil {
		t.Fatal(err)
	}
	if err := <-seen; err != nil {
		t.Errorf("the next client's frame: %v", err)
	}
}

// Any standard client may ask the health service, with the usual protobuf codec.
func TestStandardClientsCanAskForHealth(t *testing.T) {
	s, _ := loopback(t, handler{})
	conn, err := grpc.NewClient(s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, ready := range []bool{false, true, false} {
		s.SetReady(ready)
		want := healthpb.HealthCheckResponse_NOT_SERVING
		if ready {
			want = healthpb.HealthCheckResponse_SERVING
		}
		got, err := healthpb.NewHealthClient(conn).Check(within(t, 10*time.Second), &healthpb.HealthCheckRequest{})
		if err != nil || got.Status != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
}

// A worker that computes for long sends nothing for long. Neither side takes that for death, or the
// pings in between for an attack. (The server's pings come first, so the client hardly ever has to
// ping.)
func TestIdleStreamsStayOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := inMemory(t, handler{push: landAll}, nil)
		s := must[*PushClient](t)(p.Push(t.Context()))
		for range 3 {
			time.Sleep(10 * time.Minute)
			if err := s.Send(frameOf(nil)); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Recv(); err != nil {
				t.Fatalf("after a quiet while: %v", err)
			}
		}
		stop()
		synctest.Wait()
	})
}

// frozen is a connection that stops carrying bytes without ending: its host hangs or is gone.
type frozen struct {
	net.Conn
	once   sync.Once
	at     chan struct{} // closed when it freezes
	closed chan struct{}
}

func (c *frozen) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.at:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *frozen) Write(b []byte) (int, error) {
	select {
	case <-c.at:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

func (c *frozen) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Both sides notice a peer that hangs, in the time that the constants promise.
func TestAPeerThatHangsIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		freeze, noticed := make(chan struct{}), make(chan time.Duration, 1)
		p, stop := inMemory(t, handler{push: func(s *PushServer) error {
			if err := s.Send(kintsugi.Received{}); err != nil {
				return err
			}
			start := time.Now()
			<-s.Context().Done()
			noticed <- time.Since(start)
			return nil
		}}, func(c net.Conn) net.Conn { return &frozen{Conn: c, at: freeze, closed: make(chan struct{})} })
		s := must[*PushClient](t)(p.Push(t.Context()))
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		close(freeze)
		if _, err := s.Recv(); status.Code(errors.Unwrap(err)) != codes.Unavailable {
			t.Errorf("got %v, want %v", err, codes.Unavailable)
		}
		if took := time.Since(start); took > clientPingEvery+pingTimeout+time.Second {
			t.Errorf("the client took %v", took)
		}
		if took := <-noticed; took > serverPingEvery+pingTimeout+time.Second {
			t.Errorf("the server took %v", took)
		}
		stop()
		synctest.Wait()
	})
}

// A killed peer's streams end at once, both for receivers and for senders that flow control holds
// back.
func TestStreamsOfAKilledPeerEndPromptly(t *testing.T) {
	lis, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	open := make(chan struct{}, 2)
	deaf := func(s *PushServer) error { // never reads
		open <- struct{}{}
		<-s.Context().Done()
		return s.Context().Err()
	}
	_, stop := serving(lis, handler{push: deaf})
	p := must[*Peer](t)(Dial(lis.Addr().String()))
	defer p.Close()
	ctx := within(t, 30*time.Second)
	ended := make(chan error, 2)
	receiving, sending := must[*PushClient](t)(p.Push(ctx)), must[*PushClient](t)(p.Push(ctx))
	go func() {
		_, err := receiving.Recv()
		ended <- err
	}()
	go func() {
		for {
			if err := sending.Send(frameOf(filled(MaxPayloadBytes, 1))); err != nil {
				ended <- err
				return
			}
		}
	}()
	<-open
	<-open
	stop()
	start := time.Now()
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("a stream to a dead peer ended without an error")
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("that took %v", took)
	}
}

// Nothing of a server runs after Stop, and nothing of a peer after Close, whatever the streams were
// doing.
func TestNothingRunsOnAfterStopAndClose(t *testing.T) {
	before := goleak.IgnoreCurrent()
	lis, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, stop := serving(lis, handler{push: landAll, read: func(s *ReadServer) error {
		for {
			if err := s.Send(frameOf(filled(MaxPayloadBytes, 1))); err != nil {
				return err
			}
		}
	}, work: func(s *WorkServer) error {
		_, err := s.Recv()
		return err
	}})
	p := must[*Peer](t)(Dial(lis.Addr().String()))
	ctx := t.Context()
	push, read := must[*PushClient](t)(p.Push(ctx)), must[*ReadClient](t)(p.Read(ctx)) // one idle, one held back
	must[*WorkClient](t)(p.Work(ctx))
	if err := push.Send(frameOf(filled(1000, 1))); err != nil {
		t.Fatal(err)
	}
	if _, err := read.Recv(); err != nil {
		t.Fatal(err)
	}
	_ = p.Close()
	stop()
	goleak.VerifyNone(t, before)
}
