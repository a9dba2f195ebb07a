//go:build linux

package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	pb "github.com/kintsugi-ml/kintsugi/proto/kintsugi/v1"
)

// echo answers each ticket with the release of its push's version, sometimes several at once.
func echo(s *WorkServer) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return err // io.EOF is the orderly end
		}
		push := m.(kintsugi.Ticket).Push
		for _, answer := range []kintsugi.ConductorMessage{kintsugi.Released{Step: push.Version}, kintsugi.Refused{Push: push, Reason: "x"}} {
			if err := s.Send(answer); err != nil {
				return err
			}
		}
	}
}

// near returns a peer whose streams go through pipes.
func near(t testing.TB, h Handler) *Peer {
	_, p := loopback(t, h)
	p.Near()
	return p
}

func TestMessagesThroughPipesArriveInOrder(t *testing.T) {
	s := must[*WorkClient](t)(near(t, handler{work: echo}).Work(within(t, 10*time.Second)))
	if !s.Near() {
		t.Fatal("a process has no pipes to itself")
	}
	for v := range kintsugi.Step(100) {
		if err := s.Send(kintsugi.Ticket{Push: kintsugi.PushID{Version: v}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for v := range kintsugi.Step(100) {
		if m, err := s.Recv(); err != nil || m.(kintsugi.Released).Step != v {
			t.Fatalf("answer %d: %v, %v", v, m, err)
		}
		if m, err := s.Recv(); err != nil || m.(kintsugi.Refused).Push.Version != v {
			t.Fatalf("answer %d: %v, %v", v, m, err)
		}
	}
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("at the end: %v, want %v", err, io.EOF)
	}
}

// A payload of any length arrives as it was sent, and its memory is free as soon as Send returns.
func TestFramesThroughPipesAreFreeWhenSent(t *testing.T) {
	got := make(chan []byte, 1)
	s := must[*PushClient](t)(near(t, handler{push: func(s *PushServer) error {
		for {
			f, err := s.Recv()
			if err != nil {
				return err
			}
			b := make([]byte, f.Bytes)
			if err := f.CopyTo(b); err != nil {
				return err
			}
			f.Release()
			got <- b
		}
	}}).Push(within(t, 30*time.Second)))
	for _, n := range []int{0, 1, 1000, 4000, 5000, 64 << 10, 300_000, MaxPayloadBytes} {
		payload, calls := filled(n, uint64(n)), 0
		f := frameOf(payload)
		f.Done = func() { calls++ }
		if err := s.Send(f); err != nil {
			_, err = s.Recv()
			t.Fatal(err)
		}
		want := bytes.Clone(payload)
		clear(payload)
		if b := <-got; !bytes.Equal(b, want) || calls != 1 {
			t.Errorf("%d bytes: %v as they were sent, done %d times", n, bytes.Equal(b, want), calls)
		}
	}
	if err := s.Send(frameOf(make([]byte, MaxPayloadBytes+1))); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a frame that is too large: %v, want an error that says so", err)
	}
}

// The end of a stream has the same reason as without pipes, and answers that were sent before still
// arrive.
func TestAStreamThroughPipesEndsAsOneWithout(t *testing.T) {
	p := near(t, handler{work: func(s *WorkServer) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		if err := s.Send(kintsugi.Released{Step: 7}); err != nil {
			return err
		}
		return fmt.Errorf("%w: a newer life", kintsugi.ErrFenced)
	}})
	s := must[*WorkClient](t)(p.Work(within(t, 10*time.Second)))
	if err := s.Send(kintsugi.Ticket{}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Recv()
	if err == nil {
		_, err = s.Recv()
	}
	if !errors.Is(err, kintsugi.ErrFenced) {
		t.Errorf("the stream ends with %v, want %v", err, kintsugi.ErrFenced)
	}
	if err := s.Send(kintsugi.Ticket{}); err != io.EOF {
		t.Errorf("a send after the end: %v, want %v", err, io.EOF)
	}

	ctx, cancel := context.WithCancel(t.Context())
	s = must[*WorkClient](t)(near(t, handler{work: echo}).Work(ctx))
	cancel()
	if _, err := s.Recv(); err == nil || err == io.EOF {
		t.Errorf("a stream whose context ends ends with %v", err)
	}
}

// A handler learns that its client is gone, even while it waits to send.
func TestAHandlerHearsThatItsClientIsGone(t *testing.T) {
	ended := make(chan error, 1)
	p := near(t, handler{work: func(s *WorkServer) error {
		var err error
		for err == nil { // nobody reads
			err = s.Send(kintsugi.Released{})
		}
		ended <- err
		return err
	}})
	ctx, cancel := context.WithCancel(t.Context())
	must[*WorkClient](t)(p.Work(ctx))
	cancel()
	select {
	case err := <-ended:
		if err == nil || err == io.EOF {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for ever")
	}
}

// Streams that have ended leave no descriptors.
func TestEndedStreamsLeaveNoDescriptors(t *testing.T) {
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(list)
	}
	p := near(t, handler{work: echo})
	cycle := func() {
		s := must[*WorkClient](t)(p.Work(within(t, 10*time.Second)))
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != io.EOF {
			t.Fatal(err)
		}
	}
	cycle()
	before := open()
	for range 20 {
		cycle()
	}
	for deadline := time.Now().Add(5 * time.Second); open() > before+4; { // a handler's ends are closed soon after the client has learnt of the end
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors before, %d after 20 streams", before, open())
		}
	}
}

// BenchmarkRoundTrip measures a ticket and its answer, over gRPC on the loopback device and through
// pipes.
func BenchmarkRoundTrip(b *testing.B) {
	once := func(s *WorkServer) error {
		for {
			m, err := s.Recv()
			if err != nil {
				return err
			}
			if err := s.Send(kintsugi.Released{Step: m.(kintsugi.Ticket).Push.Version}); err != nil {
				return err
			}
		}
	}
	for _, c := range []struct {
		name string
		peer func() *Peer
	}{
		{"grpc", func() *Peer { _, p := loopback(b, handler{work: once}); return p }},
		{"pipes", func() *Peer { return near(b, handler{work: once}) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := must[*WorkClient](b)(c.peer().Work(b.Context()))
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Send(kintsugi.Ticket{Loss: 1, Examples: 64, SquaredNorm: 2}); err != nil {
					b.Fatal(err)
				}
				if _, err := s.Recv(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzLane: no bytes in a pipe make their reader panic, or take more memory than a message may
// have. When the pipe ends, the stream ends.
func FuzzLane(f *testing.F) {
	ticket, err := proto.Marshal(workerTo(kintsugi.Ticket{Views: []kintsugi.ViewNumber{1}}))
	if err != nil {
		f.Fatal(err)
	}
	long := func(b []byte) []byte { return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...) }
	frame := long(message(f, frameOf(filled(100, 1))).Materialize())
	f.Add(append(long(ticket), long(ticket)...), false)
	f.Add(append(frame, frame...), true)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, true)
	f.Fuzz(func(t *testing.T, b []byte, frames bool) {
		l := &lane{pipes: &shm.Pipes{}, in: bufio.NewReaderSize(bytes.NewReader(b), laneBuffer), served: true, ended: make(chan struct{}), err: io.EOF}
		close(l.ended)
		for {
			var err error
			if frames {
				x := new(Frame)
				if err = l.RecvMsg(x); err == nil && x.err == nil {
					_ = x.Check()
					x.Release()
				}
			} else {
				err = l.RecvMsg(new(pb.WorkerMessage))
			}
			if err == nil {
				continue
			}
			if err != io.EOF && !errors.Is(err, kintsugi.ErrCorrupt) {
				t.Fatalf("got %v, which names no condition", err)
			}
			return
		}
	})
}
